"""Print what Spark does for a job: its work in numbers, stages and executors."""

from __future__ import annotations

from emberkeep.cli.messages import print_line
from emberkeep.cli.tables import print_table
from emberkeep.cli.wording import byte_count, duration
from emberkeep.protocol.progress.rest_work import StageInfo, WorkInfo
from emberkeep.protocol.rest_jobs import ExecutorInfo, JobDetailsInfo


def work_text(work: WorkInfo | None) -> str:
    """Return what the current attempt's tasks have cost; "" before any has ended."""
    if work is None or not work.task_time:
        return ""
    parts = [f"{duration(work.task_time)} of task time, {_share(work.gc_time, work.task_time)} in garbage collection"]
    if work.shuffle_read or work.shuffle_write:
        parts.append(f"shuffles: {byte_count(work.shuffle_write)} written, {byte_count(work.shuffle_read)} read")
    if work.disk_bytes_spilled:
        parts.append(f"{byte_count(work.disk_bytes_spilled)} spilled to disks")
    return "; ".join(parts)


def print_stages(job: JobDetailsInfo) -> None:
    """Print the active stages, and the newest of those that have ended."""
    work = job.emberkeep.work
    if work is None or not work.stages:
        return
    active = f"{work.stages_active} active, {work.stages_completed} done"
    left = "" if work.time_left is None or job.emberkeep.queries else f"; about {duration(work.time_left)} left"
    print_line(f"\nStages: {active}{left}")
    print_table(
        ("STAGE", "STATE", "TASKS", "RUNNING", "FAILED", "MEDIAN", "SLOWEST", "SKEW", "SPILLED", "LEFT", "NAME"),
        [_stage_row(stage) for stage in work.stages],
        ("SPILLED", "MEDIAN", "RUNNING", "SLOWEST", "LEFT"),
        wraps=False,
    )


def _stage_row(stage: StageInfo) -> tuple[str, ...]:
    return (
        f"{stage.stage_id}.{stage.stage_attempt}" if stage.stage_attempt else str(stage.stage_id),
        stage.status,
        f"{stage.finished} of {stage.tasks}",
        str(stage.running),
        str(stage.failed),
        duration(stage.median_duration) if stage.median_duration else "-",
        duration(stage.longest_duration) if stage.longest_duration else "-",
        "-" if stage.skew is None else f"{stage.skew:.1f} x",
        byte_count(stage.disk_bytes_spilled) if stage.disk_bytes_spilled else "-",
        _left(stage),
        f"{stage.name} ({stage.operations})" if stage.operations else stage.name,
    )


def _left(stage: StageInfo) -> str:
    """Return about how long the stage still takes, or why nobody can say."""
    if stage.overdue:
        return f"unknown: a task has run for {duration(stage.longest_running)}"
    return "-" if stage.time_left is None else duration(stage.time_left)


def print_executors(job: JobDetailsInfo) -> None:
    """Print the executors of the current attempt, if it has any."""
    if job.emberkeep.executors:
        print_line("\nExecutors")
        print_table(
            ("ID", "TASK MANAGER", "STATE", "REGISTERED", "CORES", "HEAP", "GC", "PID", "START"),
            [
                (
                    executor.id,
                    executor.taskmanager_id,
                    _executor_state(executor),
                    "yes" if executor.registered else "no",
                    str(executor.cores),
                    f"{executor.heap_mb} MiB",
                    _gc_share(executor),
                    str(executor.pid or "-"),
                    _start(executor),
                )
                for executor in job.emberkeep.executors
            ],
            ("CORES", "PID", "HEAP", "GC", "REGISTERED"),
        )


def _gc_share(executor: ExecutorInfo) -> str:
    """Return the share of its tasks' time that the executor has spent in garbage collection."""
    if not executor.task_time or executor.gc_time is None:
        return "-"
    return _share(executor.gc_time, executor.task_time)


def _share(part: int, whole: int) -> str:
    return f"{min(100.0, 100 * part / whole):.1f} %"


def _start(executor: ExecutorInfo) -> str:
    """Return how the executor got its process, with the reason if it is cold."""
    if executor.start is None:
        return "-"
    return f"{executor.start.value}: {executor.why_cold}" if executor.why_cold else executor.start.value


def _executor_state(executor: ExecutorInfo) -> str:
    state = f"{executor.state.value}, task manager away" if executor.away else executor.state.value
    departure = executor.departure
    if executor.dismissed:
        return f"{state}, leaving: Spark needs fewer"
    if departure is None and executor.outgoing:
        why = "its disk is full" if executor.lacks_space else "its node is blocked"
        return f"{state}, {'takes no new task' if executor.cordoned else 'will be replaced'}: {why}"
    if departure is None:
        return state
    return f"{state}, leaving" if departure.begun else f"{state}, leaves when its replacement runs"
