"""Times, counts and job states as text. Pure functions."""

from __future__ import annotations

import datetime
import shlex
from collections.abc import Sequence
from typing import Final

from emberkeep.jobs.progress.outstanding import Outstanding, together
from emberkeep.lifecycle.model import ProcedurePhase
from emberkeep.protocol.rest_jobs import (
    AlarmInfo,
    JobDetails,
    JobDetailsInfo,
    ProcedureInfo,
    StreamingQuery,
)

SHORT_ID = 8  # hex digits of a job id that are shown; unique among a few thousand jobs


def shown_id(job_id: str, is_wide: bool) -> str:
    """Return as much of a job's id as a table shows."""
    return job_id if is_wide else job_id[:SHORT_ID]


def timestamp(milliseconds: int) -> str:
    """Return Unix milliseconds as local time, "2026-01-31 12:00:00"; "-" if negative."""
    if milliseconds < 0:
        return "-"
    moment = datetime.datetime.fromtimestamp(milliseconds / 1000, tz=datetime.UTC).astimezone()
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def until(milliseconds: int) -> str:
    """Return "until 2026-01-31 12:00:00"; "until it is unblocked" for a time that is never reached."""
    latest = 253_402_214_400_000  # 9999-12-31, the last day that datetime can represent
    return "until it is unblocked" if milliseconds >= latest else f"until {timestamp(milliseconds)}"


def duration(milliseconds: int) -> str:
    """Return a duration as "0.4s", "12s", "3m 05s", "2h 07m" or "4d 03h"; "-" if negative."""
    if milliseconds < 0:
        return "-"
    seconds = milliseconds / 1000
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    for size, unit, below, below_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            return f"{whole // size}{unit} {whole % size // below:02d}{below_unit}"
    return f"{whole}s"


def memory(mebibytes: float) -> str:
    """Return an amount of memory as "512 MiB" or "3.5 GiB"."""
    return f"{mebibytes:.0f} MiB" if mebibytes < 1024 else f"{mebibytes / 1024:.1f} GiB"


RESTORE_NEEDS_MORE = "the cluster does not tell the job's options and arguments: the command needs them, too"
"""Said of a ``restore_line`` without the JobManager's command."""


def restore_line(path: str, command: str = "") -> str:
    """Return the command that starts a job from a savepoint. ``command``: the JobManager's; "" if it does not know."""
    return command or f"emberkeep savepoint restore {shlex.quote(path)} app.py"


