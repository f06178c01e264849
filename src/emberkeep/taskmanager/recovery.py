"""Takes over what the previous task manager process in the same working directory left: its table and processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from emberkeep.base.ids import InstanceId
from emberkeep.jobs.model import AttemptOutcome, FailureKind
from emberkeep.slots.table import events as ev
from emberkeep.slots.table.driver_places import DriverState
from emberkeep.slots.table.slot import SlotState
from emberkeep.slots.table.state import TableState
from emberkeep.taskmanager.kept_table import KeptTable
from emberkeep.taskmanager.ports import AllocationListener, DriverKey, ExecutorKey, Launcher, ProcessKey

log = structlog.get_logger(__name__)

NO_ROOM = "the task manager has fewer slots or driver places than before its restart"
GONE = "ended, or was not started yet, while its task manager was away"


@dataclass(frozen=True)
class Recovered:
    """What was taken over. ``adopted``: number of live processes.

    ``predecessor``, ``unconfirmed``: see TaskManagerInfo; without a record they are None and empty.
    """

    predecessor: InstanceId | None
    unconfirmed: tuple[InstanceId, ...]
    adopted: int


async def recover(kept: KeptTable, launcher: Launcher, listeners: Sequence[AllocationListener]) -> Recovered:
    """Restore the slot table from its record, adopt the recorded processes, and decide on those that have ended.

    Call this before anything is served. Raises Unavailable if what the previous task manager process left cannot be
    read now, NewerFormat if only a newer release can read it; in both cases drivers and executors continue to run.
    """
    earlier = await kept.journal.read()
    if earlier is not None:
        kept.restore(earlier)
    processes, ended = recorded_processes(kept.table.state), ended_drivers(kept.table.state)
    adopted = await launcher.adopt(
        frozenset(processes), ended - kept.outcomes.keys(), None if earlier is None else kept.table.state.holding()
    )
    if earlier is None:
        ended = frozenset(adopted.outcomes)
        for key in ended:
            kept.recall_ended(key)
    table = kept.table.state
    if processes or table.slots:
        log.info("recovered", slots=len(table.slots), processes=len(processes), alive=len(adopted.alive))
    for slot in table.slots.values():
        for listener in listeners:
            listener.allocation_recovered(slot.allocation)
    for key in ended:
        kept.outcomes.setdefault(key, adopted.outcomes.get(key) or lost_outcome(NO_ROOM))
    for process in processes:
        _found(kept, process, adopted.alive.get(process), adopted.outcomes)
    kept.keep()
    alive = len(adopted.alive)
    return Recovered(None, (), alive) if earlier is None else Recovered(earlier.instance, earlier.unconfirmed, alive)


def _found(kept: KeptTable, key: ProcessKey, pid: int | None, outcomes: Mapping[DriverKey, AttemptOutcome]) -> None:
    """Update the table for a recorded process. ``pid`` is None if the process is no longer alive."""
    if isinstance(key, ExecutorKey):
        kept.decide(
            ev.ExecutorStarted(key.allocation_id, key.executor_id, pid)
            if pid is not None
            else ev.ExecutorEnded(key.allocation_id, key.executor_id, None, GONE)
        )
    elif pid is not None:
        kept.decide(ev.DriverStarted(key.job_id, key.attempt, pid))
    else:
        kept.end_driver(key, outcomes.get(key) or lost_outcome(f"the driver {GONE}"))


def recorded_processes(table: TableState) -> list[ProcessKey]:
    """Return the processes that were started or about to be started.

    Executors come first, because the end of a driver frees all slots of its attempt.
    """
    executors = [
        ExecutorKey(
            job_id=slot.allocation.job_id,
            attempt=slot.allocation.attempt,
            allocation_id=slot.allocation.id,
            executor_id=slot.executor_id,
        )
        for slot in table.slots.values()
        if slot.executor_id is not None and slot.state is not SlotState.EXITED
    ]
    return [*executors, *(DriverKey(job_id=driver.job_id, attempt=driver.attempt) for driver in table.drivers.living())]


def ended_drivers(table: TableState) -> frozenset[DriverKey]:
    """Return the drivers whose end the JobManager has not acknowledged."""
    return frozenset(
        DriverKey(job_id=driver.job_id, attempt=driver.attempt)
        for driver in table.drivers.by_attempt.values()
        if driver.state is DriverState.EXITED
    )


def lost_outcome(message: str, exit_code: int | None = None) -> AttemptOutcome:
    """Return the outcome of a driver that wrote none. ``exit_code`` None: unknown."""
    return AttemptOutcome(exit_code=1 if exit_code is None else exit_code, kind=FailureKind.LOST, message=message)
