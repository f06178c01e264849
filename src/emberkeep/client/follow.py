"""Follow a job to its end: the driver's output as it is written, across restarts, and the job's state.

The JobManager may be unavailable for a while, which does not affect the job. The follower waits for a bounded time.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import JobId
from emberkeep.client.log_copy import ProblemClock, StreamCopy
from emberkeep.client.rest_client import RestClient
from emberkeep.jobs.model import FailureKind
from emberkeep.protocol.rest_jobs import JobDetailsInfo

POLL = 0.5  # seconds between requests for the job's state
_QUICK_POLL = 0.1  # while the job is expected to change: at its start, and after its output has ended
_QUICK_START = 5.0
_UNREACHABLE_LIMIT = 300.0
_STREAMS = {"driver-stdout": False, "driver-stderr": True}


class FollowerOutput(Protocol):
    """The receiver of a job's output and state. Its methods must not block for long."""

    def output(self, data: bytes, *, error: bool) -> None:
        """Take bytes that the driver wrote to standard output, or to standard error if ``error``.

        May raise BrokenPipeError.
        """

    def progress(self, job: JobDetailsInfo) -> None:
        """Take the job's state. Called each time that the state has been read."""

    def notice(self, text: str) -> None:
        """Show the user one line of information."""


class JobFollower:
    """Follow one job, with its output from attempt ``first_attempt`` on. ``run`` may be called once."""

    def __init__(self, client: RestClient, job_id: JobId, output: FollowerOutput, *, first_attempt: int = 1) -> None:
        self._client = client
        self._job_id = job_id
        self._output = output
        self._job: JobDetailsInfo | None = None
        self._changed = asyncio.Condition()
        self._output_ended = asyncio.Event()
        self._first_attempt = first_attempt
        self._told_attempt = first_attempt - 1  # the newest attempt whose failure was reported

    async def run(self) -> JobDetailsInfo:
        """Return the ended job, once all its output has been passed on.

        Raises Unreachable (no JobManager for 5 minutes), Absent (the JobManager does not know the job),
        BrokenPipeError.
        """
        watching = asyncio.create_task(self._watch(), name="watch-job")
        copying = asyncio.create_task(self._copy_attempts(), name="copy-output")
        try:
            pending = {watching, copying}
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            return watching.result()
        finally:
            for task in (watching, copying):
                task.cancel()
            await asyncio.gather(watching, copying, return_exceptions=True)

    # --- the job's state --------------------------------------------------------------------------------------------

    async def _watch(self) -> JobDetailsInfo:
        started = time.monotonic()
        silence = ProblemClock(_UNREACHABLE_LIMIT)
        while True:
            try:
                job = await self._client.job(self._job_id)
            except RetryLater as error:
                if not silence.is_running:
                    self._output.notice(f"{error.message}; the job continues without the JobManager, trying again")
                if silence.is_over():
                    raise
            else:
                if silence.is_running:
                    self._output.notice("the JobManager is back")
                silence.reset()
                await self._look(job)
                if job.state.is_globally_terminal:
                    return job
            quick = self._output_ended.is_set() or time.monotonic() - started < _QUICK_START
            await asyncio.sleep(_QUICK_POLL if quick else POLL)

    async def _look(self, job: JobDetailsInfo) -> None:
        self._tell_failures(job)
        async with self._changed:
            self._job = job
            self._changed.notify_all()
        self._output.progress(job)

    def _tell_failures(self, job: JobDetailsInfo) -> None:
        """Report why a further attempt is made. How the job ended is left to the caller."""
        for attempt in job.emberkeep.attempts:
            if attempt.attempt <= self._told_attempt or attempt.end_time < 0 or job.state.is_globally_terminal:
                continue
            self._told_attempt = attempt.attempt
            if attempt.failure_kind not in (None, FailureKind.MOVED):
                where = f" on {attempt.taskmanager_id}" if attempt.taskmanager_id else ""
                self._output.notice(f"attempt {attempt.attempt} of the job failed{where}: {attempt.root_cause}")

    def _is_over(self, attempt: int) -> bool:
        """True if ``attempt`` writes nothing more: the job has ended or a later attempt was started."""
        job = self._job
        return job is not None and (job.state.is_globally_terminal or job.emberkeep.attempt > attempt)

    async def _wait_for_attempt(self, attempt: int) -> bool:
        """Wait until ``attempt`` has started. False if the job ended without that attempt."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._has_started(attempt) or self._is_over(attempt))
        return self._has_started(attempt)

    def _has_started(self, attempt: int) -> bool:
        return self._job is not None and self._job.emberkeep.attempt >= attempt

    # --- its output -------------------------------------------------------------------------------------------------

    async def _copy_attempts(self) -> None:
        attempt = self._first_attempt
        while await self._wait_for_attempt(attempt):
            if attempt > self._first_attempt:
                self._output.notice(f"attempt {attempt} of the job starts")
            self._output_ended.clear()
            await self._copy_attempt(attempt)
            self._output_ended.set()
            attempt += 1

    async def _copy_attempt(self, attempt: int) -> None:
        copies = [
            asyncio.create_task(self._copy_stream(attempt, kind, error=error), name=f"copy-{kind}")
            for kind, error in _STREAMS.items()
        ]
        try:
            await asyncio.gather(*copies)
        finally:
            for copy in copies:
                copy.cancel()
            await asyncio.gather(*copies, return_exceptions=True)

    async def _copy_stream(self, attempt: int, kind: str, *, error: bool) -> None:
        copy = StreamCopy(self._client, self._job_id, attempt, kind, lambda: self._is_over(attempt))
        notice = await copy.run(lambda data: self._output.output(data, error=error))
        if notice is not None:
            self._output.notice(notice)
