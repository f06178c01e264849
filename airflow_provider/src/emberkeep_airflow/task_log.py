"""A job's output as lines of a task's log."""

from __future__ import annotations

from typing import Protocol

from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.rest_jobs import JobDetailsInfo

LONGEST_LOG = 32 * 1024**2  # bytes of a job's output in a task's log
_LONGEST_LINE = 16 * 1024  # bytes; a longer line is split


class LineLog(Protocol):
    """The logger of a task."""

    def info(self, event: str, *arguments: object) -> object: ...


class TaskLog:
    """Implements FollowerOutput and UploadProgress: writes lines to a task's log, at most ``limit`` bytes of output.

    A line of the driver appears once it is complete; ``close`` writes what was not.
    """

    def __init__(self, log: LineLog, page: str, *, limit: int = LONGEST_LOG) -> None:
        """``page``: where the whole log can be read."""
        self._log = log
        self._page = page
        self._left = limit
        self._begun = {False: b"", True: b""}  # by stream: the line that is not complete
        self._told = ""

    def output(self, data: bytes, *, error: bool) -> None:
        *lines, rest = (self._begun[error] + data).split(b"\n")
        *split, self._begun[error] = _pieces(rest)
        for line in (*(piece for whole in lines for piece in _pieces(whole)), *split):
            self._line(line)

    def progress(self, job: JobDetailsInfo) -> None:
        """Write the job's state if it has changed, or what the job waits for."""
        told = job.state.value
        if job.emberkeep.waiting and job.state in (JobStatus.CREATED, JobStatus.RESTARTING):
            told = f"{told}: waiting for {job.emberkeep.waiting}"
        if told != self._told:
            self._told = told
            self._log.info("job %s is %s", job.jid, told)

    def notice(self, text: str) -> None:
        self._log.info("%s", text)

    def close(self) -> None:
        """Write the begun lines."""
        for error, line in self._begun.items():
            if line:
                self._begun[error] = b""
                self._line(line)

    def begin(self, files: int, size: int) -> None:
        if files:
            self._log.info("uploading %d files, %d bytes", files, size)

    def file(self, name: str) -> None:
        """Files are not listed."""

    def sent(self, count: int) -> None:
        """Bytes are not counted."""

    def end(self) -> None:
        """The job's acceptance follows."""

    def _line(self, line: bytes) -> None:
        if self._left <= 0:
            return
        self._left -= len(line) + 1
        self._log.info("%s", line.decode(errors="replace").rstrip("\r"))
        if self._left <= 0:
            self._log.info("the job has written more than this log takes; the rest is at %s", f"{self._page}/logs")


def _pieces(line: bytes) -> list[bytes]:
    """Return the parts of a line that are lines of the task's log. An empty line is one of them."""
    return [line[start : start + _LONGEST_LINE] for start in range(0, len(line), _LONGEST_LINE)] or [b""]
