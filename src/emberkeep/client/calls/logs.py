"""REST API calls for logs, and the paths of logs in the API."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

import aiohttp

from emberkeep.base.ids import JobId
from emberkeep.client.http_calls import REQUEST_TIMEOUT, HttpCalls, Request, decode
from emberkeep.protocol import rest_logs


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


def job_log_path(job_id: JobId, log_id: str) -> str:
    """Return the path of a job's log in the API, by the log's ``id`` in the list."""
    return f"/jobs/{job_id}/logs/{quote(log_id, safe='')}"


def task_manager_log_path(task_manager: str, name: str) -> str:
    """Return the path of a task manager's log in the API, by the log's ``name`` in the list."""
    return f"/taskmanagers/{quote(task_manager, safe='')}/logs/{quote(name, safe='')}"


def job_manager_log_path(name: str) -> str:
    """Return the path of one of the JobManager's own logs in the API."""
    return f"/jobmanager/logs/{quote(name, safe='')}"


class LogCalls:
    """A RestClient's calls for logs. They raise what RestClient raises."""

    def __init__(self, http: HttpCalls) -> None:
        self._http = http

    async def of_job(self, job_id: JobId) -> rest_logs.LogList:
        return await self._list(f"/jobs/{job_id}/logs")

    async def of_task_manager(self, task_manager: str) -> rest_logs.LogList:
        """Return the task manager's own logs and those of the processes that ran on it. Raises Absent."""
        return await self._list(f"/taskmanagers/{quote(task_manager, safe='')}/logs")

    async def of_job_manager(self) -> rest_logs.LogList:
        return await self._list("/jobmanager/logs")

    async def read(self, job_id: JobId, log_id: str, offset: int, *, wait: float = 0.0) -> LogRead:
        """Read from ``offset`` on. If there is nothing to read yet, wait up to ``wait`` seconds for it."""
        return await self.read_at(job_log_path(job_id, log_id), offset, wait=wait)

    async def read_at(self, path: str, offset: int, *, wait: float = 0.0) -> LogRead:
        """Like ``read``, but for the log of any process."""
        return await self._read(path, {"offset": str(offset)}, wait)

    async def read_range(self, path: str, byte_range: str) -> LogRead:
        """Return the first piece of a range: "1000-1999", "1000-" or "-1000". Raises InvalidInput."""
        return await self._read(path, {"range": byte_range}, 0.0)

    async def search(
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

    async def merged(
        self, job_id: JobId, selection: dict[str, str | list[str]], after: str
    ) -> rest_logs.MergedLogRecords:
        """Return the records of an attempt's logs that follow the cursor ``after``, by time; "" is the start.

        ``selection``: query parameters of the resource.
        """
        answer = await self._http.call(Request("GET", f"/jobs/{job_id}/merged-logs", {**selection, "after": after}))
        return decode(answer, rest_logs.MergedLogRecords)

    async def _read(self, path: str, parameters: dict[str, str], wait: float) -> LogRead:
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

    async def _list(self, path: str) -> rest_logs.LogList:
        return decode(await self._http.call(Request("GET", path)), rest_logs.LogList)
