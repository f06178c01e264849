"""Print one job as readable text."""

from __future__ import annotations

from collections.abc import Sequence

from emberkeep.base.configuration.option_types import priority_text
from emberkeep.cli.jobs.recovery import print_recovery
from emberkeep.cli.jobs.work_view import print_executors, print_stages, work_text
from emberkeep.cli.messages import print_line
from emberkeep.cli.tables import print_fields, print_table
from emberkeep.cli.wording import (
    alarm_text,
    backlog_text,
    byte_count,
    counted,
    duration,
    executors_registered,
    owner_text,
    procedure_text,
    timestamp,
)
from emberkeep.protocol.rest_checkpoints import CheckpointStatistics
from emberkeep.protocol.rest_jobs import (
    AlarmInfo,
    DynamicAllocationInfo,
    JobDetailsInfo,
    JobExceptions,
    PeriodicSavepointsInfo,
    ProcedureInfo,
    ReclaimInfo,
    ReservedStandbyInfo,
)
from emberkeep.protocol.rest_task_managers import TaskManagerSummary

_SHOWN_EXCEPTIONS = 5
_SHOWN_LINES = 12  # of the newest exception's traceback or log


def _dynamic_allocation(info: DynamicAllocationInfo | None, *, autoscaled: bool) -> str:
    """Return what is wanted; "" if the other of the two decides, or none."""
    if info is None or info.autoscaled is not autoscaled:
        return ""
    most = "without a limit" if info.maximum is None else f"at most {info.maximum}"
    why = f": {info.reason}" if info.reason else ""
    return f"wants {info.wanted} since {timestamp(info.changed)} (at least {info.minimum}, {most}){why}"


def print_job(
    job: JobDetailsInfo,
    exceptions: JobExceptions,
    checkpoints: CheckpointStatistics,
    task_managers: Sequence[TaskManagerSummary],
) -> None:
    """Print everything that is known about a job; leave out empty parts."""
    print_fields([*_wanted(job), *_times(job), *_processes(job), *_outcome(job)])
    _print_flows(job)
    _print_queries(job)
    _print_checkpoints(checkpoints)
    print_stages(job)
    print_executors(job)
    _print_local_state(job, task_managers)
    _print_attempts(job)
    print_recovery(job)
    _print_exceptions(exceptions)


def _wanted(job: JobDetailsInfo) -> list[tuple[str, str]]:
    """Return fields about the job as its owner knows it: what it is, its state, and what was asked of it."""
    own = job.emberkeep
    return [
        ("Job", f"{job.name} ({job.jid})"),
        ("Owner", owner_text(own.owner, own.namespace) if own.owner or own.namespace else ""),
        ("State", job.state.value),
        ("Priority", priority_text(own.priority) if own.priority else ""),
        ("Gang", "all its executors at once, or none" if own.gang else ""),
        ("Waiting for", own.waiting),
        *(("Alarm", _alarm(alarm)) for alarm in own.alarms),
        ("On request", _procedure(own.procedure)),
        ("Savepoints", _periodic(own.periodic_savepoints)),
        ("Upgrade", own.upgrade.text if own.upgrade is not None else ""),
    ]


def _times(job: JobDetailsInfo) -> list[tuple[str, str]]:
    return [
        ("Submitted", timestamp(job.start_time)),
        ("Ended", timestamp(job.end_time) if job.end_time >= 0 else ""),
        ("Duration", duration(job.duration)),
    ]


def _processes(job: JobDetailsInfo) -> list[tuple[str, str]]:
    """Return fields about the newest attempt, its driver and its executors."""
    own = job.emberkeep
    registered = executors_registered(job)
    executors = f"{registered} of {own.executors_wanted} registered" if registered or own.executors_wanted else ""
    return [
        ("Attempt", str(own.attempt) if own.attempt else "none started yet"),
        ("Driver", _driver(job)),
        ("Standby", _standby(own.reserved_standby)),
        ("Executors", executors),
        ("Dynamic allocation", _dynamic_allocation(own.dynamic_allocation, autoscaled=False)),
        ("Autoscaling", _dynamic_allocation(own.dynamic_allocation, autoscaled=True)),
        ("Gives back", _reclaim(own.reclaim)),
    ]


def _outcome(job: JobDetailsInfo) -> list[tuple[str, str]]:
    """Return fields about the work in Spark, and how it has ended."""
    own = job.emberkeep
    tasks = {name.lower(): number for name, number in job.status_counts.items() if number}
    return [
        ("Tasks", ", ".join(f"{number} {name}" for name, number in tasks.items())),
        ("Work", work_text(own.work)),
        ("Spark application", own.app_id),
        ("Exit code", "" if own.exit_code is None else str(own.exit_code)),
        ("Root cause", own.root_cause),
    ]


def _driver(job: JobDetailsInfo) -> str:
    """Return where the driver of the newest attempt runs or last ran; "" if none was started."""
    own = job.emberkeep
    if own.driver is None:
        return ""
    has_ended = bool(own.attempts) and own.attempts[-1].end_time >= 0
    where = "last on " if has_ended else f"pid {own.driver.pid} on " if own.driver.pid else ""
    return f"{where}{own.driver.taskmanager_id}"


def _reclaim(reclaim: ReclaimInfo | None) -> str:
    if reclaim is None:
        return ""
    if not reclaim.ceiling:
        return f"all its slots to others, and waits: {reclaim.reason}"
    return f"slots, and keeps {counted(reclaim.ceiling, 'executor')}: {reclaim.reason}"


