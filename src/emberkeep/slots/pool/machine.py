"""The slots that one attempt of a job needs and holds, and the executor in each.

Decides only: events in (see ``events``), effects out; time is an argument in seconds. A slot is held for one executor.
When the executor ends by itself, its slot is given back, and a replacement is requested after a pause. The pause
doubles with each such end in the failure window. Slots lost with their task manager are requested again at once.

A silent task manager does not mean a lost executor: while Spark receives the executor's heartbeats, its slot is kept,
for the orphan timeout at most. A restarted task manager offers the slot again, and the slot is bound to the new
instance: with its executor if that still runs, else with a new one. A slot that this attempt has released is refused
unless its executor is known to have ended.

A slot on a blocked place is *outgoing*. It does not count towards the requirement, so another slot is requested at
once. Its executor works as before until the other one runs. Then it is *cordoned*: it keeps its blocks and running
tasks and takes no new ones. Once it has nothing left to do or to keep, it leaves.

A slot on an evacuated place is *leaving*. It does not count towards the requirement either. Its executor is
decommissioned as soon as another one can take over what it keeps, and ends by itself; after the evacuation timeout it
is ended. The slot never gets another executor. If the block ends before the executor was decommissioned, the slot stays
if it is still needed. Slots on a draining task manager leave likewise, but an executor without a successor stays as
long as its task manager does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from emberkeep.base.ids import AllocationId, ExecutorId, InstanceId, TaskManagerId
from emberkeep.slots.blocked import BlocklistView, NothingBlocked
from emberkeep.slots.model import Allocation, SlotRequirement, TaskManagerInfo
from emberkeep.slots.pool.events import (
    AcceptOffer,
    ApplicationStarted,
    ApplicationStopped,
    ApplicationStopping,
    BeatAnswered,
    BeatNow,
    ClusterLacks,
    ExecutorExited,
    ExecutorRuns,
    ExecutorState,
    FailAttempt,
    FoundExecutor,
    HeldSlot,
    PlacesBlocked,
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
    Tick,
)
from emberkeep.slots.pool.task_manager_lives import TaskManagerLives, remember

REMEMBERED = 10_000  # allocations remembered after they were given up
DOUBLINGS = 32  # more doublings than lead from the initial to the longest pause


class PoolLimits(NamedTuple):
    """Times in seconds."""

    max_failures: int  # more failures than this in failure_window fail the attempt
    failure_window: float
    backoff_initial: float
    backoff_max: float
    request_timeout: float  # without any slot for this long, the attempt fails; 0: never
    silence_timeout: float  # of a task manager, or of an executor that Spark no longer lists
    start_timeout: float  # that an executor may take to register with Spark
    orphan_timeout: float  # that an executor is kept while its task manager is silent
    evacuation_timeout: float  # that an executor may take to leave an evacuated place


class SlotPool:
    """The slots of one attempt and their executors; see the module."""

    def __init__(self, limits: PoolLimits) -> None:
        self.limits = limits
        self.requirement: SlotRequirement | None = None
        self.held: dict[AllocationId, HeldSlot] = {}
        self.releasing: dict[AllocationId, str] = {}  # given back, not confirmed by the task manager yet → its address
        self.lives = TaskManagerLives(late=limits.silence_timeout)
        self.blocked: BlocklistView = NothingBlocked()
        self.draining: frozenset[TaskManagerId] = frozenset()
        self._decommissions = False  # True if executors can hand over what they keep
        self.stopping = False  # True once the application begins to stop
        self._given_up: dict[AllocationId, None] = {}  # allocations that were held once, oldest first
        self.failed = False
        self.missing = ""
        self._blocked_ones = False  # unblocking nodes may provide what is missing
        self._pauses: list[float] = []  # when the pauses end; each holds back one replacement
        self._ends: deque[float] = deque(maxlen=DOUBLINGS)  # when executors ended by themselves; sets the next pause
        self._failures: deque[float] = deque(maxlen=limits.max_failures + 1)  # which of these ends count as failures
        self._without_slot_since: float | None = None
        self._next_executor = 0
        self._handlers: dict[type[Any], Callable[[Any, float], list[PoolEffect]]] = {
            ApplicationStarted: self._application_started,
            ApplicationStopping: self._application_stopping,
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
            PlacesBlocked: self._places_blocked,
            Tick: self._tick,
        }

    def handle(self, event: PoolEvent, now: float) -> list[PoolEffect]:
        """Apply one event at ``now`` (seconds) and return the effects."""
        effects = [*self._handlers[type(event)](event, now), *self._review_leaving(now)]
        self._note_emptiness(now)
        return effects

    # --- queries ------------------------------------------------------------------------------------------------------

    @property
    def staying(self) -> int:
        """Number of held slots that count towards the requirement."""
        return sum(slot.stays for slot in self.held.values())

    @property
    def target(self) -> int:
        """Number of slots needed now, including held ones that stay."""
        if self.requirement is None or self.failed or self.stopping:
            return 0
        return max(0, self.requirement.count - len(self._pauses))

    def declared(self) -> tuple[SlotRequirement, ...]:
        """Return the requirements that are sent to the ResourceManager."""
        if self.requirement is None:
            return ()
        count = max(self.target, self.staying)
        return (SlotRequirement(count=count, profile=self.requirement.profile, runtime=self.requirement.runtime),)

    def on_task_manager(self, instance: InstanceId) -> tuple[AllocationId, ...]:
        """Return the allocations held on one instance of a task manager."""
        return tuple(key for key, slot in self.held.items() if slot.task_manager.instance == instance)

    def is_away(self, slot: HeldSlot, now: float) -> bool:
        """True if the task manager has been silent so long that only Spark shows that the executor is alive."""
        return self.lives.silence(slot.task_manager.instance, now) > self.limits.silence_timeout

    def to_beat(self) -> list[tuple[TaskManagerInfo, tuple[AllocationId, ...]]]:
        """Return the task managers that get a beat, each with the allocations held there."""
        return self.lives.to_beat(self.held)

    def decommissioned(self, allocations: Iterable[AllocationId]) -> tuple[AllocationId, ...]:
        """Return those of these held slots whose executors must hand over what they keep and end."""
        return tuple(key for key in allocations if self.held[key].decommissioned)

    def leaving(self) -> frozenset[ExecutorId]:
        """Return the executors that are leaving."""
        return frozenset(slot.executor_id for slot in self.held.values() if slot.leaving)

    def to_cordon(self) -> frozenset[ExecutorId]:
        """Return the outgoing executors that must take no new task, because enough others run in their place."""
        wanted = 0 if self.requirement is None else self.requirement.count
        needed = max(0, wanted - sum(slot.stays and slot.lives for slot in self.held.values()))
        outgoing = [slot for slot in self.held.values() if slot.outgoing and not slot.leaving and slot.registered]
        outgoing.sort(key=lambda slot: slot.cordoned)
        return frozenset(slot.executor_id for slot in outgoing[needed:])

    def doubted(self, now: float) -> frozenset[ExecutorId]:
        """Return the executors with silent task managers. Spark must be asked whether it receives their heartbeats."""
        return frozenset(slot.executor_id for slot in self.held.values() if self.is_away(slot, now))

    def waiting(self, now: float) -> str:
        """Return a text that names what the job is missing; "" if nothing."""
        if self.requirement is None or self.stopping or self.staying >= self.requirement.count:
            return ""
        texts = []
        if self._pauses:
            soonest = max(0.0, min(self._pauses) - now)
            texts.append(
                f"{len(self._pauses)} of {self.requirement.count} executors ended and will be replaced, "
                f"the next one in {soonest:.1f} s"
            )
        if self.staying < self.target and self.missing:
            texts.append(self.missing)
        return "; ".join(texts)

    def check_invariants(self) -> None:
        """Raise AssertionError naming the broken invariant."""
        executors = [slot.executor_id for slot in self.held.values()]
        _require(len(executors) == len(set(executors)), "one executor lives in two slots")
        _require(not (self.held.keys() & self.releasing.keys()), "a slot is held and being released")
        wanted = 0 if self.requirement is None else self.requirement.count
        _require(self.staying + len(self._pauses) <= wanted, "more is held or about to be wanted than required")
        instances = {slot.task_manager.instance for slot in self.held.values()}
        _require(instances == set(self.lives.views), "task managers watched are not those that hold slots")
        for key, slot in self.held.items():
            _require(key == slot.allocation.id, "a slot stands under another allocation's id")
            _require(
                self.requirement is not None and slot.allocation.profile == self.requirement.profile,
                f"a slot of the wrong size is held: {slot}",
            )
            _require(not self._must_leave(slot), f"a slot is held where the blocklist allows none: {slot}")
            _require(slot.leaving or not slot.decommissioned, f"an executor is decommissioned that stays: {slot}")
            blocked = self._is_blocked(slot.task_manager)
            _require(blocked or not slot.outgoing, f"a slot is outgoing where nothing is blocked: {slot}")
            _require(slot.outgoing or slot.leaving or not blocked, f"a slot stays on a blocked place: {slot}")
        _require(self.requirement is not None or not self._pauses, "a pause without an application")

    # --- application -------------------------------------------------------------------------------------------------

    def _application_started(self, event: ApplicationStarted, now: float) -> list[PoolEffect]:
        effects = self._application_stopped(ApplicationStopped(), now)
        self.requirement, self._decommissions = event.requirement, event.decommissions
        return [*effects, StatusChanged()]

    def _application_stopping(self, _: ApplicationStopping, now: float) -> list[PoolEffect]:
        """Keep the slots until the application has stopped, because Spark ends its executors itself.

        Ignore from now on how executors end. One that begins to hand over its blocks when the driver no longer listens
        ends with an error.
        """
        self.stopping = self.requirement is not None
        return [StatusChanged()]

    def _application_stopped(self, _: ApplicationStopped, now: float) -> list[PoolEffect]:
        """Give all slots back and forget the application."""
        self.stopping = True
        effects: list[PoolEffect] = []
        for slot in list(self.held.values()):
            effects += self._give_back(slot)
        self.requirement, self.stopping = None, False
        self._pauses.clear()
        self._ends.clear()
        self._failures.clear()
        self.missing, self._blocked_ones = "", False
        return [*effects, StatusChanged()]

    # --- slots -------------------------------------------------------------------------------------------------------

    def _slots_offered(self, event: SlotsOffered, now: float) -> list[PoolEffect]:
        info = event.task_manager
        if self.lives.is_over(info.instance, now):
            return []  # a late message, unless it is repeated
        self.lives.end(info.predecessor, now)
        found = {executor.allocation_id: executor for executor in event.executors}
        accepted: list[AllocationId] = []
        later: list[AllocationId] = []
        effects: list[PoolEffect] = []
        for allocation in event.slots:
            held = self.held.get(allocation.id)
            if held is not None:
                if held.task_manager.instance == info.instance:
                    accepted.append(allocation.id)  # the first reply was lost
                elif held.task_manager.id == info.id:
                    effects += self._bind_again(held, info, found.get(allocation.id), now)
                    accepted += [allocation.id] if allocation.id in self.held else []
            elif self.stopping or self.requirement is None:
                later.append(allocation.id)  # the next application or attempt may need the state that is kept for it
            elif self._is_blocked(info) or not self._has_use_for(allocation, found.get(allocation.id)):
                continue
            elif self.staying < self.target:
                accepted.append(allocation.id)
                self._accept(allocation, info, now)
                effects.append(StartExecutorIn(allocation.id))
            elif self._pauses:
                later.append(allocation.id)
        if effects:
            effects.append(StatusChanged())
        return [AcceptOffer(tuple(accepted), tuple(later)), *effects]

    def _has_use_for(self, allocation: Allocation, found: FoundExecutor | None) -> bool:
        """True if the slot may be held while slots are missing.

        A slot that this attempt has released is taken again only if its executor has provably ended. This is the case
        when its node comes back, with the job's local state, before another slot was found.
        """
        fresh = found is None and allocation.id not in self._given_up
        back = found is not None and found.state is None and allocation.id not in self.releasing
        return self.requirement is not None and allocation.profile == self.requirement.profile and (fresh or back)

    def _accept(self, allocation: Allocation, info: TaskManagerInfo, now: float) -> None:
        self.held[allocation.id] = HeldSlot(allocation, info, self._new_executor(), ExecutorState.STARTING, now)
        self.lives.heard(info, now)

    def _new_executor(self) -> ExecutorId:
        self._next_executor += 1
        return ExecutorId(str(self._next_executor - 1))

    def _bind_again(
        self, slot: HeldSlot, info: TaskManagerInfo, found: FoundExecutor | None, now: float
    ) -> list[PoolEffect]:
        """Bind the slot to another instance of its task manager, which has executor ``found`` in it or none."""
        before = slot.task_manager
        slot.task_manager = info
        self.lives.heard(info, now)
        self.lives.end(before.instance, now)
        self._forget_empty(before.instance)
        if found is None or found.state is None:
            # Give the slot back where no new executor may start.
            goes = self._is_to_end(slot) or self._is_blocked(info)
            return self._leave(slot) if goes else self._start_anew(slot, found, now)
        if found.executor_id == slot.executor_id:
            slot.state, slot.pid = found.state, found.pid
            return [*self._obey_blocklist(slot, now), *self._welcome_back(now), StatusChanged()]
        reason = f"executor {found.executor_id} was found in the slot of executor {slot.executor_id} on {info.id}"
        return [
            *self._give_back(slot),
            RemoveExecutor(found.executor_id, info.id, reason),
            RemoveExecutor(slot.executor_id, info.id, reason),
            StatusChanged(),
        ]

    def _start_anew(self, slot: HeldSlot, found: FoundExecutor | None, now: float) -> list[PoolEffect]:
        """Start a new executor in the slot without a pause: the old one ended while its task manager was away."""
        known = found is not None and found.executor_id == slot.executor_id
        detail = f": {found.detail}" if found is not None and known and found.detail else ""
        reason = f"executor {slot.executor_id} ended while its task manager {slot.task_manager.id} was away{detail}"
        unseen = not slot.registered and not known  # it may never have started
        gone = RemoveExecutor(slot.executor_id, slot.task_manager.id, reason, orderly=unseen)
        slot.executor_id, slot.state, slot.pid = self._new_executor(), ExecutorState.STARTING, 0
        slot.registered, slot.lives, slot.takes_blocks, slot.unseen_since = False, False, False, now
        return [gone, StartExecutorIn(slot.allocation.id), StatusChanged()]

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
        how = _exit_text(event.exit_code, ran=slot.state is ExecutorState.RUNNING)
        reason = f"{how}: {event.detail}" if event.detail else how
        if self._is_to_end(slot):
            return self._left(slot, reason, orderly=event.exit_code in (0, None))
        return self._ended(slot, reason, now, failure=event.exit_code != 0)

    def _slot_gone(self, event: SlotGone, _: float) -> list[PoolEffect]:
        slot = self._slot(event.allocation_id, event.executor_id)
        return [] if slot is None else self._drop(slot, event.reason)

    def _slot(self, allocation_id: AllocationId, executor_id: ExecutorId) -> HeldSlot | None:
        slot = self.held.get(allocation_id)
        return slot if slot is not None and slot.executor_id == executor_id else None

    def _ended(self, slot: HeldSlot, reason: str, now: float, *, failure: bool) -> list[PoolEffect]:
        """Give back the slot of an executor that ended by itself. A replacement waits for its pause."""
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
        """Report the failure to the script. Held slots stay until the application stops."""
        self.failed = True
        return [FailAttempt(message), StatusChanged()]

    def _give_back(self, slot: HeldSlot) -> list[PoolEffect]:
        self._forget(slot)
        # If the release never arrives, beats show the task manager that the slot is no longer held. It frees nothing by
        # itself while the driver runs on the same node.
        self.lives.stray(slot.task_manager)
        self.releasing[slot.allocation.id] = slot.task_manager.address
        return [ReleaseSlotAt(slot.allocation.id, slot.task_manager.address, stopped=self.stopping)]

    def _drop(self, slot: HeldSlot, reason: str) -> list[PoolEffect]:
        """Forget a slot that was lost through no fault of its executor. Notify only Spark; no pause follows."""
        self._forget(slot)
        where = f"executor {slot.executor_id} on {slot.task_manager.id}"
        return [
            RemoveExecutor(slot.executor_id, slot.task_manager.id, f"{where} is lost: {reason}", orderly=self.stopping),
            StatusChanged(),
        ]

    def _forget(self, slot: HeldSlot) -> None:
        del self.held[slot.allocation.id]
        remember(self._given_up, slot.allocation.id, None, REMEMBERED)
        self._forget_empty(slot.task_manager.instance)

    def _forget_empty(self, instance: InstanceId) -> None:
        if not self.on_task_manager(instance):
            self.lives.forget(instance)

    def _release_done(self, event: ReleaseDone, _: float) -> list[PoolEffect]:
        self.releasing.pop(event.allocation_id, None)
        return []

    # --- blocklist ---------------------------------------------------------------------------------------------------

    def _places_blocked(self, event: PlacesBlocked, now: float) -> list[PoolEffect]:
        """Follow a new blocklist. Replace slots that must leave elsewhere at once, because no executor has failed."""
        self.blocked, self.draining = event.places, event.draining
        effects = [effect for slot in list(self.held.values()) for effect in self._obey_blocklist(slot, now)]
        return [*effects, *self._welcome_back(now)]

    def _obey_blocklist(self, slot: HeldSlot, now: float) -> list[PoolEffect]:
        """Give back a slot without a running executor; mark others leaving (evacuated place) or outgoing (blocked)."""
        if self._must_leave(slot):
            return self._depart(slot, now)
        if not slot.stays or not self._is_blocked(slot.task_manager):
            return []
        slot.outgoing = True
        return [StatusChanged()]

    def _depart(self, slot: HeldSlot, now: float) -> list[PoolEffect]:
        """Mark a slot leaving if its executor can hand over what it keeps; give back any other slot at once."""
        if not (slot.registered and self._decommissions):
            return self._leave(slot)
        slot.leaving_since = now
        return [StatusChanged()]

    def _welcome_back(self, now: float) -> list[PoolEffect]:
        """Keep slots that were about to leave if their block has ended and they are still needed."""
        effects: list[PoolEffect] = []
        for slot in list(self.held.values()):
            wanted = self.staying < self.target
            if slot.leaving and not slot.decommissioned and not self._is_left(slot.task_manager) and wanted:
                slot.leaving_since = None
                slot.outgoing = self._is_blocked(slot.task_manager)
                effects.append(StatusChanged())
            elif slot.outgoing and not self._is_blocked(slot.task_manager):
                slot.outgoing = False
                effects += [StatusChanged()] if wanted or slot.leaving else self._depart(slot, now)
        return effects

    def _review_leaving(self, now: float) -> list[PoolEffect]:
        """Decommission leaving executors once another can take over what they keep; end those that take too long."""
        effects: list[PoolEffect] = []
        for slot in [slot for slot in self.held.values() if slot.leaving]:
            if not self._is_pressed(slot):
                slot.leaving_since = now
            if now - (slot.leaving_since or 0.0) >= self.limits.evacuation_timeout:
                effects += self._left(slot, self._overdue(slot), orderly=False)
            elif not (slot.decommissioned or slot.cordoned or self.stopping) and self._has_successor():
                # Spark treats a cordoned executor as already decommissioned, so it could not hand over anything.
                slot.decommissioned = True
                effects.append(BeatNow())
        return effects

    def _is_pressed(self, slot: HeldSlot) -> bool:
        """True if the evacuation timeout runs for this slot.

        It does not run for an executor on a draining task manager that can only wait for a successor: the task manager
        ends that executor itself.
        """
        info = slot.task_manager
        waits = info.id in self.draining and not self.blocked.is_evacuated(info.id, info.node_id)
        return slot.decommissioned or not waits

    def _has_successor(self) -> bool:
        """True if an executor that stays can take blocks. Without one, Spark would drop the blocks."""
        return any(slot.takes_blocks and not (slot.leaving or slot.cordoned) for slot in self.held.values())

    def _overdue(self, slot: HeldSlot) -> str:
        what = "did not hand over its blocks and end" if slot.decommissioned else "found no other to hand its blocks to"
        return f"{what} within {self.limits.evacuation_timeout:g} s (blocklist.evacuation.timeout) and is ended"

    def _left(self, slot: HeldSlot, reason: str, *, orderly: bool) -> list[PoolEffect]:
        """Return the slot of an executor that had to end. This is not a failure, so no pause follows.

        The replacement of a leaving executor was requested already. An executor that ends with its application is not
        reported as lost.
        """
        where = f"{slot.executor_id}, leaving {slot.task_manager.id}," if slot.leaving else f"{slot.executor_id}"
        reason = f"executor {where} {reason}"
        orderly = orderly or self.stopping
        gone = RemoveExecutor(slot.executor_id, slot.task_manager.id, reason, orderly=orderly)
        return [*self._give_back(slot), gone, StatusChanged()]

    def _is_to_end(self, slot: HeldSlot) -> bool:
        return not slot.stays or self.stopping

    def _leave(self, slot: HeldSlot) -> list[PoolEffect]:
        reason = f"executor {slot.executor_id} leaves {slot.task_manager.id}, which takes nothing new"
        gone = RemoveExecutor(slot.executor_id, slot.task_manager.id, reason, orderly=True)
        return [*self._give_back(slot), gone, StatusChanged()]

    def _is_blocked(self, info: TaskManagerInfo) -> bool:
        return info.id in self.draining or self.blocked.is_blocked(info.id, info.node_id)

    def _is_left(self, info: TaskManagerInfo) -> bool:
        """True if what runs there must leave, too."""
        return info.id in self.draining or self.blocked.is_evacuated(info.id, info.node_id)

    def _must_leave(self, slot: HeldSlot) -> bool:
        """True if the slot may not stay as it is.

        A slot counts as free until its executor is known to run. So a blocked task manager keeps its executors but no
        free slots, and an evacuated place keeps only leaving slots.
        """
        info = slot.task_manager
        free = slot.state is ExecutorState.STARTING and not slot.registered
        return (free and self._is_blocked(info)) or (self._is_left(info) and not slot.leaving)

    # --- task managers, Spark, time ----------------------------------------------------------------------------------

    def _beat_answered(self, event: BeatAnswered, now: float) -> list[PoolEffect]:
        if self.lives.is_over(event.instance, now):
            return []  # a late message
        self.lives.review_strays(event, self.held)
        self.lives.heard_again(event.instance, now)
        found = {executor.allocation_id: executor for executor in event.executors}
        effects: list[PoolEffect] = []
        for allocation_id in event.asked:
            slot = self.held.get(allocation_id)
            if slot is None or slot.task_manager.id != event.task_manager:
                continue
            executor = found.get(allocation_id)
            if allocation_id not in event.allocations:
                anew = "" if slot.task_manager.instance == event.instance else "was started anew and "
                effects += self._drop(slot, f"its task manager {anew}does not hold the slot any more")
            elif executor is None:
                continue  # it is being started, or another instance has the slot and will offer it
            elif slot.task_manager.instance != event.instance:
                info = msgspec.structs.replace(slot.task_manager, instance=event.instance)
                effects += self._bind_again(slot, info, executor, now)
            else:
                effects += self._executor_found(executor, now)
        return effects

    def _executor_found(self, executor: FoundExecutor, now: float) -> list[PoolEffect]:
        key = (executor.allocation_id, executor.executor_id)
        if executor.state is None:
            return self._executor_exited(ExecutorExited(*key, executor.exit_code, executor.detail), now)
        if executor.state is ExecutorState.RUNNING:
            return self._executor_runs(ExecutorRuns(*key, executor.pid), now)
        return []

    def _task_manager_lost(self, event: TaskManagerLost, _: float) -> list[PoolEffect]:
        return self._lose(event.instance, event.reason)

    def _lose(self, instance: InstanceId, reason: str) -> list[PoolEffect]:
        effects: list[PoolEffect] = []
        for allocation_id in self.on_task_manager(instance):
            effects += self._abandon(self.held[allocation_id], reason)
        return effects

    def _abandon(self, slot: HeldSlot, reason: str) -> list[PoolEffect]:
        """Drop a slot that its task manager may still hold; the next beat that reaches it corrects that."""
        self.lives.stray(slot.task_manager)
        return self._drop(slot, reason)

    def _review_away(self, now: float) -> list[PoolEffect]:
        """Drop slots of silent task managers if Spark does not vouch for them, or after the orphan timeout."""
        effects: list[PoolEffect] = []
        for slot in list(self.held.values()):
            if not self.is_away(slot, now):
                continue
            silence = self.lives.silence(slot.task_manager.instance, now)
            if not slot.lives or silence > self.limits.orphan_timeout:
                effects += self._abandon(slot, f"its task manager has been silent for {silence:.0f} s")
        return effects

    def _spark_saw(self, event: SparkSaw, now: float) -> list[PoolEffect]:
        effects: list[PoolEffect] = []
        for slot in self.held.values():
            listed = slot.executor_id in event.executors
            slot.lives = listed and slot.executor_id not in event.silent
            slot.takes_blocks = slot.lives and slot.executor_id in event.takers
            rests, slot.cordoned = slot.cordoned, slot.executor_id in event.cordoned
            if rests != slot.cordoned:
                effects.append(StatusChanged())
            if listed:
                if not slot.registered:
                    effects.append(StatusChanged())
                slot.registered, slot.unseen_since = True, now
        effects += self._dismiss(event.idle, now)
        effects += self._review_away(now)
        for slot in list(self.held.values()):
            limit = self.limits.silence_timeout if slot.registered else self.limits.start_timeout
            if slot.executor_id not in event.executors and now - slot.unseen_since > limit:
                what = "is not known to Spark any more" if slot.registered else "did not register with Spark in time"
                if self._is_to_end(slot):
                    effects += self._left(slot, what, orderly=slot.decommissioned)
                else:
                    effects += self._ended(slot, what, now, failure=True)
        return effects

    def _dismiss(self, idle: frozenset[ExecutorId], now: float) -> list[PoolEffect]:
        """Let cordoned executors leave once they have nothing left to do or to keep (BLK-8)."""
        done = [slot for slot in self.held.values() if slot.outgoing and not slot.leaving and slot.executor_id in idle]
        return [effect for slot in done if slot.cordoned for effect in self._depart(slot, now)]

    def _cluster_lacks(self, event: ClusterLacks, _: float) -> list[PoolEffect]:
        self.missing, self._blocked_ones = event.missing, event.blocked
        return []

    def _tick(self, _: Tick, now: float) -> list[PoolEffect]:
        effects: list[PoolEffect] = []
        still = [until for until in self._pauses if until > now]
        if len(still) < len(self._pauses):
            self._pauses = still
            effects.append(StatusChanged())
        effects += self._review_away(now)
        if self._without_slot_since is not None and self._blocked_ones:
            self._without_slot_since = now  # the operator who blocked the nodes knows that the job waits
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


def _exit_text(exit_code: int | None, *, ran: bool) -> str:
    if exit_code is None:
        return "has ended; its exit code is not known" if ran else "could not be started"
    return f"was killed by signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise AssertionError(what)
