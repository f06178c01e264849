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

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from emberkeep.base.errors import Absent, Conflict
from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.blobs.model import BlobContent, BlobKey
from emberkeep.blocklist.model import PERMANENT
from emberkeep.client.blob_file import BlobFile
from emberkeep.client.calls.audit import AuditCalls
from emberkeep.client.calls.connect import ConnectCalls
from emberkeep.client.calls.events import EventCalls
from emberkeep.client.calls.progress import ProgressCalls
from emberkeep.client.calls.savepoints import SavepointCalls
from emberkeep.client.calls.spark_uis import SparkUiCalls
from emberkeep.client.calls.storage import StorageCalls
from emberkeep.client.calls.tokens import TokenCalls
from emberkeep.client.calls.upgrades import UpgradeCalls
from emberkeep.client.endpoint import Endpoint
from emberkeep.client.http_calls import REQUEST_TIMEOUT, HttpCalls, Request, Tries, decode
from emberkeep.protocol import (
    rest_blobs,
    rest_blocklist,
    rest_cluster,
    rest_jobs,
    rest_login,
    rest_logs,
    rest_submission,
    rest_task_managers,
)
from emberkeep.protocol.rest_checkpoints import CheckpointStatistics

T = TypeVar("T")

# Only the time of each read from the socket is limited, so a large file on a slow line does not fail.
_TRANSFER_LIMITS = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_TIMEOUT, sock_read=60.0)
# The reply arrives when all the work is done, however long that takes.
_PATIENT_LIMITS = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_TIMEOUT)


@dataclass(frozen=True)
class LogRead:
    """Bytes of a log from ``offset`` on. The next read starts at ``next_offset``. ``complete``: the log has ended.

    ``kept_until``: the log is read from the shared storage, and lines after this time (Unix milliseconds) are missing;
    0: none is.
    """

    data: bytes
    offset: int
    next_offset: int
    complete: bool
    kept_until: int = 0


@dataclass(frozen=True)
class AnsweringLeader:
    """The JobManager that answers.

    ``started_ms`` is when it became the leader, and ``now_ms`` when it replied, precise to one second. Both are Unix
    milliseconds by that JobManager's own clock.
    """

    epoch: int
    started_ms: int
    now_ms: int


def job_log_path(job_id: JobId, log_id: str) -> str:
    """Return the path of a job's log in the API, by the log's ``id`` in the list."""
    return f"/jobs/{job_id}/logs/{quote(log_id, safe='')}"


def task_manager_log_path(task_manager: str, name: str) -> str:
    """Return the path of a task manager's log in the API, by the log's ``name`` in the list."""
    return f"/taskmanagers/{quote(task_manager, safe='')}/logs/{quote(name, safe='')}"


def job_manager_log_path(name: str) -> str:
    """Return the path of one of the JobManager's own logs in the API."""
    return f"/jobmanager/logs/{quote(name, safe='')}"


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
    return (entry.action, entry.end_timestamp, entry.cause) == (
        request.action,
        end,
        " ".join(request.cause.split()),
    ) and request.drivers in (None, entry.drivers)