def _standby(standby: ReservedStandbyInfo | None) -> str:
    if standby is None:
        return ""
    state = "ready" if standby.ready else f"not ready: {standby.why_not}"
    return f"on {standby.taskmanager_id}, {state}" if standby.taskmanager_id else state


def _alarm(alarm: AlarmInfo) -> str:
    return f"{alarm_text(alarm)} ({alarm.kind.value}, since {timestamp(alarm.since)})"


def _procedure(procedure: ProcedureInfo | None) -> str:
    if procedure is None or procedure.procedure is None:
        return ""
    since = f", {duration(procedure.duration)}" if procedure.duration >= 0 else ""
    name = f"periodic {procedure.procedure.value}" if procedure.periodic else procedure.procedure.value
    return f"{name} (request {procedure.trigger_id}{since}): {procedure_text(procedure)}"


def _periodic(periodic: PeriodicSavepointsInfo | None) -> str:
    """Return the state of the periodic savepoints in words; "" for a job without them."""
    if periodic is None:
        return ""
    facts = [
        f"every {duration(periodic.interval)}" if periodic.interval else "no further periodic ones",
        f"newest {timestamp(periodic.newest)}" if periodic.newest >= 0 else "none made yet",
        f"next due {timestamp(periodic.next)}" if periodic.next >= 0 else "",
        f"{periodic.kept} kept",
        f"{periodic.retiring} being deleted" if periodic.retiring else "",
        periodic.problem,
    ]
    return "; ".join(fact for fact in facts if fact)


def _print_flows(job: JobDetailsInfo) -> None:
    if job.emberkeep.flows:
        print_line("\nFlows")
        print_table(
            ("FLOW", "STATE", "SINCE", "REASON"),
            [
                (flow.name, flow.state, timestamp(flow.since), flow.message if flow.state == "FAILED" else "")
                for flow in job.emberkeep.flows
            ],
        )


def _print_queries(job: JobDetailsInfo) -> None:
    if job.emberkeep.queries:
        print_line("\nStreaming queries")
        print_table(
            ("NAME", "BATCH", "ROWS/S IN", "ROWS/S OUT", "STATE ROWS", "BACKLOG", "WATERMARK", "STATUS"),
            [
                (
                    query.name or query.id,
                    str(query.batch_id) if query.batch_id >= 0 else "-",
                    f"{query.input_rows_per_second:,.0f}",
                    f"{query.processed_rows_per_second:,.0f}",
                    f"{query.state_rows:,}",
                    backlog_text([query]),
                    query.watermark or "-",
                    query.status,
                )
                for query in job.emberkeep.queries
            ],
            ("STATE ROWS", "WATERMARK", "ROWS/S IN"),
        )


def _print_checkpoints(checkpoints: CheckpointStatistics) -> None:
    if checkpoints.history:
        print_line("\nCheckpoints and savepoints, newest first")
        print_table(
            ("QUERY", "BATCH", "COMMITTED", "LOCATION"),
            [
                (
                    "(savepoint)" if entry.is_savepoint else entry.emberkeep.query,
                    "-" if entry.is_savepoint else str(entry.id),
                    timestamp(entry.latest_ack_timestamp),
                    entry.external_path,
                )
                for entry in checkpoints.history
            ],
        )


def _print_local_state(job: JobDetailsInfo, task_managers: Sequence[TaskManagerSummary]) -> None:
    rows = [
        (task_manager.id, str(state.files), byte_count(state.size))
        for task_manager in task_managers
        for state in task_manager.emberkeep.local_state
        if state.jid == job.jid
    ]
    if rows:
        print_line("\nLocal copies of the job's state")
        print_table(("TASK MANAGER", "FILES", "SIZE"), rows)


def _print_attempts(job: JobDetailsInfo) -> None:
    if job.emberkeep.attempts:
        print_line("\nAttempts")
        print_table(
            ("ATTEMPT", "TASK MANAGER", "STARTED", "ENDED", "EXIT CODE", "FAILURE", "CAUSE"),
            [
                (
                    str(attempt.attempt),
                    attempt.taskmanager_id,
                    timestamp(attempt.start_time),
                    timestamp(attempt.end_time),
                    "-" if attempt.exit_code is None else str(attempt.exit_code),
                    "-" if attempt.failure_kind is None else attempt.failure_kind.value,
                    attempt.root_cause,
                )
                for attempt in job.emberkeep.attempts
            ],
            ("EXIT CODE", "ENDED"),
        )


def _print_exceptions(exceptions: JobExceptions) -> None:
    entries = exceptions.exception_history.entries
    if entries:
        print_line("\nWhat went wrong, newest first")
        for entry in entries[:_SHOWN_EXCEPTIONS]:
            where = f" on {entry.task_manager_id}" if entry.task_manager_id else ""
            print_line(f"  {timestamp(entry.timestamp)}{where}  {entry.exception_name}: {entry.message}")
            if entry is entries[0] and entry.stacktrace != entry.message:
                for line in _shortened(entry.stacktrace.rstrip().splitlines()):
                    print_line(f"    {line}")
        if len(entries) > _SHOWN_EXCEPTIONS:
            print_line(f"  … {len(entries) - _SHOWN_EXCEPTIONS} older; `-o json` shows all")


def _shortened(lines: list[str]) -> list[str]:
    """Leave lines in the middle out: the first one says what the text is, and the last ones say most."""
    return lines if len(lines) <= _SHOWN_LINES else [lines[0], "…", *lines[2 - _SHOWN_LINES :]]
