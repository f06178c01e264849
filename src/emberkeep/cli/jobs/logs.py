"""``emberkeep logs``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from emberkeep.base.errors import Absent, Fatal, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.cli.jobs.log_options import LogPrinting
from emberkeep.cli.jobs.log_search import FOLLOW_SECONDS, LogPlace, print_records
from emberkeep.cli.messages import say, write_bytes
from emberkeep.cli.tables import OutputFormat, print_data, print_table
from emberkeep.cli.terminal import JobTerminal
from emberkeep.cli.views.patience import asking
from emberkeep.cli.wording import timestamp
from emberkeep.client.calls.logs import job_log_path, job_manager_log_path, task_manager_log_path
from emberkeep.client.follow import JobFollower
from emberkeep.client.rest_client import RestClient
from emberkeep.protocol.encoding.byte_range import parse_byte_range
from emberkeep.protocol.rest_logs import LogInfo, LogList

_MOST_UNREADABLE = 5  # logs that are named


async def show_job_logs(
    client: RestClient, job_id: JobId, printing: LogPrinting, *, attempt: int | None, executor: str | None
) -> None:
    """Print logs of a job's driver, or of one of its executors.

    Raises Absent if that attempt or executor has no logs, RetryLater if they may be on a task manager that does not
    answer, Fatal if none of them can be read.
    """
    job, reading = await client.job(job_id), printing.reading
    is_whole = reading.byte_range is None and not reading.names and not printing.selection
    if reading.follow and executor is None and is_whole:
        newest = max(1, job.emberkeep.attempt)
        first = newest if attempt is None else attempt
        if first > newest and job.state.is_globally_terminal:
            raise Absent(f"the job has ended with attempt {newest}", hint="`emberkeep info` lists its attempts")
        await JobFollower(client, job_id, JobTerminal(quiet=True), first_attempt=first).run()
        return
    found = await client.logs.of_job(job_id)
    _tell_what_is_missing(found)
    if reading.names:
        _tell_what_is_unreadable(found.logs)
        _print_list(found, reading.output, _JOB_LOGS)
        return
    wanted = _choose(found.logs, attempt, executor)
    if not wanted:
        whose = f"executor {executor}" if executor else "the driver"
        which = f"attempt {attempt}" if attempt is not None else "any attempt"
        if found.unreachable or found.problem:
            raise RetryLater(
                f"logs of {whose} of {which} cannot be read now",
                hint="try again when that task manager answers" if found.unreachable else None,
            )
        raise Absent(f"{which} has no log of {whose}", hint="`emberkeep logs --list` shows all logs of a job")
    _tell_what_is_unreadable(wanted)
    if all(log.problem for log in wanted):
        raise Fatal("none of these logs can be read")  # some may be readable later: the reasons were said
    wanted = [log for log in wanted if not log.problem]
    _tell_what_is_kept(wanted)
    if reading.follow:
        await asyncio.gather(*(_print(client, job_log_path(job_id, log.id), log, printing) for log in wanted))
        return
    for log in wanted:
        await _print(client, job_log_path(job_id, log.id), log, printing)


async def show_task_manager_log(client: RestClient, task_manager: str, name: str | None, printing: LogPrinting) -> None:
    """Print a log that a task manager holds: its own newest log, or the log called ``name``. Raises Absent."""
    found = await client.logs.of_task_manager(task_manager)
    log = None if printing.reading.names else _pick(found.logs, "taskmanager", name)
    if log is None:
        _print_list(found, printing.reading.output, _DAEMON_LOGS)
    else:
        await _print(client, task_manager_log_path(task_manager, log.name), log, printing)


async def show_job_manager_log(client: RestClient, name: str | None, printing: LogPrinting) -> None:
    """Print the JobManager's own log, or the log called ``name``. Raises Absent."""
    found = await client.logs.of_job_manager()
    log = None if printing.reading.names else _pick(found.logs, "jobmanager", name)
    if log is None:
        _print_list(found, printing.reading.output, _DAEMON_LOGS)
    else:
        await _print(client, job_manager_log_path(log.name), log, printing)


def _pick(logs: list[LogInfo], kind: str, name: str | None) -> LogInfo | None:
    """Return the log called ``name``; without a name, the current log of the daemon, whose logs are of this ``kind``.

    Return None if the daemon has several current logs. Raises Absent.
    """
    if name is not None:
        for log in logs:
            if log.name == name:
                return log
        raise Absent(f"there is no log {name!r}", hint="`--list` shows all names")
    own = [log for log in logs if log.kind == kind]
    if not own:
        raise Absent(f"this {kind} has written no log", hint="a daemon in the foreground logs to its terminal")
    current = [log for log in own if log.name == f"{kind}.log"] or own
    return current[0] if len(current) == 1 else None


