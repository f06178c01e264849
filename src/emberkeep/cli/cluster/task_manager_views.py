"""Task managers as rows of a table, and one task manager as readable text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from emberkeep.cli.messages import print_line
from emberkeep.cli.tables import print_fields, print_table
from emberkeep.cli.wording import SHORT_ID, byte_count, counted, memory, timestamp
from emberkeep.protocol.rest_task_managers import (
    Resources,
    StandbyCounters,
    TaskManagerDetails,
    TaskManagerExtension,
    TaskManagerSummary,
)

_COLUMNS = (
    "ID",
    "STATE",
    "NODE",
    "SLOTS FREE",
    "DRIVERS",
    "MEMORY FREE",
    "STANDBYS READY",
    "PYTHON",
    "SPARK",
    "LAST HEARTBEAT",
)
_MORE_COLUMNS = ("ADDRESS", "PID", "STARTED", "EMBERKEEP", "JAVA", "CPU", "MEMORY USED", "DISK FREE", "INSTANCE")


# What a list of task managers leaves out first on a narrow terminal.
LESS_OF_TASK_MANAGERS: Final = ("STANDBYS READY", "PYTHON", "SPARK", "LAST HEARTBEAT", "DRIVERS", "NODE")


def task_manager_table(
    task_managers: Sequence[TaskManagerSummary], *, is_wide: bool = False
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return columns and rows of a list of task managers."""
    if not is_wide:
        return _COLUMNS, [_row(each) for each in task_managers]
    return (*_COLUMNS, *_MORE_COLUMNS), [(*_row(each), *_more(each)) for each in task_managers]


def _row(task_manager: TaskManagerSummary) -> tuple[str, ...]:
    """Return the task manager's row in ``emberkeep taskmanagers``."""
    own = task_manager.emberkeep
    free, total = task_manager.free_resource.task_heap_memory, task_manager.total_resource.task_heap_memory
    return (
        task_manager.id,
        own.state.value,
        own.node_id,
        f"{task_manager.free_slots} of {task_manager.slots_number}{_kept(own)}",
        f"{own.driver_places_total - own.driver_places_available} of {own.driver_places_total}",
        f"{memory(free)} of {memory(total)}",
        _standbys(own.standbys),
        own.python,
        own.spark,
        timestamp(task_manager.time_since_last_heartbeat),
    )


def _more(task_manager: TaskManagerSummary) -> tuple[str, ...]:
    own = task_manager.emberkeep
    return (
        task_manager.path,
        str(own.pid),
        timestamp(own.started),
        own.version,
        str(own.java),
        f"{own.cpu_percent:.0f} %",
        memory(own.memory_used_mb),
        memory(own.disk_free_mb),
        own.instance,
    )


def _kept(own: TaskManagerExtension) -> str:
    """Return how many slots are kept for jobs that restart, as a suffix; "" if none is."""
    count = sum(kept.slots for kept in own.slots_kept)
    return f", {count} kept" if count else ""


def _kept_for(own: TaskManagerExtension) -> str:
    """Return for which restarting jobs slots are kept, as a suffix; "" if none is."""
    return "".join(f", {kept.slots} kept for job {kept.jid[:SHORT_ID]}, which restarts" for kept in own.slots_kept)


def _release(own: TaskManagerExtension) -> str:
    return f"Emberkeep {own.version}, " if own.version else ""


def _standbys(standbys: StandbyCounters | None) -> str:
    """Return which standby processes are ready; "" if the task manager keeps none."""
    if standbys is None:
        return ""
    return (
        f"{standbys.drivers} of {counted(standbys.drivers_kept, 'driver')}, "
        f"{standbys.executors} of {counted(standbys.executors_kept, 'executor')}"
    )


def _custom(total: Resources, free: Resources) -> list[tuple[str, str]]:
    """Return a field for each custom resource, such as GPUs."""
    return [
        (name, f"{amount:g}, {free.extended_resources.get(name, 0):g} free")
        for name, amount in total.extended_resources.items()
    ]


def print_task_manager(details: TaskManagerDetails) -> None:
    """Print one task manager as readable text."""
    own = details.emberkeep
    free, total = details.free_resource, details.total_resource
    print_fields(
        [
            ("Task manager", f"{details.id} (instance {own.instance[:SHORT_ID]})"),
            ("State", own.state.value),
            ("Address", details.path),
            ("Node", own.node_id),
            ("Process", f"pid {own.pid}, since {timestamp(own.started)}"),
            ("Last heartbeat", timestamp(details.time_since_last_heartbeat)),
            ("Slots", f"{details.slots_number}, {details.free_slots} free{_kept_for(own)}"),
            ("Driver places", f"{own.driver_places_total}, {own.driver_places_available} free"),
            ("Standbys", _standbys(own.standbys)),
            ("Cores", f"{total.cpu_cores:g}, {free.cpu_cores:g} free"),
            ("Memory", f"{memory(total.task_heap_memory)}, {memory(free.task_heap_memory)} free"),
            *_custom(total, free),
            ("Control groups", own.cgroups),
            ("Disk free", memory(own.disk_free_mb)),
            ("Taken over", f"{own.adopted} processes of the previous instance" if own.adopted else ""),
            ("Versions", f"{_release(own)}Python {own.python}, Spark {own.spark}, Java {own.java}"),
        ]
    )
    if details.allocated_slots:
        print_line("\nSlots given away")
        print_table(
            ("SLOT", "JOB", "ATTEMPT", "CORES", "MEMORY", "RESOURCES"),
            [
                (
                    str(slot.index),
                    slot.job_id[:SHORT_ID],
                    str(slot.attempt),
                    f"{slot.resource.cpu_cores:g}",
                    memory(slot.resource.task_heap_memory),
                    "; ".join(f"{name} {', '.join(held)}" for name, held in slot.addresses.items()),
                )
                for slot in details.allocated_slots
            ],
        )
    if own.local_state:
        print_line("\nLocal state")
        print_table(
            ("JOB", "FILES", "SIZE"),
            [(state.jid[:SHORT_ID], str(state.files), byte_count(state.size)) for state in own.local_state],
        )
    if own.drivers:
        print_line("\nDrivers")
        print_table(
            ("JOB", "ATTEMPT", "STATE", "PID", "MEMORY"),
            [(d.jid[:SHORT_ID], str(d.attempt), d.state.value, str(d.pid), memory(d.memory_mb)) for d in own.drivers],
        )
