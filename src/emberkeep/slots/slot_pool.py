"""The slots that one attempt of a job wants and holds, and which executor lives in each.

Decides only: events in (``pool_events``), effects out; time is an argument in seconds. A slot is one executor's life:
when the executor ends, its slot goes back, and a replacement is wanted after a pause that doubles with each such end in
the failure window. Slots lost with their task manager are wanted again at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from emberkeep.base.ids import AllocationId, ExecutorId, InstanceId
from emberkeep.slots.model import Allocation, SlotRequirement, TaskManagerInfo
from emberkeep.slots.pool_events import (
    AcceptOffer,
    ApplicationStarted,
    ApplicationStopped,
    BeatAnswered,
    ClusterLacks,
    ExecutorExited,
    ExecutorRuns,
    ExecutorState,
    FailAttempt,
    HeldSlot,
    PoolEffect,
    PoolEvent,
    ReleaseDone,
    ReleaseSlotAt,
    RemoveExecutor,
    SlotGone,
    SlotsOffered,
    SparkSaw,
    StartExecutorIn,
    StatusChanged,
    TaskManagerLost,
    TaskManagerView,
    Tick,
)

STRAYS = 1000  # lost task managers that are watched for, so that slots which nobody uses are not held for ever
DOUBLINGS = 32  # more than any pause between the initial and the longest one needs


class PoolLimits(NamedTuple):
    """Times in seconds."""

    max_failures: int  # more than this many in failure_window fail the attempt
    failure_window: float
    backoff_initial: float
    backoff_max: float
    request_timeout: float  # without any slot for so long the attempt fails; 0: never
    silence_timeout: float  # of a task manager; of an executor that was registered with Spark and is not any more
    start_timeout: float  # of an executor until it registers with Spark


class SlotPool:
    """See the module."""

    def __init__(self, limits: PoolLimits) -> None:
        self.limits = limits
        self.requirement: SlotRequirement | None = None
        self.held: dict[AllocationId, HeldSlot] = {}
        self.releasing: dict[AllocationId, str] = {}  # given back; the task manager has not confirmed yet → address
        self.task_managers: dict[InstanceId, TaskManagerView] = {}
        self.strays: dict[InstanceId, TaskManagerInfo] = {}  # counted as lost, but may live and hold slots of ours
        self.failed = False
        self.missing = ""
        self._pauses: list[float] = []  # ends of the pauses, each of which holds back one replacement
        self._ends: deque[float] = deque(maxlen=DOUBLINGS)  # when executors ended by themselves, for the pauses
        self._failures: deque[float] = deque(maxlen=limits.max_failures + 1)  # those of them that count as failures
        self._without_slot_since: float | None = None
        self._next_executor = 0
        self._handlers: dict[type[Any], Callable[[Any, float], list[PoolEffect]]] = {
            ApplicationStarted: self._application_started,
            ApplicationStopped: self._application_stopped,
            SlotsOffered: self._slots_offered,
            ExecutorRuns: self._executor_runs,
            ExecutorExited: self._executor_exited,
            SlotGone: self._slot_gone,
            BeatAnswered: self._beat_answered,
            TaskManagerLost: self._task_manager_lost,
            SparkSaw: self._spark_saw,
            ReleaseDone: self._release_done,
            ClusterLacks: self._cluster_lacks,
            Tick: self._tick,
        }

    def handle(self, event: PoolEvent, now: float) -> list[PoolEffect]:
        """Take one event at ``now``."""
        effects = self._handlers[type(event)](event, now)
        self._note_emptiness(now)
        return effects

    # --- what is there -----------------------------------------------------------------------------------------------

    @property
    def target(self) -> int:
        """How many slots are wanted at present, held ones included."""
        if self.requirement is None or self.failed:
            return 0
        return max(0, self.requirement.count - len(self._pauses))

    def declared(self) -> tuple[SlotRequirement, ...]:
        """What the ResourceManager is told."""
        if self.requirement is None:
            return ()
        count = max(self.target, len(self.held))
        return (SlotRequirement(count=count, profile=self.requirement.profile, runtime=self.requirement.runtime),)

    def on_task_manager(self, instance: InstanceId) -> tuple[AllocationId, ...]:
        """Allocations held on one task manager."""
        return tuple(key for key, slot in self.held.items() if slot.task_manager.instance == instance)

    def waiting(self, now: float) -> str:
        """What is missing, in words; "" when nothing is."""
        if self.requirement is None or len(self.held) >= self.requirement.count:
            return ""
        texts = []
        if self._pauses:
            soonest = max(0.0, min(self._pauses) - now)
            texts.append(
                f"{len(self._pauses)} of {self.requirement.count} executors ended and will be replaced, "
                f"the next one in {soonest:.1f} s"
            )
        if len(self.held) < self.target and self.missing:
            texts.append(self.missing)
        return "; ".join(texts)

    def check_invariants(self) -> None:
        """Raises AssertionError naming what is broken."""
        executors = [slot.executor_id for slot in self.held.values()]
        _require(len(executors) == len(set(executors)), "one executor lives in two slots")
        _require(not (self.held.keys() & self.releasing.keys()), "a slot is held and being released")
        wanted = 0 if self.requirement is None else self.requirement.count
        _require(len(self.held) + len(self._pauses) <= wanted, "more is held or about to be wanted than required")
        instances = {slot.task_manager.instance for slot in self.held.values()}
        _require(instances == set(self.task_managers), "task managers watched are not those that hold slots")
        for key, slot in self.held.items():
            _require(key == slot.allocation.id, "a slot stands under another allocation's id")
            _require(
                self.requirement is not None and slot.allocation.profile == self.requirement.profile,
                f"a slot of the wrong size is held: {slot}",
            )
        _require(self.requirement is not None or not self._pauses, "a pause without an application")

    # --- application -------------------------------------------------------------------------------------------------

    def _application_started(self, event: ApplicationStarted, now: float) -> list[PoolEffect]:
        effects = self._application_stopped(ApplicationStopped(), now)
        self.requirement = event.requirement
        return [*effects, StatusChanged()]

    def _application_stopped(self, _: ApplicationStopped, now: float) -> list[PoolEffect]:
        """Everything goes back. The executors of an application end with it: those ends are no failures."""
        effects: list[PoolEffect] = []
        for slot in list(self.held.values()):
            effects += self._give_back(slot)
        self.requirement = None
        self._pauses.clear()
        self._ends.clear()
        self._failures.clear()
        self.missing = ""
        return [*effects, StatusChanged()]

    # --- slots -------------------------------------------------------------------------------------------------------

    def _slots_offered(self, event: SlotsOffered, now: float) -> list[PoolEffect]:
        accepted: list[AllocationId] = []
        effects: list[PoolEffect] = []
        for allocation in event.slots:
            held = self.held.get(allocation.id)
            if held is not None:
                if held.task_manager.instance == event.task_manager.instance:
                    accepted.append(allocation.id)  # the first answer was lost
            elif self._wants(allocation):
                accepted.append(allocation.id)
                self._accept(allocation, event, now)
                effects.append(StartExecutorIn(allocation.id))
        if effects:
            effects.append(StatusChanged())
        return [AcceptOffer(tuple(accepted)), *effects]

    def _wants(self, allocation: Allocation) -> bool:
        return (
            self.requirement is not None
            and allocation.profile == self.requirement.profile
            and allocation.id not in self.releasing
            and len(self.held) < self.target
        )

    def _accept(self, allocation: Allocation, event: SlotsOffered, now: float) -> None:
        executor_id = ExecutorId(str(self._next_executor))
        self._next_executor += 1
        info = event.task_manager
        self.held[allocation.id] = HeldSlot(allocation, info, executor_id, ExecutorState.STARTING, now)
        self.task_managers.setdefault(info.instance, TaskManagerView(info, now)).heard_at = now

    def _executor_runs(self, event: ExecutorRuns, _: float) -> list[PoolEffect]:
        slot = self._slot(event.allocation_id, event.executor_id)
        if slot is None or (slot.state is ExecutorState.RUNNING and slot.pid == event.pid):
            return []
        slot.state, slot.pid = ExecutorState.RUNNING, event.pid
        return [StatusChanged()]

    def _executor_exited(self, event: ExecutorExited, now: float) -> list[PoolEffect]:
        slot = self._slot(event.allocation_id, event.executor_id)
        if slot is None:
            return []
        how = "could not be started" if event.exit_code is None else _exit_text(event.exit_code)
        reason = f"{how}: {event.detail}" if event.detail else how
        return self._ended(slot, reason, now, failure=event.exit_code != 0)

    def _slot_gone(self, event: SlotGone, _: float) -> list[PoolEffect]:
        slot = self._slot(event.allocation_id, event.executor_id)
        return [] if slot is None else self._drop(slot, event.reason)

    def _slot(self, allocation_id: AllocationId, executor_id: ExecutorId) -> HeldSlot | None:
        slot = self.held.get(allocation_id)
        return slot if slot is not None and slot.executor_id == executor_id else None

    def _ended(self, slot: HeldSlot, reason: str, now: float, *, failure: bool) -> list[PoolEffect]:
        """An executor has ended by itself: its slot goes back, a replacement waits for its pause."""
        self._ends.append(now)
        if failure:
            self._failures.append(now)
        pause = self.limits.backoff_initial * 2.0 ** (self._recent(self._ends, now) - 1)
        self._pauses.append(now + min(pause, self.limits.backoff_max))
        where = f"executor {slot.executor_id} on {slot.task_manager.id}"
        effects: list[PoolEffect] = [
            *self._give_back(slot),
            RemoveExecutor(slot.executor_id, slot.task_manager.id, f"{where} {reason}", orderly=not failure),
            StatusChanged(),
        ]
        failures = self._recent(self._failures, now)
        if failures > self.limits.max_failures and not self.failed:
            effects += self._fail(
                f"{failures} executors ended by themselves within {self.limits.failure_window:g} s "
                f"(executor.max-failures is {self.limits.max_failures}); the last one: {where} {reason}"
            )
        return effects

    def _recent(self, times: deque[float], now: float) -> int:
        return sum(1 for time in times if now - time <= self.limits.failure_window)

    def _fail(self, message: str) -> list[PoolEffect]:
        """The script is told; what is held stays until the application stops."""
        self.failed = True
        return [FailAttempt(message), StatusChanged()]

    def _give_back(self, slot: HeldSlot) -> list[PoolEffect]:
        self._forget(slot)
        self.releasing[slot.allocation.id] = slot.task_manager.address
        return [ReleaseSlotAt(slot.allocation.id, slot.task_manager.address)]

    def _drop(self, slot: HeldSlot, reason: str) -> list[PoolEffect]:
        """A slot was lost without its executor's doing: nobody is to be told but Spark, and no pause is needed."""
        self._forget(slot)
        where = f"executor {slot.executor_id} on {slot.task_manager.id}"
        return [
            RemoveExecutor(slot.executor_id, slot.task_manager.id, f"{where} is lost: {reason}"),
            StatusChanged(),
        ]

    def _forget(self, slot: HeldSlot) -> None:
        del self.held[slot.allocation.id]
        if not self.on_task_manager(slot.task_manager.instance):
            del self.task_managers[slot.task_manager.instance]

    def _release_done(self, event: ReleaseDone, _: float) -> list[PoolEffect]:
        self.releasing.pop(event.allocation_id, None)
        return []

    # --- task managers, Spark, time ----------------------------------------------------------------------------------

    def _beat_answered(self, event: BeatAnswered, now: float) -> list[PoolEffect]:
        effects: list[PoolEffect] = []
        for view in list(self.task_managers.values()):
            if view.info.id == event.task_manager and view.info.instance != event.instance:
                effects += self._lose(view.info.instance, "its task manager was started anew")
        self._review_strays(event)
        known = self.task_managers.get(event.instance)
        if known is None:
            return effects
        known.heard_at = now
        for allocation_id in event.asked:
            slot = self.held.get(allocation_id)
            if slot is None or slot.task_manager.instance != event.instance or allocation_id in event.allocations:
                continue
            effects += self._drop(slot, "its task manager does not hold the slot any more")
        return effects

    def _task_manager_lost(self, event: TaskManagerLost, _: float) -> list[PoolEffect]:
        return self._lose(event.instance, event.reason)

    def _review_strays(self, event: BeatAnswered) -> None:
        """A stray has answered: forget it once it holds nothing that is not held here, or was started anew."""
        for info in list(self.strays.values()):
            anew = info.instance != event.instance
            if info.id == event.task_manager and (anew or all(key in self.held for key in event.allocations)):
                del self.strays[info.instance]

    def to_beat(self) -> dict[InstanceId, TaskManagerInfo]:
        """Task managers to be told which slots are held there: a stray is told too, so that it frees the rest."""
        return {**self.strays, **{instance: view.info for instance, view in self.task_managers.items()}}

    def _lose(self, instance: InstanceId, reason: str) -> list[PoolEffect]:
        effects: list[PoolEffect] = []
        view = self.task_managers.get(instance)
        if view is not None:
            self.strays[instance] = view.info
            while len(self.strays) > STRAYS:
                del self.strays[next(iter(self.strays))]
        for allocation_id in self.on_task_manager(instance):
            effects += self._drop(self.held[allocation_id], reason)
        return effects

    def _spark_saw(self, event: SparkSaw, now: float) -> list[PoolEffect]:
        effects: list[PoolEffect] = []
        for slot in list(self.held.values()):
            if slot.executor_id in event.executors:
                if not slot.registered:
                    effects.append(StatusChanged())
                slot.registered, slot.unseen_since = True, now
                continue
            limit = self.limits.silence_timeout if slot.registered else self.limits.start_timeout
            if now - slot.unseen_since > limit:
                what = "is not known to Spark any more" if slot.registered else "did not register with Spark in time"
                effects += self._ended(slot, what, now, failure=True)
        return effects

    def _cluster_lacks(self, event: ClusterLacks, _: float) -> list[PoolEffect]:
        self.missing = event.missing
        return []

    def _tick(self, _: Tick, now: float) -> list[PoolEffect]:
        effects: list[PoolEffect] = []
        still = [until for until in self._pauses if until > now]
        if len(still) < len(self._pauses):
            self._pauses = still
            effects.append(StatusChanged())
        for instance, view in list(self.task_managers.items()):
            silence = now - view.heard_at
            if silence > self.limits.silence_timeout:
                effects += self._lose(instance, f"its task manager has been silent for {silence:.0f} s")
        since, limit = self._without_slot_since, self.limits.request_timeout
        if since is not None and 0 < limit <= now - since and not self.failed:
            because = f": {self.missing}" if self.missing else ""
            effects += self._fail(f"not one slot could be had for {limit:g} s (slot.request.timeout){because}")
        return effects

    def _note_emptiness(self, now: float) -> None:
        lacks_all = self.requirement is not None and self.requirement.count > 0 and not self.held
        if not lacks_all:
            self._without_slot_since = None
        elif self._without_slot_since is None:
            self._without_slot_since = now


def _exit_text(exit_code: int) -> str:
    return f"was killed by signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise AssertionError(what)
