"""The JobManager's REST API as typed calls.

Every call here may be repeated:

- reads, as they change nothing;
- uploads, as content is named by its hash;
- submissions, by their idempotency key;
- cancels, as they are level-triggered;
- login links, as unused ones expire;
- changes to the blocklist, as the client reads the blocklist when it does not know the outcome.

A call without a reply is therefore repeated for ``patience`` seconds, and raises Unreachable after that.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar
from urllib.parse import quote

import msgspec

from emberkeep.base.errors import Absent, Conflict
from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.blocklist.model import PERMANENT, EvacuatedDrivers
from emberkeep.client.calls.audit import AuditCalls
from emberkeep.client.calls.blobs import BlobCalls
from emberkeep.client.calls.connect import ConnectCalls
from emberkeep.client.calls.events import EventCalls
from emberkeep.client.calls.logs import LogCalls
from emberkeep.client.calls.progress import ProgressCalls
from emberkeep.client.calls.savepoints import SavepointCalls
from emberkeep.client.calls.spark_uis import SparkUiCalls
from emberkeep.client.calls.storage import StorageCalls
from emberkeep.client.calls.tokens import TokenCalls
from emberkeep.client.calls.upgrades import UpgradeCalls
from emberkeep.client.endpoint import Endpoint
from emberkeep.client.http_calls import HttpCalls, Request, Tries, decode
from emberkeep.protocol import (
    rest_blocklist,
    rest_cluster,
    rest_jobs,
    rest_login,
    rest_submission,
    rest_task_managers,
)
from emberkeep.protocol.rest_checkpoints import CheckpointStatistics

T = TypeVar("T")


@dataclass(frozen=True)
class AnsweringLeader:
    """The JobManager that answers.

    ``started_ms`` is when it became the leader, and ``now_ms`` when it replied, precise to one second. Both are Unix
    milliseconds by that JobManager's own clock.
    """

    epoch: int
    started_ms: int
    now_ms: int


def _blocklist_path(name: str, task_manager: bool) -> str:
    return f"/blocklist/{'taskmanagers' if task_manager else 'nodes'}/{quote(name, safe='')}"


def _entry_about(
    blocklist: rest_blocklist.BlocklistInfo, name: str, task_manager: bool
) -> rest_blocklist.BlockedTaskManagerInfo | None:
    if task_manager:
        return blocklist.blocked_task_managers.get(TaskManagerId(name))
    return blocklist.blocked_nodes.get(name)


def _says(entry: rest_blocklist.BlockedTaskManagerInfo, request: rest_blocklist.BlockRequest) -> bool:
    """True if ``entry`` is the one that ``request`` makes."""
    end = PERMANENT if request.end_timestamp is None else int(request.end_timestamp)
    made = (request.action, end, " ".join(request.cause.split()))
    drivers = entry.drivers or EvacuatedDrivers.RESTART  # an entry leaves RESTART out
    return (entry.action, entry.end_timestamp, entry.cause) == made and request.drivers in (None, drivers)


class RestClient:
    """Call one cluster's JobManager. Use it as ``async with RestClient(endpoint) as client``.

    A call without a reply is repeated for ``patience`` seconds. Calls raise Unreachable, NotAuthorised, and what the
    JobManager reports: InvalidInput, Absent, Conflict, RetryLater or Fatal.
    """

    def __init__(self, endpoint: Endpoint, *, patience: float = 3.0) -> None:
        self.endpoint = endpoint
        self._http = HttpCalls(endpoint, patience)
        self.blobs = BlobCalls(self._http)
        self.logs = LogCalls(self._http)
        self.savepoints = SavepointCalls(self._http)
        self.upgrades = UpgradeCalls(self._http)
        self.storage = StorageCalls(self._http)
        self.audit = AuditCalls(self._http)
        self.events = EventCalls(self._http)
        self.tokens = TokenCalls(self._http)
        self.spark_uis = SparkUiCalls(self._http)
        self.connect = ConnectCalls(self._http)
        self.progress = ProgressCalls(self._http)

    async def __aenter__(self) -> RestClient:
        self._http.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.close()

    @property
    def has_met(self) -> bool:
        """True once a call has succeeded, or a connection that a JobManager had accepted broke during a request."""
        return self._http.has_met

    # --- cluster ---------------------------------------------------------------------------------------------------

    async def overview(self) -> rest_cluster.ClusterOverview:
        return await self._get("/overview", rest_cluster.ClusterOverview)

    async def settings(self) -> list[rest_cluster.ConfigurationEntry]:
        """Return the leader's configuration."""
        answer = await self._http.call(Request("GET", "/jobmanager/config"))
        return decode(answer, list[rest_cluster.ConfigurationEntry])

    async def leadership(self) -> AnsweringLeader:
        answer = await self._http.call(Request("GET", "/overview"))
        own = decode(answer, rest_cluster.ClusterOverview).emberkeep
        return AnsweringLeader(own.epoch, own.started, answer.time_ms())

    async def task_managers(self) -> list[rest_task_managers.TaskManagerSummary]:
        return (await self._get("/taskmanagers", rest_task_managers.TaskManagers)).taskmanagers

    async def task_manager(self, task_manager: str) -> rest_task_managers.TaskManagerDetails:
        return await self._get(f"/taskmanagers/{quote(task_manager, safe='')}", rest_task_managers.TaskManagerDetails)

    async def login_link(self) -> rest_login.LoginLink:
        """Return a link to the leader's web page that logs one browser in, once."""
        return decode(await self._http.call(Request("POST", "/login-links")), rest_login.LoginLink)

    # --- blocklist -------------------------------------------------------------------------------------------------

    async def blocklist(self) -> rest_blocklist.BlocklistInfo:
        return await self._get("/blocklist", rest_blocklist.BlocklistInfo)

    async def block(
        self, name: str, request: rest_blocklist.BlockRequest, *, task_manager: bool = False
    ) -> rest_blocklist.BlockedTaskManagerInfo:
        """Block a node or a task manager and return the current entry.

        Raises Conflict if there is an entry and ``request`` does not allow merging.
        """
        headers, body = {"Content-Type": "application/json"}, msgspec.json.encode(request)
        path, tries = _blocklist_path(name, task_manager), Tries()
        try:
            answer = await self._http.call(Request("PUT", path, headers=headers, body=lambda: body), tries)
        except Conflict:
            listed = await self.blocklist() if tries.in_doubt else None
            entry = None if listed is None else _entry_about(listed, name, task_manager)
            if entry is None or not _says(entry, request):
                raise
            return entry  # an earlier try, whose reply was lost, made the entry
        return decode(answer, rest_blocklist.BlockedTaskManagerInfo)

    async def unblock(self, name: str, *, task_manager: bool = False) -> None:
        """Unblock a node or a task manager. Raises Absent if it is not blocked."""
        tries = Tries()
        try:
            await self._http.call(Request("DELETE", _blocklist_path(name, task_manager)), tries)
        except Absent:
            if not tries.in_doubt:  # else an earlier try, whose reply was lost, unblocked it
                raise

    # --- jobs ------------------------------------------------------------------------------------------------------

    async def jobs(self, *, owner: str = "", namespace: str = "") -> list[rest_jobs.JobDetails]:
        """Return the jobs that the caller sees, newest submission first. "" selects any owner or namespace."""
        given = {name: value for name, value in (("owner", owner), ("namespace", namespace)) if value}
        answer = await self._http.call(Request("GET", "/jobs/overview", given))
        return decode(answer, rest_jobs.MultipleJobsDetails).jobs

    async def job(self, job_id: JobId) -> rest_jobs.JobDetailsInfo:
        return await self._get(f"/jobs/{job_id}", rest_jobs.JobDetailsInfo)

    async def exceptions(self, job_id: JobId) -> rest_jobs.JobExceptions:
        return await self._get(f"/jobs/{job_id}/exceptions", rest_jobs.JobExceptions)

    async def checkpoints(self, job_id: JobId) -> CheckpointStatistics:
        return await self._get(f"/jobs/{job_id}/checkpoints", CheckpointStatistics)

    async def config(self, job_id: JobId) -> rest_jobs.JobConfigInfo:
        """Return what the job was submitted with."""
        return await self._get(f"/jobs/{job_id}/config", rest_jobs.JobConfigInfo)

    async def submit(
        self, submission: rest_submission.JobSubmission | rest_submission.OffloadedSubmission
    ) -> rest_submission.JobSubmitted:
        headers = {"Content-Type": "application/json", rest_submission.IDEMPOTENCY_HEADER: submission.idempotency_key}
        body = msgspec.json.encode(submission)
        answer = await self._http.call(Request("POST", "/jobs", headers=headers, body=lambda: body))
        return decode(answer, rest_submission.JobSubmitted)

    async def cancel(self, job_id: JobId, *, grace: float | None = None) -> None:
        """Cancel a job.

        ``grace``: seconds until a driver that has not ended is killed. None means the cluster's setting.
        """
        parameters = {"mode": "cancel"} if grace is None else {"mode": "cancel", "grace": f"{grace:g}"}
        await self._http.call(Request("PATCH", f"/jobs/{job_id}", parameters))

    async def stop_task_manager(self, task_manager: str, *, drain: float = 0.0) -> None:
        """Stop a task manager permanently. The work on it has ``drain`` seconds to end by itself. Raises Absent."""
        path, tries = f"/taskmanagers/{quote(task_manager, safe='')}/stop", Tries()
        try:
            await self._http.call(Request("POST", path, {"drain": f"{drain:g}"}), tries)
        except Absent:
            if not tries.in_doubt:  # else an earlier try, whose reply was lost, stopped it
                raise

    async def _get(self, path: str, kind: type[T]) -> T:
        return decode(await self._http.call(Request("GET", path)), kind)
