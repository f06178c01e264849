"""Follows the executors in held slots: what task managers and Spark report about them."""

from __future__ import annotations

from emberkeep.slots.pool.departures import Departures
from emberkeep.slots.pool.events import (
    ExecutorExited,
    ExecutorRuns,
    FoundExecutor,
    PoolEffect,
    SlotGone,
    SparkSaw,
    StatusChanged,
)
from emberkeep.slots.pool.held_slot import ExecutorLiveness, ExecutorState, HeldExecutor, HeldSlot
from emberkeep.slots.pool.silence import Silence
from emberkeep.slots.pool.slot_end import SlotEnd
from emberkeep.slots.pool.state import PoolState


class ExecutorWatch:
    """Facts about executors. Part of the SlotPool.

    When an executor ends by itself, its slot is given back, and a replacement is requested after a pause.
    """

    def __init__(self, pool: PoolState, slot_end: SlotEnd, departures: Departures, silence: Silence) -> None:
        self._pool = pool
        self._slot_end = slot_end
        self._departures = departures
        self._silence = silence

    # --- from task managers -------------------------------------------------------------------------------------------

    def executor_runs(self, event: ExecutorRuns, _: float) -> list[PoolEffect]:
        slot = self._pool.slot_of(event.allocation_id, event.executor_id)
        if slot is None or (slot.executor.state, slot.executor.pid) == (ExecutorState.RUNNING, event.pid):
            return []
        slot.executor.state, slot.executor.pid = ExecutorState.RUNNING, event.pid
        slot.executor.start, slot.executor.why_cold = event.start, event.why_cold
        return [StatusChanged()]

    def executor_exited(self, event: ExecutorExited, now: float) -> list[PoolEffect]:
        slot = self._pool.slot_of(event.allocation_id, event.executor_id)
        if slot is None:
            return []
        how = _exit_text(event.exit_code, ran=slot.executor.state is ExecutorState.RUNNING)
        reason = f"{how}: {event.detail}" if event.detail else how
        if self._pool.must_end(slot):
            return self._slot_end.executor_left(slot, reason, orderly=event.exit_code in (0, None))
        return self._ended(slot, reason, now, failure=event.exit_code != 0)

    def slot_gone(self, event: SlotGone, _: float) -> list[PoolEffect]:
        slot = self._pool.slot_of(event.allocation_id, event.executor_id)
        return [] if slot is None else self._slot_end.drop(slot, event.reason)

    def found(self, executor: FoundExecutor, now: float) -> list[PoolEffect]:
        """Apply the state of an executor that its task manager reported in the reply to a heartbeat."""
        key = (executor.allocation_id, executor.executor_id)
        if executor.state is None:
            return self.executor_exited(ExecutorExited(*key, executor.exit_code, executor.detail), now)
        if executor.state is ExecutorState.RUNNING:
            return self.executor_runs(ExecutorRuns(*key, executor.pid, executor.start, executor.why_cold), now)
        return []

    def _ended(self, slot: HeldSlot, reason: str, now: float, *, failure: bool) -> list[PoolEffect]:
        """Give back the slot of an executor that ended by itself. A replacement is requested after a pause.

        ``failure``: the end counts towards the limit of failures.
        """
        pool, replacements = self._pool, self._pool.replacements
        replacements.executor_ended(now, failure=failure)
        reason = f"executor {slot.executor.id} on {slot.task_manager.id} {reason}"
        effects = self._slot_end.remove(slot, reason, orderly=not failure)
        failures = replacements.recent_failures(now)
        if failures > pool.limits.max_failures and not pool.failed:
            effects += pool.fail(
                f"{failures} executors ended by themselves within {pool.limits.failure_window:g} s "
                f"(executor.max-failures is {pool.limits.max_failures}); the last one: {reason}"
            )
        return effects

    # --- from Spark ---------------------------------------------------------------------------------------------------

    def spark_saw(self, event: SparkSaw, now: float) -> list[PoolEffect]:
        effects = [effect for slot in self._pool.held.values() for effect in _seen(slot.executor, event, now)]
        effects += self._departures.follow_disks(event.lacking_space, now)
        effects += self._departures.dismiss(event.idle, now)
        effects += self._silence.review(now)
        unlisted = [slot for slot in self._pool.held.values() if slot.executor.id not in event.executors]
        return [*effects, *(effect for slot in unlisted for effect in self._review_unlisted(slot, now))]

    def _review_unlisted(self, slot: HeldSlot, now: float) -> list[PoolEffect]:
        """Give back the slot of an executor that Spark has not listed for too long."""
        limits, executor = self._pool.limits, slot.executor
        if executor.is_registered:
            limit, what = limits.silence_timeout, "is no longer known to Spark"
        else:
            limit, what = limits.start_timeout, "did not register with Spark in time"
        if now - executor.unseen_since <= limit:
            return []
        if self._pool.must_end(slot):
            return self._slot_end.executor_left(slot, what, orderly=slot.is_decommissioned or slot.is_dismissed)
        return self._ended(slot, what, now, failure=True)


def _seen(executor: HeldExecutor, event: SparkSaw, now: float) -> list[PoolEffect]:
    """Record what Spark's report shows about an executor."""
    before = (executor.is_registered, executor.cordoned)
    if executor.id in event.executors:
        executor.spark = ExecutorLiveness.SILENT if executor.id in event.silent else ExecutorLiveness.ALIVE
        executor.unseen_since = now
    elif executor.is_registered:
        executor.spark = ExecutorLiveness.SILENT
    executor.takes_blocks = executor.is_alive and executor.id in event.takers
    executor.cordoned = executor.id in event.cordoned
    return [] if before == (executor.is_registered, executor.cordoned) else [StatusChanged()]


def _exit_text(exit_code: int | None, *, ran: bool) -> str:
    if exit_code is None:
        return "has ended; its exit code is not known" if ran else "could not be started"
    return f"was killed by signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"
