"""The state of a slot pool, and queries on it. The state machine that changes it is in ``machine``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from emberkeep.base.ids import AllocationId, ExecutorId, InstanceId, TaskManagerId
from emberkeep.slots.blocked import BlocklistView, NothingBlocked
from emberkeep.slots.model import Reclaim, SlotRequirement, TaskManagerInfo, slots_are
from emberkeep.slots.pool.events import FailAttempt, PoolEffect, StatusChanged
from emberkeep.slots.pool.held_slot import HeldSlot
from emberkeep.slots.pool.limits import PoolLimits
from emberkeep.slots.pool.replacements import Replacements
from emberkeep.slots.pool.task_manager_lives import TaskManagerLives


class ClosedPlaces(NamedTuple):
    """Where nothing new may be placed: what the blocklist names, and ``draining`` task managers."""

    blocked: BlocklistView = NothingBlocked()
    draining: frozenset[TaskManagerId] = frozenset()

    def is_closed(self, info: TaskManagerInfo) -> bool:
        """True if no new slot or executor may be placed on this task manager."""
        return info.id in self.draining or self.blocked.is_blocked(info.id, info.node_id)

    def is_emptied(self, info: TaskManagerInfo) -> bool:
        """True if the work on this task manager must leave as well."""
        return info.id in self.draining or self.blocked.is_evacuated(info.id, info.node_id)

    def only_drains(self, info: TaskManagerInfo) -> bool:
        """True if the task manager drains, and no blocklist evacuates it."""
        return info.id in self.draining and not self.blocked.is_evacuated(info.id, info.node_id)


class PoolState:
    """The slots that one attempt needs and holds. Only the slot pool and its parts change it."""

    def __init__(self, limits: PoolLimits) -> None:
        self.limits = limits
        self.requirement: SlotRequirement | None = None
        self.decommissions = False  # True if executors can hand over what they keep
        self.idle_timeout: float | None = None  # after which Spark removes idle executors; None: it removes none
        self.reclaim: Reclaim | None = None  # what the JobManager asks for; it outlives an application
        self.surplus_since: float | None = None  # since when more is held than the application requires
        self.stopping = False  # True once the application begins to stop
        self.failed = False
        self.held: dict[AllocationId, HeldSlot] = {}
        self.releasing: dict[AllocationId, str] = {}  # given back, not confirmed by the task manager yet → its address
        self.given_up: dict[AllocationId, None] = {}  # allocations that were held once, oldest first
        self.lives = TaskManagerLives(late=limits.silence_timeout)
        self.places = ClosedPlaces()
        self.replacements = Replacements(limits)
        self.missing = ""  # what the cluster cannot provide now
        self.missing_blocked = False  # unblocking nodes may provide what is missing
        self.without_slot_since: float | None = None
        self.was_served = False  # the application has had a slot
        self.was_put_back = False  # the application has no slot because other jobs needed all that it had
        self._next_executor = 0

    # --- what the attempt needs ---------------------------------------------------------------------------------------

    @property
    def wanted(self) -> int:
        """Number of slots that the application requires.

        With dynamic allocation it may require none, but leaving executors need one that takes over what they keep.
        """
        if self.requirement is None:
            return 0
        count = self.requirement.count
        if self.ceiling is not None:
            count = min(count, self.ceiling)
        if self.is_put_back:
            return 0
        return 1 if count == 0 and any(slot.is_leaving for slot in self.held.values()) else count

    @property
    def ceiling(self) -> int | None:
        """The most slots that the attempt may have now, at least one unless it is put back; None for no limit.

        There is none if executors cannot hand over what they keep: their work would have to be done again.
        """
        if self.reclaim is None or not self.decommissions:
            return None
        return 0 if self.reclaim.whole else max(1, self.reclaim.ceiling)

    @property
    def is_put_back(self) -> bool:
        """True if the attempt has to do without any slot for now."""
        return self.ceiling == 0

    @property
    def given_back(self) -> int:
        """Number of slots that the application requires, and does without because of the ceiling."""
        if self.requirement is None or self.ceiling is None or self.stopping:
            return 0
        return max(0, self.requirement.count - self.ceiling)

    @property
    def is_elastic(self) -> bool:
        """True if Spark changes the number of executors while the application runs."""
        return self.idle_timeout is not None

    @property
    def staying(self) -> int:
        """Number of held slots that count towards the requirement."""
        return sum(slot.stays for slot in self.held.values())

    @property
    def target(self) -> int:
        """Number of slots needed now, including held ones that stay."""
        return 0 if self.failed or self.stopping else max(0, self.wanted - len(self.replacements.pauses))

    def declared(self) -> tuple[SlotRequirement, ...]:
        """Return the requirements that are sent to the ResourceManager.

        Slots whose executors Spark dismisses are taken until these end, so they are requested in addition.
        """
        if self.requirement is None:
            return ()
        count = max(self.target, self.staying) + sum(slot.is_dismissed for slot in self.held.values())
        return (SlotRequirement(count=count, profile=self.requirement.profile, runtime=self.requirement.runtime),)

    def waiting(self, now: float) -> str:
        """Return a text that names what the job is missing; "" if nothing is missing."""
        texts = []
        if self.given_back and self.reclaim is not None:
            texts.append(f"{slots_are(self.given_back)} given back: {self.reclaim.reason}")
        if self.stopping or self.staying >= self.wanted:
            return "".join(texts)
        if self.replacements.pauses:
            soonest = max(0.0, min(self.replacements.pauses) - now)
            texts.append(
                f"{len(self.replacements.pauses)} of {self.wanted} executors ended and will be replaced, "
                f"the next one in {soonest:.1f} s"
            )
        if self.staying < self.target and self.missing:
            texts.append(self.missing)
        return "; ".join(texts)

    # --- what the attempt holds ---------------------------------------------------------------------------------------

    def slot_of(self, allocation_id: AllocationId, executor_id: ExecutorId) -> HeldSlot | None:
        """Return the held slot if this executor is in it, else None."""
        slot = self.held.get(allocation_id)
        return slot if slot is not None and slot.executor.id == executor_id else None

    def on_task_manager(self, instance: InstanceId) -> tuple[AllocationId, ...]:
        """Return the allocations held on one instance of a task manager."""
        return tuple(key for key, slot in self.held.items() if slot.task_manager.instance == instance)

    def is_away(self, slot: HeldSlot, now: float) -> bool:
        """True if the task manager has been silent so long that only Spark shows that the executor is alive."""
        return self.lives.silence(slot.task_manager.instance, now) > self.limits.silence_timeout

    def must_end(self, slot: HeldSlot) -> bool:
        """True if the slot gets no other executor when this one has ended."""
        return not slot.stays or self.stopping

    def must_leave(self, slot: HeldSlot) -> bool:
        """True if the slot may not stay as it is.

        A slot counts as free until its executor is known to run. So a blocked task manager keeps its executors but no
        free slots, and an evacuated place keeps only leaving slots.
        """
        info = slot.task_manager
        if not slot.executor.is_known_to_run and self.places.is_closed(info):
            return True
        return self.places.is_emptied(info) and not slot.is_leaving

    def to_beat(self) -> list[tuple[TaskManagerInfo, tuple[AllocationId, ...]]]:
        """Return the task managers that get a heartbeat, each with the allocations held there."""
        return self.lives.to_beat(self.held)

    def decommissioned(self, allocations: Iterable[AllocationId]) -> tuple[AllocationId, ...]:
        """Return the slots in ``allocations`` whose executors must hand over what they keep and exit."""
        return tuple(key for key in allocations if self.held[key].is_decommissioned)

    def leaving(self) -> frozenset[ExecutorId]:
        """Return the executors that are leaving."""
        return frozenset(slot.executor.id for slot in self.held.values() if slot.is_leaving)

    def to_cordon(self) -> frozenset[ExecutorId]:
        """Return the outgoing executors that must take no new task, because enough others run in their place.

        For one whose disk is full, any other is enough: Spark fails a job in which one task has failed a few times, and
        the next try may go to the same executor.
        """
        needed = max(0, self.wanted - sum(slot.stays and slot.executor.is_alive for slot in self.held.values()))
        outgoing = [slot for slot in self.held.values() if slot.is_outgoing and slot.executor.is_registered]
        # Prefer to keep executors whose heartbeats reach Spark; among those, the ones that are not cordoned yet.
        outgoing.sort(key=lambda slot: (not slot.executor.is_alive, slot.executor.cordoned))
        able = [slot for slot in outgoing if not slot.executor.lacks_space]
        others = (slot for slot in self.held.values() if slot.stays)
        others_run = any(slot.executor.is_alive for slot in (*able, *others))
        kept = {slot.executor.id for slot in (able if others_run else outgoing)[:needed]}
        return frozenset(slot.executor.id for slot in outgoing if slot.executor.id not in kept)

    def doubted(self, now: float) -> frozenset[ExecutorId]:
        """Return the executors with silent task managers. Spark must be asked whether it receives their heartbeats."""
        return frozenset(slot.executor.id for slot in self.held.values() if self.is_away(slot, now))

    # --- changes that several parts of the machine make ---------------------------------------------------------------

    def new_executor_id(self) -> ExecutorId:
        """Return an id that no executor of this attempt has had."""
        self._next_executor += 1
        return ExecutorId(str(self._next_executor - 1))

    def fail(self, message: str) -> list[PoolEffect]:
        """Report the failure to the script. Held slots stay until the application stops."""
        self.failed = True
        return [FailAttempt(message), StatusChanged()]
