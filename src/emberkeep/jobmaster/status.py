"""The status of an attempt, as its JobMaster reports it to the JobManager."""

from __future__ import annotations

from collections import deque

import msgspec

from emberkeep.blocklist.follower import BlocklistFollower
from emberkeep.jobmaster.checkpoint_reports import CheckpointReports
from emberkeep.jobmaster.driver_trace import DriverTrace
from emberkeep.jobmaster.ports import Application, BlocksLeft, SparkView
from emberkeep.jobs.model import ExceptionEntry
from emberkeep.jobs.progress.course import Course
from emberkeep.jobs.progress.flows import FlowProgress
from emberkeep.jobs.progress.totals import TotalsOfQueries
from emberkeep.jobs.progress.trend import TaskCounts, Trend
from emberkeep.jobs.progress.work import NOTHING_DONE, AttemptWork, ended
from emberkeep.lifecycle.model import ProcedureProgress
from emberkeep.protocol.messages.job_master_reports import Departure, ExecutorView, JobMasterStatus, Scaling
from emberkeep.protocol.messages.task_manager_reports import ProcessState
from emberkeep.slots.model import Reclaim
from emberkeep.slots.pool.departures import LACKING_SECONDS
from emberkeep.slots.pool.events import RemoveExecutor
from emberkeep.slots.pool.held_slot import HeldSlot
from emberkeep.slots.pool.state import PoolState

EXCEPTIONS = 20  # lost executors that a status reports, the newest ones
NOTHING_SEEN = SparkView(executors=frozenset(), queries=())


