"""Lists the log files that a process holds, by id.

A task manager's logs are at ``logs/jobs/<job>/<attempt>/<name>``. Ids are made from the files that exist. An id is
looked up in the listing and never joined to a path.

Jobs can write to these directories. Whatever a job leaves there that is not a regular file in its place is not listed,
and does not affect the logs of other jobs.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import msgspec

from emberkeep.base.configuration.layout import WorkingDirectory
from emberkeep.base.errors import Absent
from emberkeep.base.ids import JobId
from emberkeep.kept_logs.model import writer_of
from emberkeep.rest.ports import LogEntry, LogKind

_MOST_FILES = 10_000  # of a directory, which a job may have filled
_ATTEMPT = re.compile(r"[0-9]{1,9}")
_PROCESS_LOG = re.compile(r"[a-z]+\.(log(\.\d+)?|out|err)")

IsLive = Callable[[JobId, int, str], bool]
"""(job, attempt, executor id or "" for the driver) → whether the process that writes it still runs."""


class ProcessLogs:
    """One daemon's own logs: the current file and the rotated ones."""

    def __init__(self, directory: Path, kind: LogKind) -> None:
        self._directory = directory
        self._kind = kind

    def entries(self, job_id: JobId | None) -> list[LogEntry]:
        if job_id is not None:
            return []
        found = [path for path in _listing(self._directory) if _PROCESS_LOG.fullmatch(path.name)]
        entries = (_entry(path.name, self._kind, path, complete=path.suffix[1:].isdigit()) for path in found)
        return [entry for entry in entries if entry is not None]

    def find(self, log_id: str) -> LogEntry:
        """Return the log with this id. Raises Absent."""
        return _find(self.entries(None), log_id)


@dataclass
class JobLogs:
    """Logs of jobs. ``error``: the first one if something could not be looked at: more logs may be there."""

    entries: list[LogEntry] = field(default_factory=list)
    error: OSError | None = None

    @contextlib.contextmanager
    def taking_note(self) -> Iterator[None]:
        """Enclose a look at one place: an OSError is noted, and ends only this look."""
        try:
            yield
        except OSError as error:
            self.error = self.error or error


class TaskManagerLogs:
    """A task manager's own logs and those of the drivers and executors that it started, including ended ones."""

    def __init__(self, working_directory: WorkingDirectory, is_live: IsLive) -> None:
        self._jobs = working_directory.logs / "jobs"
        self._own = ProcessLogs(working_directory.logs, LogKind.TASK_MANAGER)
        self._is_live = is_live

    def entries(self, job_id: JobId | None) -> list[LogEntry]:
        found = self.of_jobs(job_id)
        if found.error is not None:
            raise found.error
        return self._own.entries(job_id) + found.entries

    def of_jobs(self, job_id: JobId | None = None) -> JobLogs:
        """Return the logs of one job, or of all. One directory that cannot be read does not hide the others."""
        found = JobLogs()
        with found.taking_note():
            for job in _listing(self._jobs):
                if job_id in (None, job.name):
                    self._add_job(JobId(job.name), job, found)
        return found

    def find(self, log_id: str) -> LogEntry:
        """Return the log with this id. Look only where it can be: the logs of other jobs are not touched.

        Raises Absent, and OSError if it may be where something cannot be looked at now.
        """
        found = self.of_jobs(JobId(log_id.partition("-")[0]))
        try:
            return _find(found.entries or self._own.entries(None), log_id)
        except Absent:
            if found.error is not None:
                raise found.error from None
            raise

    def _add_job(self, job_id: JobId, directory: Path, found: JobLogs) -> None:
        with found.taking_note():
            attempts = [path for path in _listing(directory) if _ATTEMPT.fullmatch(path.name)]
            for attempt in sorted(attempts, key=lambda path: int(path.name)):
                with found.taking_note():
                    for path in _listing(attempt):
                        with found.taking_note():
                            found.entries += self._job_entry(job_id, int(attempt.name), path)

    def _job_entry(self, job_id: JobId, attempt: int, path: Path) -> Iterator[LogEntry]:
        writer = writer_of(path.name)
        if writer is None:
            return
        ended = not self._is_live(job_id, attempt, writer.executor_id)
        kind, log_id = LogKind(writer.kind), f"{job_id}-{path.parent.name}-{path.name}"
        entry = _entry(log_id, kind, path, complete=ended)
        if entry is not None:
            yield msgspec.structs.replace(entry, job_id=job_id, attempt=attempt, executor_id=writer.executor_id)


def _listing(directory: Path) -> list[Path]:
    """List a directory in order; return nothing if it is a link, is not a directory, is gone, or may not be read.

    Of more than _MOST_FILES, which no process of ours writes, some are missing. Raises OSError for a disk that fails:
    the logs may be there.
    """
    try:
        if directory.is_symlink():
            return []
        with os.scandir(directory) as found:
            return sorted(Path(entry.path) for entry in islice(found, _MOST_FILES))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def _entry(log_id: str, kind: LogKind, path: Path, *, complete: bool) -> LogEntry | None:
    """Describe a log; None if it is not a regular file, is gone, or may not be looked at."""
    try:
        status = path.lstat()
    except (FileNotFoundError, PermissionError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return LogEntry(
        id=log_id,
        kind=kind,
        path=path,
        size=status.st_size,
        mtime_ms=status.st_mtime_ns // 1_000_000,
        complete=complete,
    )


def _find(entries: list[LogEntry], log_id: str) -> LogEntry:
    for entry in entries:
        if entry.id == log_id:
            return entry
    raise Absent(f"no log {log_id!r} exists here")