def byte_count(number: int) -> str:
    """Return a number of bytes as "17 B", "3.5 KiB" or "12 MiB"."""
    amount = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if amount >= 10 or unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def counted(number: int, noun: str) -> str:
    """Return "1 job", "2 jobs"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def executors_registered(job: JobDetailsInfo) -> int:
    return sum(executor.registered for executor in job.emberkeep.executors)


def query_text(query: StreamingQuery) -> str:
    """Return the progress of a query as "counts: batch 17, 1,234 rows/s"."""
    name = query.name or query.id[:SHORT_ID]
    if query.batch_id < 0:
        return f"{name}: no batch yet"
    return f"{name}: batch {query.batch_id}, {query.processed_rows_per_second:,.0f} rows/s"


def alarm_text(alarm: AlarmInfo) -> str:
    """Return what an alarm of the watchdog says, with its query."""
    return f"query {alarm.query}: {alarm.message}" if alarm.query else alarm.message


def backlog_text(queries: Sequence[StreamingQuery]) -> str:
    """Return the rows that the queries have not read, and how long they take; "-" if no source says what is left.

    What sources count in files, bytes or time follows. The queries of a job work side by side, so the slowest one
    decides how long it takes.
    """
    left = together(map(_outstanding, queries))
    others = (
        "" if left.files is None else counted(left.files, "file"),
        "" if left.size is None else byte_count(left.size),
        "" if left.behind_ms is None else f"{duration(left.behind_ms)} behind",
        f"{counted(left.unknown, 'source')} unknown" if left.unknown else "",
    )
    told = [each for each in others if each]
    if left.rows is not None:
        times = [query.backlog_seconds for query in queries if query.backlog_seconds is not None]
        takes = f" ({duration(round(1000 * max(times)))})" if left.rows and times else ""
        told.insert(0, f"{left.rows:,}{' rows' if told else ''}{takes}")
    return ", ".join(told) or "-"


def _outstanding(query: StreamingQuery) -> Outstanding:
    told = query.backlog
    if told is None:
        return Outstanding(rows=query.backlog_rows)  # all that a JobManager of an earlier release tells
    return Outstanding(
        rows=told.rows,
        files=told.files,
        size=told.bytes,
        behind_ms=told.time_behind,
        unknown=told.unknown_sources,
    )


def status_text(job: JobDetailsInfo, *, with_rates: bool, with_waiting: bool = True) -> str:
    """Return the state of a job as one line.

    ``with_rates``: include what changes all the time (tasks, batches, rows). ``with_waiting``: include what the job
    waits for.
    """
    parts = [job.state.value]
    extension = job.emberkeep
    if extension.attempt > 1:
        parts.append(f"attempt {extension.attempt}")
    if not job.state.is_globally_terminal:
        executors = executors_text(executors_registered(job), extension.executors_wanted)
        # Dynamic allocation changes the number all the time.
        if executors and (with_rates or extension.dynamic_allocation is None):
            parts.append(f"executors {executors}")
        if with_rates:
            running, finished = job.status_counts.get("RUNNING", 0), job.status_counts.get("FINISHED", 0)
            if running or finished:
                parts.append(f"tasks {running} running, {finished} done")
            parts += [query_text(query) for query in extension.queries]
        if extension.procedure is not None and extension.procedure.procedure is not None:
            parts.append(f"{extension.procedure.procedure.value.lower()}: {procedure_text(extension.procedure)}")
        if extension.waiting and with_waiting:
            parts.append(f"waiting: {extension.waiting}")
    return " · ".join(parts)


def executors_text(registered: int, wanted: int) -> str:
    """Return how many executors of those that the job wants are registered; "" if there are none of either."""
    return f"{registered}/{wanted}" if registered or wanted else ""


def procedure_text(procedure: ProcedureInfo) -> str:
    """Return the progress of a savepoint or stop as one line."""
    phase = procedure.phase
    if phase is None:
        return f"waiting for {procedure.waiting}" if procedure.waiting else "waiting for the job's driver"
    if phase is ProcedurePhase.COPYING and procedure.files_total:
        done, size = procedure.files_done, byte_count(procedure.bytes_done)
        return f"copying {done} of {counted(procedure.files_total, 'file')}, {size}"
    if phase is ProcedurePhase.COMPLETED and procedure.waiting:
        return f"the savepoint {procedure.location} is complete; waiting for {procedure.waiting}"
    return procedure.detail or _PHASES[phase]


_PHASES = {
    ProcedurePhase.FINISHING_BATCHES: "finishing the running batches",
    ProcedurePhase.DRAINING: "draining: writing out everything that waits for later events",
    ProcedurePhase.COPYING: "copying the state",
    ProcedurePhase.COMPLETED: "complete",
    ProcedurePhase.FAILED: "failed",
}


def _job_row(job: JobDetails, is_wide: bool) -> tuple[str, ...]:
    """Return a job's row without its owner."""
    own = job.emberkeep
    executors = executors_text(own.executors, own.executors_wanted) or "-"
    end = (timestamp(job.end_time), "-" if own.exit_code is None else str(own.exit_code)) if is_wide else ()
    return (
        shown_id(job.jid, is_wide),
        job.name,
        job.state.value,
        timestamp(job.start_time),
        *end,
        duration(job.duration),
        str(own.attempt),
        executors,
        own.waiting,
    )


_JOB_COLUMNS = ("JOB ID", "NAME", "STATE", "SUBMITTED")
_END_COLUMNS = ("ENDED", "EXIT CODE")
_MORE_JOB_COLUMNS = ("DURATION", "ATTEMPT", "EXECUTORS", "WAITING FOR")


# What a list of jobs leaves out first on a narrow terminal.
LESS_OF_JOBS: Final = ("SUBMITTED", "ATTEMPT", "DURATION", "EXECUTORS")


def job_table(jobs: Sequence[JobDetails], *, is_wide: bool = False) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return columns and rows of a list of jobs. Owners and alarms are shown if a job has one, or if ``is_wide``."""
    rows = [_job_row(job, is_wide) for job in jobs]
    columns: tuple[str, ...] = (*_JOB_COLUMNS, *(_END_COLUMNS if is_wide else ()), *_MORE_JOB_COLUMNS)
    if is_wide or any(job.emberkeep.alarms for job in jobs):
        columns = (*columns, "ALARM")
        rows = [(*row, "; ".join(map(alarm_text, job.emberkeep.alarms))) for row, job in zip(rows, jobs, strict=True)]
    if not is_wide and not any(job.emberkeep.owner or job.emberkeep.namespace for job in jobs):
        return columns, rows
    owners = [owner_text(job.emberkeep.owner, job.emberkeep.namespace) for job in jobs]
    columns = (*columns[:2], "OWNER", *columns[2:])
    return columns, [(*row[:2], owner, *row[2:]) for row, owner in zip(rows, owners, strict=True)]


def owner_text(owner: str, namespace: str) -> str:
    """Return "namespace/owner"; "-" stands for the cluster's own token."""
    name = owner or "-"
    return f"{namespace}/{name}" if namespace else name