class RestClient:
    """Call one cluster's JobManager. Use it as ``async with RestClient(endpoint) as client``.

    A call without a reply is repeated for ``patience`` seconds. Calls raise Unreachable, NotAuthorised, and what the
    JobManager reports: InvalidInput, Absent, Conflict, RetryLater or Fatal.

    A facade with one method for each request of the REST API, hence its many methods.
    """

    def __init__(self, endpoint: Endpoint, *, patience: float = 3.0) -> None:
        self.endpoint = endpoint
        self._http = HttpCalls(endpoint, patience)
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
        path = f"/taskmanagers/{quote(task_manager, safe='')}/stop"
        await self._http.call(Request("POST", path, {"drain": f"{drain:g}"}))

    # --- BLOBs -----------------------------------------------------------------------------------------------------

    async def open_blob_group(self, job_id: JobId, contents: Sequence[BlobContent]) -> list[str]:
        """Announce the uploads for a job that does not exist yet. Return the SHA-256s of the missing contents."""
        body = msgspec.json.encode(rest_blobs.BlobGroup(blobs=list(contents)))
        headers = {"Content-Type": "application/json"}
        answer = await self._http.call(Request("POST", f"/jobs/{job_id}/blobs", headers=headers, body=lambda: body))
        return decode(answer, rest_blobs.BlobGroupOpened).missing

    async def upload_blob(
        self, job_id: JobId, key: BlobKey, body: Callable[[], bytes | AsyncIterator[bytes]], size: int
    ) -> None:
        """Upload the content of a BLOB.

        ``body`` is called again for each try. The JobManager refuses content with a different hash.
        """
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        path = f"/jobs/{job_id}/blobs/{key}"
        await self._http.call(Request("PUT", path, headers=headers, body=body, limits=_TRANSFER_LIMITS))

    async def download_blob(self, job_id: JobId, key: BlobKey, destination: Path) -> int:
        """Download the content of a BLOB to ``destination``, which appears only once complete and verified.

        Returns its size in bytes. Raises Fatal if the content is damaged or cannot be written.
        """
        file = BlobFile(destination, key)
        try:
            path = f"/jobs/{job_id}/blobs/{key}"
            await self._http.call(Request("GET", path, limits=_TRANSFER_LIMITS, sink=file.receive))
            return await file.finish()
        finally:
            file.clean_up()

    async def blobs(self, job_id: JobId | None = None) -> rest_blobs.BlobList:
        """Return all BLOBs, or one job's."""
        return await self._get("/blobs" if job_id is None else f"/jobs/{job_id}/blobs", rest_blobs.BlobList)

    async def verify_blobs(self, job_id: JobId | None = None) -> rest_blobs.BlobCheck:
        """Have the JobManager read all BLOBs, or one job's, in both stores. Returns when it has read them."""
        path = "/blobs/verify" if job_id is None else f"/jobs/{job_id}/blobs/verify"
        return decode(await self._http.call(Request("POST", path, limits=_PATIENT_LIMITS)), rest_blobs.BlobCheck)

    async def collect_blobs(self) -> rest_blobs.BlobCollection:
        """Run the staged clean-up once."""
        return decode(
            await self._http.call(Request("POST", "/blobs/gc", limits=_PATIENT_LIMITS)), rest_blobs.BlobCollection
        )

    # --- logs ------------------------------------------------------------------------------------------------------

    async def job_logs(self, job_id: JobId) -> rest_logs.LogList:
        return await self._get(f"/jobs/{job_id}/logs", rest_logs.LogList)

    async def task_manager_logs(self, task_manager: str) -> rest_logs.LogList:
        """Return the task manager's own logs and those of the processes that ran on it. Raises Absent."""
        return await self._get(f"/taskmanagers/{quote(task_manager, safe='')}/logs", rest_logs.LogList)

    async def job_manager_logs(self) -> rest_logs.LogList:
        return await self._get("/jobmanager/logs", rest_logs.LogList)

    async def read_log(self, job_id: JobId, log_id: str, offset: int, *, wait: float = 0.0) -> LogRead:
        """Read from ``offset`` on. If there is nothing to read yet, wait up to ``wait`` seconds for it."""
        return await self.read_log_at(job_log_path(job_id, log_id), offset, wait=wait)

    async def read_log_at(self, path: str, offset: int, *, wait: float = 0.0) -> LogRead:
        """Like ``read_log``, but for the log of any process."""
        return await self._read_log(path, {"offset": str(offset)}, wait)

    async def read_log_range(self, path: str, byte_range: str) -> LogRead:
        """Return the first piece of a range: "1000-1999", "1000-" or "-1000". Raises InvalidInput."""
        return await self._read_log(path, {"range": byte_range}, 0.0)

    async def search_log(
        self, path: str, selection: dict[str, str | list[str]], offset: int, *, wait: float = 0.0
    ) -> rest_logs.LogRecords:
        """Search a bounded part of a log from ``offset`` on: ``end`` in the reply says how far. Raises InvalidInput.

        ``selection``: query parameters of the resource.
        """
        answer = await self._http.call(
            Request(
                "GET",
                f"{path}/records",
                {**selection, "offset": str(offset), "wait": f"{wait:g}"},
                limits=aiohttp.ClientTimeout(total=wait + REQUEST_TIMEOUT),
            )
        )
        return decode(answer, rest_logs.LogRecords)

    async def merged_logs(
        self, job_id: JobId, selection: dict[str, str | list[str]], after: str
    ) -> rest_logs.MergedLogRecords:
        """Return the records of an attempt's logs that follow the cursor ``after``, by time; "" is the start.

        ``selection``: query parameters of the resource.
        """
        answer = await self._http.call(Request("GET", f"/jobs/{job_id}/merged-logs", {**selection, "after": after}))
        return decode(answer, rest_logs.MergedLogRecords)

    async def _read_log(self, path: str, parameters: dict[str, str], wait: float) -> LogRead:
        answer = await self._http.call(
            Request(
                "GET",
                path,
                {**parameters, "wait": f"{wait:g}"},
                limits=aiohttp.ClientTimeout(total=wait + REQUEST_TIMEOUT),
            )
        )
        offset = int(answer.headers[rest_logs.LOG_OFFSET_HEADER])
        end = offset + len(answer.body)
        complete = answer.headers.get(rest_logs.LOG_COMPLETE_HEADER, "").lower() == "true"
        # A long log arrives in pieces: it is complete only once its end has been read.
        complete = complete and end >= int(answer.headers.get(rest_logs.LOG_SIZE_HEADER, end))
        kept_until = int(answer.headers.get(rest_logs.LOG_KEPT_UNTIL_HEADER, 0))
        return LogRead(answer.body, offset, end, complete, kept_until)

    async def _get(self, path: str, kind: type[T]) -> T:
        return decode(await self._http.call(Request("GET", path)), kind)
