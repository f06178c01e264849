"""Looks for a job's savepoint."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from emberkeep.base.errors import Fatal
from emberkeep.client.job_reference import resolve_job
from emberkeep.client.rest_client import RestClient
from emberkeep.protocol.rest_savepoints import SavepointEntry


@dataclass(frozen=True)
class SavepointWait:
    """Wait for a savepoint of ``job`` that was made at or after ``after_ms`` (Unix milliseconds).

    ``job``: the job's id, a prefix of the id, or its name.
    """

    job: str
    after_ms: int

    async def look(self, client: RestClient) -> str:
        """Return the newest such savepoint's location; "" if there is none yet.

        Raises Absent (no such job), Fatal (the job has ended without such a savepoint).
        """
        job_id = await resolve_job(client, self.job)
        job = await client.job(job_id)  # before the list: a job that is stopped with a savepoint ends after that
        found = newest((await client.savepoints.all()).savepoints, job_id, self.after_ms)
        if found is None and job.state.is_globally_terminal:
            raise Fatal(
                f"job {job_id} ({job.name}) has ended and is {job.state.value}, without such a savepoint",
                hint="`emberkeep savepoint list` shows those that it has made",
            )
        return "" if found is None else found.path


def newest(savepoints: Iterable[SavepointEntry], job_id: str, after_ms: int) -> SavepointEntry | None:
    """Return the job's newest savepoint since ``after_ms`` that is not being deleted."""
    fitting = [each for each in savepoints if each.job_id == job_id and each.created >= after_ms and each.retired < 0]
    return max(fitting, key=lambda each: each.created, default=None)