class AttemptStatus:
    """What an attempt has reported last, and what the next report adds.

    ``application``: the newest one. ``view``: Spark's newest state. Each is None before the first. ``trace``: of the
    attempt's start. The other parts of a status belong to the JobMaster.
    """

    def __init__(self, attempt: int, trace: DriverTrace) -> None:
        self.trace = trace
        self.application: Application | None = None
        self.view: SparkView | None = None
        self._attempt = attempt
        self._checkpoints = CheckpointReports()
        self._exceptions: deque[ExceptionEntry] = deque(maxlen=EXCEPTIONS)
        self._work = NOTHING_DONE
        self._totals = TotalsOfQueries()
        self._tasks = TaskCounts()
        self._sequence = 0
        self._scaling: Scaling | None = None
        self._flows: tuple[FlowProgress, ...] = ()

    @property
    def work(self) -> AttemptWork:
        return self._work

    def see(self, view: SparkView | None) -> None:
        """Note Spark's newest state. ``view``: None while no SparkContext is up."""
        self.view = view
        if view is None:
            self._work = ended(self._work)
        else:
            self._work = view.work
            self._flows = view.flows
            self._checkpoints.see(view.commits)
            self._totals.see({query.id for query in view.queries}, view.reports)

    def application_started(self, application: Application, now_ms: int) -> None:
        """Note a new application, and the number of executors that it wants at first."""
        self.application = application
        self._scaling = None
        self.note_wanted(application.requirement.count, now_ms)

    def note_wanted(self, wanted: int, now_ms: int, reason: str = "") -> None:
        """Note how many executors are wanted now; nothing if the number is fixed. ``reason``: of autoscaling."""
        dynamic = None if self.application is None else self.application.dynamic
        if dynamic is None or (self._scaling is not None and self._scaling.wanted == wanted):
            return
        self._scaling = Scaling(
            wanted=wanted,
            minimum=dynamic.minimum,
            maximum=dynamic.maximum,
            changed_ms=now_ms,
            autoscaled=dynamic.autoscale is not None,
            reason=reason,
        )

    @property
    def _least_slots(self) -> int:
        """Slots that the attempt keeps when others are entitled to them; 0 if it can give none back."""
        application = self.application
        if application is None or not application.decommissions:
            return 0
        return max(1, 0 if application.dynamic is None else application.dynamic.minimum)

    def bounded(self, reclaim: Reclaim) -> Reclaim:
        """Return what the attempt is to give back, without the slots that it keeps unless it is put back."""
        if reclaim.whole:
            return reclaim
        return msgspec.structs.replace(reclaim, ceiling=max(reclaim.ceiling, self._least_slots, 1))

    def application_stopping(self, work: AttemptWork, flows: tuple[FlowProgress, ...]) -> None:
        """Note what the attempt has done until now. Nothing new begins before another application."""
        self._work = work
        self._flows = flows

    def note_lost(self, lost: RemoveExecutor, now_ms: int) -> None:
        """Note an executor that ended abnormally."""
        message, _, more = lost.reason.partition("\n")
        self._exceptions.append(
            ExceptionEntry(
                timestamp_ms=now_ms,
                attempt=self._attempt,
                kind="ExecutorLost",
                message=message,
                traceback=lost.reason if more else "",
                task_manager=lost.task_manager,
                executor=lost.executor_id,
            )
        )

    def note_full_disk(self, slot: HeldSlot, now_ms: int) -> None:
        """Note an executor in which tasks have failed because its disk is full."""
        self._exceptions.append(
            ExceptionEntry(
                timestamp_ms=now_ms,
                attempt=self._attempt,
                kind="DiskFull",
                message=f"tasks of executor {slot.executor.id} on {slot.task_manager.id} have failed: no space is left "
                f"on its disk. It gets no new tasks for {LACKING_SECONDS / 60:.0f} minutes while other executors run",
                task_manager=slot.task_manager.id,
                executor=slot.executor.id,
            )
        )

    def take(
        self,
        pool: PoolState,
        blocklist: BlocklistFollower,
        procedure: ProcedureProgress | None,
        now: float,
        *,
        rows: Trend | None,
        course: Course | None,
        tell_blocklist: bool,
    ) -> JobMasterStatus:
        """Return the next status. ``now``: seconds of the pool's clock. ``rows``: the trend of streaming queries.
        ``course``: of the job.

        ``tell_blocklist``: include the blocklist, as the JobManager cannot read its own.
        """
        self._sequence += 1
        self._tasks.note(self._work.completed_tasks, now)
        application, seen, work = self.application, self.view or NOTHING_SEEN, self._work
        blocklist_epoch, listed = (blocklist.told if tell_blocklist else None) or (0, None)
        return JobMasterStatus(
            sequence=self._sequence,
            requirements=pool.declared(),
            executors=tuple(
                _executor_view(slot, application, seen, away=pool.is_away(slot, now)) for slot in pool.held.values()
            ),
            queries=tuple(msgspec.structs.replace(query, totals=self._totals.of(query.id)) for query in seen.queries),
            active_stages=work.active_stages,
            active_tasks=work.active_tasks,
            completed_tasks=work.completed_tasks,
            failed_tasks=work.failed_tasks,
            app_id="" if application is None else application.app_id,
            waiting=pool.waiting(now),
            exceptions=tuple(self._exceptions),
            checkpoints=self._checkpoints.newest(),
            blocklist_revision=blocklist.revision,
            blocklist=listed,
            blocklist_epoch=blocklist_epoch,
            block_reports=blocklist.reports,
            procedure=procedure,
            functions=seen.functions,
            trace=self.trace.report(now),
            work=work,
            trend=rows or self._tasks.trend(),
            scaling=self._scaling if pool.is_elastic else None,
            least_slots=0 if pool.requirement is None or pool.stopping else self._least_slots,
            reclaim=None if pool.ceiling is None else pool.reclaim,
            given_back=pool.given_back,
            flows=self._flows,
            course=course,
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
        lacks_space=slot.executor.lacks_space,
        dismissed=slot.is_dismissed,
        cordoned=slot.executor.cordoned,
        start=slot.executor.start,
        why_cold=slot.executor.why_cold,
    )


def _departure(slot: HeldSlot, left: BlocksLeft) -> Departure:
    return Departure(
        begun=slot.is_decommissioned, shuffle_blocks=left.shuffle, cached_blocks=left.cached, at_least=left.at_least
    )
