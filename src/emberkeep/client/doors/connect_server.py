"""Which job is the Spark Connect server of a name, and how clients that start it at the same time start one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from emberkeep.base.ids import JobId
from emberkeep.client.rest_client import RestClient
from emberkeep.client.submission.preparation import PreparedJob
from emberkeep.client.submission.successor_key import successor_key
from emberkeep.jobs.model import JobStatus

_ENDING = (JobStatus.CANCELLING, JobStatus.FAILING)


@dataclass(frozen=True)
class KnownServer:
    """What the cluster knows under a server's name.

    ``running``: the job that has neither ended nor is about to; None if there is none. ``newest``: the newest job of
    the name, or "".
    """

    namespace: str
    name: str
    running: JobId | None
    newest: str

    def succeeded_by(self, job: PreparedJob) -> PreparedJob:
        """Return the job as the next server of this name: there is one, however many clients have seen none run."""
        key = successor_key("connect", self.namespace, self.name, self.newest)
        return replace(job, submission=msgspec.structs.replace(job.submission, idempotency_key=key))


async def find_server(client: RestClient, name: str, namespace: str) -> KnownServer:
    """Return what the cluster knows of a server.

    ``namespace``: that of the job; "": the caller's own. A caller who sees all jobs does not mean a job of another
    namespace.
    """
    namespace = namespace or (await client.tokens.caller()).namespace
    jobs = await client.jobs(namespace=namespace)
    named = [job for job in jobs if job.name == name and job.emberkeep.namespace == namespace]
    running = (job.jid for job in named if not job.state.is_globally_terminal and job.state not in _ENDING)
    return KnownServer(namespace, name, next(running, None), named[0].jid if named else "")