def _choose(logs: list[LogInfo], attempt: int | None, executor: str | None) -> list[LogInfo]:
    """Return both logs of the driver, or of one executor, in one attempt: by default the newest that has logs."""
    prefix = "driver-" if executor is None else "executor-"
    own = [log for log in logs if log.kind.startswith(prefix) and log.executor_id == (executor or "")]
    newest = max((log.attempt for log in own), default=0) if attempt is None else attempt
    return sorted((log for log in own if log.attempt == newest), key=lambda log: log.kind)


def _tell_what_is_missing(found: LogList) -> None:
    """Say which task managers do not answer, and whether logs in the shared storage cannot be read."""
    for task_manager in found.unreachable:
        say(f"task manager {task_manager} does not answer: its logs are missing here")
    if found.problem:
        say(found.problem)


def _tell_what_is_unreadable(logs: list[LogInfo]) -> None:
    unreadable = [log for log in logs if log.problem]
    for log in unreadable[:_MOST_UNREADABLE]:
        say(f"{log.name} cannot be read: {log.problem}")
    if len(unreadable) > _MOST_UNREADABLE:
        say(f"{len(unreadable) - _MOST_UNREADABLE} more logs cannot be read")


def _tell_what_is_kept(logs: list[LogInfo]) -> None:
    """Say from when on lines are missing in the logs of one process, which are read from the shared storage."""
    moments = [log.kept_until for log in logs if log.kept_until]
    if moments:
        say(
            f"task manager {logs[0].taskmanager_id} does not have these logs now, so they are read from the shared "
            f"storage: lines after {timestamp(min(moments))} are not kept"
        )


async def _print(client: RestClient, path: str, log: LogInfo, printing: LogPrinting) -> None:
    """Print a log to standard output, or to standard error if its process wrote it there."""
    if printing.selection:
        await print_records(client, path, printing, may_be_replaced=not log.job_id)
        return
    reading, ask = printing.reading, asking(patiently=printing.reading.follow)
    stream = sys.stderr if log.kind.endswith("stderr") else sys.stdout
    offset, end = 0, None
    place = LogPlace(client, path, may_be_replaced=reading.follow and not log.job_id)
    await place.is_another(ask)
    if reading.byte_range is not None:
        chunk = await ask(partial(client.logs.read_range, path, reading.byte_range))
        write_bytes(stream, chunk.data)
        count = None if reading.follow else parse_byte_range(reading.byte_range).count
        offset, end = chunk.next_offset, None if count is None else chunk.offset + count
        if not chunk.data and not reading.follow:
            return
    while end is None or offset < end:
        if end is None:
            wait = FOLLOW_SECONDS if reading.follow else 0.0
            chunk = await ask(partial(client.logs.read_at, path, offset, wait=wait))
            if chunk.data and await place.is_another(ask):
                again = await ask(partial(client.logs.read_at, path, offset))
                if again.data[: len(chunk.data)] != chunk.data:
                    write_bytes(stream, chunk.data)  # the end of the log that was there before
                offset = 0
                continue
        else:
            chunk = await client.logs.read_range(path, f"{offset}-{end - 1}")
        write_bytes(stream, chunk.data)
        offset = chunk.next_offset
        if chunk.complete or (not reading.follow and not chunk.data):
            return


@dataclass(frozen=True)
class _Columns:
    """The columns of a list of logs. ``wide``: that of the ids, which only the wide table has."""

    names: tuple[str, ...]
    cells: Callable[[LogInfo], tuple[str, ...]]
    wide: str = ""


_JOB_LOGS = _Columns(
    ("ATTEMPT", "KIND", "EXECUTOR", "BYTES", "CHANGED", "TASK MANAGER", "READ FROM"),
    lambda log: (
        str(log.attempt),
        log.kind,
        log.executor_id or "-",
        "-" if log.problem else str(log.size),
        "-" if log.problem else timestamp(log.mtime),
        log.taskmanager_id,
        "unreadable" if log.problem else "storage" if log.kept else "node",
    ),
    "ID",
)
_DAEMON_LOGS = _Columns(
    ("NAME", "KIND", "BYTES", "CHANGED"), lambda log: (log.name, log.kind, str(log.size), timestamp(log.mtime))
)


def _print_list(found: LogList, output: OutputFormat, columns: _Columns) -> None:
    """Print a list of logs: as a table, or as the REST API has it."""
    if output.is_data:
        print_data(found, output)
        return
    shows_more = output is OutputFormat.WIDE and bool(columns.wide)
    names = (*columns.names, columns.wide) if shows_more else columns.names
    rows = [(*columns.cells(log), log.id) if shows_more else columns.cells(log) for log in found.logs]
    print_table(names, rows)
