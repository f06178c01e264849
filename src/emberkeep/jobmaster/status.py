"""The status of an attempt, as its JobMaster reports it to the JobManager."""

from __future__ import annotations

from collections.abc import Iterable

from emberkeep.blocklist.follower import BlocklistFollower
from emberkeep.jobmaster.ports import Application, BlocksLeft, SparkView
from emberkeep.jobs.checkpoints import QueryCheckpoint
from emberkeep.jobs.model import ExceptionEntry
from emberkeep.lifecycle.model import ProcedureProgress
from emberkeep.protocol.messages import Departure, ExecutorView, JobMasterStatus, ProcessState
from emberkeep.slots.pool.held_slot import HeldSlot
from emberkeep.slots.pool.state import PoolState

NOTHING_SEEN = SparkView(
    executors=frozenset(), queries=(), active_stages=0, active_tasks=0, completed_tasks=0, failed_tasks=0
)


def job_master_status(
    sequence: int,
    pool: PoolState,
    application: Application | None,
    view: SparkView | None,
    exceptions: Iterable[ExceptionEntry],
    checkpoints: tuple[QueryCheckpoint, ...],
    blocklist: BlocklistFollower,
    procedure: ProcedureProgress | None,
    now: float,
    *,
    tell_blocklist: bool,
) -> JobMasterStatus:
    """Return the status. ``now``: seconds of the pool's clock.

    ``tell_blocklist``: include the blocklist, as the JobManager cannot read its own.
    """
    seen = view or NOTHING_SEEN
    blocklist_epoch, listed = (blocklist.told if tell_blocklist else None) or (0, None)
    return JobMasterStatus(
        sequence=sequence,
        requirements=pool.declared(),
        executors=tuple(
            _executor_view(slot, application, seen, away=pool.is_away(slot, now)) for slot in pool.held.values()
        ),
        queries=seen.queries,
        active_stages=seen.active_stages,
        active_tasks=seen.active_tasks,
        completed_tasks=seen.completed_tasks,
        failed_tasks=seen.failed_tasks,
        app_id="" if application is None else application.app_id,
        waiting=pool.waiting(now),
        exceptions=tuple(exceptions),
        checkpoints=checkpoints,
        blocklist_revision=blocklist.revision,
        blocklist=listed,
        blocklist_epoch=blocklist_epoch,
        block_reports=blocklist.reports,
        procedure=procedure,
        functions=seen.functions,
    )


def _executor_view(slot: HeldSlot, application: Application | None, seen: SparkView, *, away: bool) -> ExecutorView:
    return ExecutorView(
        executor_id=slot.executor.id,
        allocation_id=slot.allocation.id,
        task_manager=slot.task_manager.id,
        host=slot.task_manager.host,
        state=ProcessState[slot.executor.state.name],
        registered=slot.executor.is_registered,
        cores=slot.allocation.profile.cores,
        heap_mb=0 if application is None else application.heap_mb,
        pid=slot.executor.pid,
        away=away,
        departure=_departure(slot, seen.blocks.get(slot.executor.id, BlocksLeft())) if slot.is_leaving else None,
        outgoing=slot.is_outgoing,
        cordoned=slot.executor.cordoned,
    )


def _departure(slot: HeldSlot, left: BlocksLeft) -> Departure:
    return Departure(
        begun=slot.is_decommissioned, shuffle_blocks=left.shuffle, cached_blocks=left.cached, at_least=left.at_least
    )
