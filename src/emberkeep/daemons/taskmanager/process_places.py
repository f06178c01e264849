"""Where the files of a task manager's processes are, by key, and how to read what ended drivers have left there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Set as AbstractSet
from pathlib import Path

import structlog

from emberkeep.base.configuration.layout import WorkingDirectory
from emberkeep.base.errors import Fatal, NewerFormat
from emberkeep.base.files.errors import cannot_read
from emberkeep.base.files.hostile import remove_tree
from emberkeep.base.files.log_tail import last_lines
from emberkeep.base.ids import JobId
from emberkeep.base.processes.os_user import OsUser
from emberkeep.daemons.records.driver_spec import OUTCOME_FILE, OUTCOME_KIND, read_outcome
from emberkeep.daemons.records.record_versions import write_versions
from emberkeep.daemons.taskmanager.newer_records import can_be_newer
from emberkeep.daemons.taskmanager.run_as import make_shared
from emberkeep.jobs.model import AttemptOutcome, FailureKind
from emberkeep.taskmanager.ports import DriverKey, ExecutorKey, ProcessKey

log = structlog.get_logger(__name__)


def process_name(key: ProcessKey) -> str:
    """Return a name that is unique among a task manager's processes and safe as a file name."""
    if isinstance(key, ExecutorKey):
        return f"executor-{key.job_id}-{key.attempt}-{key.executor_id}-{key.allocation_id[:8]}"
    return f"driver-{key.job_id}-{key.attempt}"


class ProcessPlaces:
    """The places of processes below one working directory."""

    def __init__(self, root: WorkingDirectory) -> None:
        self._root = root

    def directory(self, key: ProcessKey) -> Path:
        """Return a process's directory. An executor's is deleted at its end, a driver's once the job is forgotten."""
        attempt = self._root.attempt(key.job_id, key.attempt)
        if isinstance(key, ExecutorKey):
            return attempt / "executors" / f"{key.executor_id}-{key.allocation_id[:8]}"
        return attempt / "driver"

    def begin(self, key: ProcessKey, user: OsUser | None) -> None:
        """Make the directories of a process that is to run as ``user``, with its own directory empty. Blocks.

        Nobody else can enter its own directory until it is handed over. For None, nothing is done.

        Raises OSError, Unavailable, Fatal.
        """
        if user is None:
            return
        directory, logs = self.directory(key), self.log_stem(key).parent
        for place in (directory, logs):
            make_shared(place.parent, self._root.root)
        write_versions(self._root.attempt(key.job_id, key.attempt))
        remove_tree(directory)
        directory.mkdir(mode=0o700)
        with contextlib.suppress(FileExistsError):
            logs.mkdir(mode=0o700)
        os.chown(logs, user.uid, user.gid, follow_symlinks=False)

    def log_stem(self, key: ProcessKey) -> Path:
        logs = self._root.attempt_logs(key.job_id, key.attempt)
        return logs / (f"executor-{key.executor_id}" if isinstance(key, ExecutorKey) else "driver")

    def written_outcome(self, key: DriverKey) -> AttemptOutcome | None:
        """Return the outcome that a driver wrote; None if it wrote none or the outcome is damaged or a false claim.

        Raises Unavailable, NewerFormat.
        """
        path = self.directory(key) / OUTCOME_FILE
        try:
            return read_outcome(path)
        except Fatal as error:
            if isinstance(error, NewerFormat) and can_be_newer(self._root, path, OUTCOME_KIND):
                raise
            log.error("a driver's outcome is damaged", job=key.job_id, attempt=key.attempt, reason=str(error))
            return None

    def written_outcomes(self) -> dict[DriverKey, AttemptOutcome]:
        """Return the written outcomes of all drivers that have a directory here.

        Blocks. Raises Unavailable, NewerFormat.
        """
        root = self._root.jobs
        try:
            attempts = [attempt for job in sorted(root.iterdir()) for attempt in sorted(job.iterdir())]
        except FileNotFoundError:
            return {}  # nothing was ever started here
        except OSError as error:
            raise cannot_read(root, error) from error
        found = {}
        for attempt in attempts:
            if attempt.name.isdecimal():
                key = DriverKey(job_id=JobId(attempt.parent.name), attempt=int(attempt.name))
                written = self.written_outcome(key)
                if written is not None:
                    found[key] = written
        return found

    def outcome(self, key: DriverKey, exit_code: int | None, reason: str = "") -> AttemptOutcome:
        """Return the outcome that a driver wrote, or else one derived from its exit code and log.

        ``reason``: why its task manager ended it; "" if it did not. Raises Unavailable, NewerFormat.
        """
        written = self.written_outcome(key)
        if written is not None:
            return written
        if reason:
            message = f"the driver process was ended: {reason}"
        elif exit_code is None:
            message = "the driver process ended without a result while its task manager restarted; its exit code is "
            message += "unknown"
        elif exit_code < 0:
            message = f"the driver process was killed by signal {-exit_code}"
        else:
            message = f"the driver process ended with exit code {exit_code} without a result"
        written_last = last_lines(self.stderr(key))
        ended_itself = exit_code is not None and exit_code > 0
        if ended_itself and written_last:
            message = f"{message}: {written_last.splitlines()[-1].strip()} (see {self.stderr(key)})"
        return AttemptOutcome(
            exit_code=128 - exit_code if exit_code is not None and exit_code < 0 else exit_code or 1,
            kind=FailureKind.LOST,
            message=message,
            traceback=f"The end of its output:\n{written_last}" if written_last else "",
            lasting=ended_itself,
        )

    def stderr(self, key: ProcessKey) -> Path:
        stem = self.log_stem(key)
        return stem.with_name(f"{stem.name}.stderr")

    def clean_up(self, jobs: AbstractSet[JobId], used: AbstractSet[Path]) -> None:
        """Delete the directories of all jobs but ``jobs``, and those of executors that are not in ``used``. Blocks."""
        root = self._root.jobs
        for job in sorted(root.iterdir()) if root.is_dir() else ():
            unused = [job] if job.name not in jobs else set(job.glob("*/executors/*")) - used
            for directory in unused:
                remove_tree(directory)
