"""Copy what one attempt's driver writes, wherever it runs, until it is certain that nothing follows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime

from emberkeep.base.errors import Absent, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.client.rest_client import RestClient
from emberkeep.protocol.rest_logs import LogInfo

LOG_WAIT = 10.0  # seconds that one request waits for more output
_RETRY_PAUSE = 0.2
_OVER_PATIENCE = 10.0


def _moment(milliseconds: int) -> str:
    """Return Unix milliseconds as local time."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


class ProblemClock:
    """Measure for how long a problem has lasted without interruption."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._since: float | None = None

    def is_over(self) -> bool:
        """Record that the problem exists now; return True if it has lasted for ``limit`` seconds."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        return now - self._since >= self._limit

    def reset(self) -> None:
        """Record that the problem does not exist now."""
        self._since = None

    @property
    def is_running(self) -> bool:
        return self._since is not None


class StreamCopy:
    """Copy one stream ("driver-stdout" or "driver-stderr") of one attempt.

    ``attempt_is_over`` returns true once the attempt writes nothing more.
    """

    def __init__(
        self, client: RestClient, job_id: JobId, attempt: int, kind: str, attempt_is_over: Callable[[], bool]
    ) -> None:
        self._client = client
        self._job_id = job_id
        self._attempt = attempt
        self._kind = kind
        self._attempt_is_over = attempt_is_over

    async def run(self, write: Callable[[bytes], None]) -> str | None:
        """Pass everything to ``write``.

        Return a notice if a part could not be fetched, else None. Raises what ``write`` raises.
        """
        log = await self._find()
        if isinstance(log, str):
            return log
        return None if log is None else await self._read(log, write)

    async def _find(self) -> LogInfo | str | None:
        """Wait for the log and return it, or a notice that it cannot be read.

        Returns None if the attempt has ended and has no log: its driver was never started.
        """
        patience = ProblemClock(_OVER_PATIENCE)
        while True:
            over = self._attempt_is_over()  # asked before the list, so as not to miss a log that appears in between
            problem = "its task manager has ended"
            try:
                found = await self._client.logs.of_job(self._job_id)
            except RetryLater:
                complete = False
            else:
                complete = not found.unreachable and not found.problem
                for log in found.logs:
                    if log.attempt == self._attempt and log.kind == self._kind:
                        if not log.problem:
                            return log
                        complete, problem = False, log.problem
            if over and complete:
                return None
            if over and patience.is_over():
                return f"{self._kind} of attempt {self._attempt} cannot be read: {problem}"
            await asyncio.sleep(_RETRY_PAUSE)

    async def _read(self, log: LogInfo, write: Callable[[bytes], None]) -> str | None:
        offset = 0
        patience = ProblemClock(_OVER_PATIENCE)
        while True:
            over = self._attempt_is_over()
            try:
                chunk = await self._client.logs.read(self._job_id, log.id, offset, wait=1.0 if over else LOG_WAIT)
            except (RetryLater, Absent) as error:
                if over and patience.is_over():
                    return f"the rest of {self._kind} of attempt {self._attempt} cannot be read: {error.message}"
                await asyncio.sleep(_RETRY_PAUSE)
                continue
            offset = chunk.next_offset
            if chunk.data:
                patience.reset()
                write(chunk.data)
            if chunk.complete or (over and not chunk.data and patience.is_over()):
                return self._what_is_missing(log, chunk.kept_until)

    def _what_is_missing(self, log: LogInfo, kept_until: int) -> str | None:
        if not kept_until:
            return None
        return (
            f"the rest of {self._kind} of attempt {self._attempt} is missing: task manager {log.taskmanager_id} does "
            f"not have it now, and lines after {_moment(kept_until)} are not kept"
        )
