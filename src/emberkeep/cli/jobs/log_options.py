"""Options of ``emberkeep logs``: whose logs, and how to print them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from emberkeep.base.errors import InvalidInput
from emberkeep.cli.parameters import CompletedTaskManager, Job, Output
from emberkeep.cli.tables import OutputFormat


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LogReading:
    """Options that say how to print a log."""

    follow: Annotated[bool, Parameter(name=["--follow", "-f"])] = False
    (
        "Print more as it is written, until the log ends.\n"
        "A driver's output without --range is followed across restarts, until the job ends.\n"
        "A search follows one attempt."
    )
    byte_range: Annotated[str | None, Parameter(name="--range", allow_leading_hyphen=True)] = None
    (
        "Print only these bytes of each log, such as 1000-1999 (first and last).\n"
        "1000- prints everything from byte 1000, -1000 the last 1000 bytes."
    )
    names: Annotated[bool, Parameter(name="--list", negative=())] = False
    "List all logs instead of printing one."
    output: Output = OutputFormat.TABLE

    def check(self) -> None:
        """Check the range, which must have no end if the log is followed. Raises InvalidInput."""
        from emberkeep.protocol.encoding.byte_range import parse_byte_range

        if self.output is not OutputFormat.TABLE and not self.names:
            raise InvalidInput(
                "--output is the format of a list: logs are printed as they are",
                field="--output",
                hint="`emberkeep logs --list -o json`",
            )
        if self.byte_range is None:
            return
        wanted = parse_byte_range(self.byte_range)
        if self.follow and wanted.offset >= 0 and wanted.count is not None:
            raise InvalidInput(
                "a range that has an end cannot be followed", field="range", hint=f"--range {wanted.offset}-"
            )


@dataclass(frozen=True)
class LogPrinting:
    """How to print a log, and which of its records: ``selection`` has query parameters; empty for the whole log."""

    reading: LogReading
    selection: dict[str, str | list[str]]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LogChoice:
    """Options that choose a log of a job, of a task manager or of the JobManager."""

    attempt: int | None = None
    "Number of the attempt. Default: the newest with logs."
    executor: str | None = None
    "Id of an executor: print its logs instead of the driver's."
    merged: Annotated[bool, Parameter(negative=())] = False
    (
        "Print the records of the driver and of all executors of the attempt, by time, each with its writer.\n"
        "Only what they write to standard error: lines that a script prints have no time."
    )
    task_manager: Annotated[CompletedTaskManager | None, Parameter(name="--taskmanager")] = None
    "Id of a task manager: print its own log instead of a job's."
    job_manager: Annotated[bool, Parameter(name="--jobmanager", negative=())] = False
    "Print the JobManager's own log instead of a job's."
    name: str | None = None
    "With --taskmanager or --jobmanager: print the log with this name instead."

    def check(self, job: Job | None) -> None:
        """Raise InvalidInput unless the options choose one process, given the ``job`` that the command names."""
        if [job is not None, self.task_manager is not None, self.job_manager].count(True) != 1:
            raise InvalidInput("name a job, --taskmanager or --jobmanager", hint="`emberkeep list` shows the jobs")
        if job is None and (self.attempt is not None or self.executor is not None or self.merged):
            raise InvalidInput("--attempt, --executor and --merged are a job's")
        if self.merged and self.executor is not None:
            raise InvalidInput("--merged is for all executors", hint="leave out --executor, or --merged")
        if job is not None and self.name is not None:
            raise InvalidInput("--name goes with --taskmanager or --jobmanager", hint="--attempt and --executor choose")
