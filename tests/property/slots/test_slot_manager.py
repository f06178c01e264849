"""What must never happen when slots and driver places are given, with task managers that report late, twice, something
else or nothing, and jobs that come and go."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from emberkeep.base.errors import Conflict
from emberkeep.base.ids import AllocationId, InstanceId, JobId, TaskManagerId
from emberkeep.slots.ledger import DriverNeed, DriverUse, HeldReport, Member
from emberkeep.slots.model import Allocation, ResourceProfile, RuntimeVersions, SlotRequirement, TaskManagerInfo
from emberkeep.slots.namespace_quotas import NamespaceLimits
from emberkeep.slots.place_queue import DriverPlaceGranted
from emberkeep.slots.registered_task_managers import SilenceLimits
from emberkeep.slots.slot_manager import Allotted, SlotManager
from tests.campaign import examples

LOST_AFTER = 10.0
ORPHAN = 60.0
PENDING = 20.0
TEAM_SLOTS, TEAM_DRIVERS = 3, 1
PATIENCE = 30.0
FAIR_AFTER = 45.0  # seconds without a slot after which priorities do not count
RUNTIMES = [RuntimeVersions(python="3.11", spark="4.3.0"), RuntimeVersions(python="3.12", spark="4.3.0")]
PROFILES = [ResourceProfile(cores=1, memory_mb=1024), ResourceProfile(cores=2, memory_mb=3072)]


@dataclass
class Node:
    """The truth about one task manager: what really was allocated there."""

    info: TaskManagerInfo
    sequence: int = 0
    allocations: dict[AllocationId, Allocation] = field(default_factory=dict)
    drivers: dict[tuple[JobId, int], DriverUse] = field(default_factory=dict)
    newest: tuple[int, frozenset[AllocationId]] = (0, frozenset())  # of the reports that were delivered
    state: dict[JobId, int] = field(default_factory=dict)  # bytes
    lives: int = 1

    def delivered(self, sequence: int, allocations: tuple[Allocation, ...]) -> None:
        if sequence > self.newest[0]:
            self.newest = (sequence, frozenset(slot.id for slot in allocations))

    def resources(self) -> tuple[int, int, int, int]:
        """Slots, cores, memory and driver places in use."""
        slots = list(self.allocations.values())
        return (
            len(slots),
            sum(slot.profile.cores for slot in slots),
            sum(slot.profile.memory_mb for slot in slots) + sum(driver.memory_mb for driver in self.drivers.values()),
            len(self.drivers),
        )


@dataclass
class Tenant:
    """The truth about one job."""

    job_id: JobId
    order: int
    attempt: int = 0
    place: DriverPlaceGranted | None = None
    requirements: tuple[SlotRequirement, ...] = ()
    rests: bool = False  # it pauses before its next attempt

    @property
    def priority(self) -> int:
        """Every third job has a higher one."""
        return 5 if self.order % 3 == 0 else 0

    @property
    def namespace(self) -> str:
        """Every second job belongs to the only team with a quota."""
        return "team" if self.order % 2 == 0 else ""


class Places(NamedTuple):
    """The nodes that are blocked, and those of them that are evacuated."""

    nodes: frozenset[str]
    evacuated: frozenset[str] = frozenset()

    def is_blocked(self, task_manager: TaskManagerId, node_id: str) -> bool:
        return node_id in self.nodes

    def is_evacuated(self, task_manager: TaskManagerId, node_id: str) -> bool:
        return node_id in self.evacuated

    def vacant(self, present: Iterable[tuple[TaskManagerId, str]]) -> tuple[str, ...]:
        nodes = {node_id for _, node_id in present}
        return tuple(name for name in sorted(self.nodes) if name not in nodes)


class Cluster(RuleBasedStateMachine):
    """Decisions are carried out by obedient task managers, sooner or later; reports may come late or not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.slots = SlotManager(
            SilenceLimits(lost_after=LOST_AFTER, orphan_timeout=ORPHAN),
            pending_timeout=PENDING,
            patience=PATIENCE,
            priority_patience=FAIR_AFTER,
            quotas=NamespaceLimits(slots=TEAM_SLOTS, drivers=TEAM_DRIVERS),
        )
        self.ids = (AllocationId(f"{number:032x}") for number in itertools.count(1))
        self.nodes: dict[TaskManagerId, Node] = {}
        self.tenants: dict[JobId, Tenant] = {}
        self.orders: list[Allotted] = []  # decided, not arrived
        self.given: set[AllocationId] = set()
        self.jobs_made = 0
        self.given_up: set[AllocationId] = set()  # by their JobMasters, as their task managers were away or evacuated
        self.disturbed = False  # orders, reports or lives were lost, so what is decided may cross what is the case
        self.blocked: frozenset[str] = frozenset()
        self.late: list[tuple[Node, TaskManagerInfo, int, tuple[Allocation, ...], tuple[DriverUse, ...]]] = []

    @initialize(
        slots=st.integers(1, 4), counts=st.lists(st.integers(1, 6), min_size=2, max_size=3), settled=st.booleans()
    )
    def contention(self, slots: int, counts: list[int], settled: bool) -> None:
        """Two task managers and some jobs that are past their start and want more than there may be; ``settled``: they
        have what there is."""
        for _ in range(2):
            self._start_node(slots, ResourceProfile(cores=4, memory_mb=8192), 2, RUNTIMES[0])
        for count in counts:
            tenant = self._new_tenant()
            tenant.attempt = 1
            self.slots.jobs.add(tenant.job_id, tenant.order, 1, tenant.namespace, tenant.priority)
            tenant.requirements = (SlotRequirement(count=count, profile=PROFILES[0], runtime=RUNTIMES[0]),)
            self.slots.jobs.require(tenant.job_id, 1, "jm:1", tenant.requirements, {})
        if settled:
            self.match()
            while self.orders:
                self._allocate(self.orders.pop())
            for node in self.nodes.values():
                node.sequence += 1
                self._deliver(node, node.info, node.sequence, tuple(node.allocations.values()), ())

    # --- task managers ------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.nodes) < 4)
    @rule(slots=st.integers(0, 4), cores=st.integers(1, 4), memory=st.sampled_from([2048, 4096, 8192]), data=st.data())
    def node_starts(self, slots: int, cores: int, memory: int, data: st.DataObject) -> None:
        total = ResourceProfile(cores=cores, memory_mb=memory)
        self._start_node(slots, total, data.draw(st.integers(0, 2)), data.draw(st.sampled_from(RUNTIMES)))

    def _start_node(self, slots: int, total: ResourceProfile, places: int, runtime: RuntimeVersions) -> None:
        name = TaskManagerId(f"tm-{len(self.nodes)}")
        info = TaskManagerInfo(
            id=name,
            instance=InstanceId(f"{name}/1"),
            address=f"{name}:1",
            host=name,
            node_id=name,
            pid=1,
            slots=slots,
            driver_places=places,
            total=total,
            runtime=runtime,
            java_major=17,
            started_ms=1,
        )
        self.nodes[name] = Node(info)
        self._register(self.nodes[name])

    def _register(self, node: Node) -> None:
        node.sequence += 1
        drivers = tuple(node.drivers.values())
        allocations = tuple(node.allocations.values())
        self.slots.task_managers.register(node.info, HeldReport(node.sequence, allocations, drivers), self.now)
        self.slots.task_managers.take_local_state(node.info.id, dict(node.state))
        node.delivered(node.sequence, allocations)

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), adopts=st.booleans())
    def agent_restarts(self, data: st.DataObject, adopts: bool) -> None:
        """A new life takes over all that the old one held, or nothing; on a new disk it comes when the old one is
        silent."""
        node = data.draw(st.sampled_from(list(self.nodes.values())))
        before, node.lives = node.info, node.lives + 1
        member = self.slots.task_managers.get(before.id)
        heard = member is not None and not member.away
        self.disturbed = True
        node.info = msgspec.structs.replace(
            before,
            instance=InstanceId(f"{before.id}/{node.lives}"),
            predecessor=before.instance if adopts or heard else None,
        )
        if not adopts:
            node.allocations.clear()
            node.drivers.clear()
        node.sequence, node.newest = 0, (0, frozenset())
        self.given_up -= node.allocations.keys()  # its JobMaster is going to refuse them
        self._register(node)
        for tenant in self.tenants.values():
            if tenant.place is not None and tenant.place.info.id == before.id:
                tenant.place = None
                self.slots.jobs.request_place(tenant.job_id, DriverNeed(512, ""), tenant.attempt + 1, self.now)

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), later=st.booleans(), moved=st.booleans())
    def stranger_claims_an_id(self, data: st.DataObject, later: bool, moved: bool) -> None:
        """Refused while the first one is heard, and nothing has changed then."""
        node = data.draw(st.sampled_from(list(self.nodes.values())))
        member = self.slots.task_managers.get(node.info.id)
        if member is None or member.away:
            return
        stranger = msgspec.structs.replace(
            node.info,
            instance=InstanceId(f"{node.info.id}/stranger"),
            predecessor=None,
            host="elsewhere" if moved else node.info.host,
            started_ms=node.info.started_ms + (1 if later else -1),
        )
        with pytest.raises(Conflict):
            self.slots.task_managers.register(stranger, HeldReport(1), self.now)
        assert self.slots.task_managers.get(node.info.id) is member

    @precondition(lambda self: self.nodes and self.tenants)
    @rule(data=st.data(), size=st.sampled_from([0, 100, 250, 1000]))
    def state_grows(self, data: st.DataObject, size: int) -> None:
        node = data.draw(st.sampled_from(list(self.nodes.values())))
        node.state[data.draw(st.sampled_from(list(self.tenants)))] = size
        if self.slots.task_managers.get(node.info.id) is not None:
            self.slots.task_managers.take_local_state(node.info.id, dict(node.state))

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), late=st.booleans())
    def node_reports(self, data: st.DataObject, late: bool) -> None:
        node = data.draw(st.sampled_from(list(self.nodes.values())))
        node.sequence += 1
        report = (node, node.info, node.sequence, tuple(node.allocations.values()), tuple(node.drivers.values()))
        if late:
            self.late.append(report)
        else:
            self._deliver(*report)

    @precondition(lambda self: self.orders)
    @rule()
    def report_is_overtaken(self) -> None:
        """A report is under way while an order arrives; the next report tells of that one and comes first."""
        order = self.orders.pop(0)
        node = self.nodes[order.info.id]
        node.sequence += 1
        report = tuple(node.allocations.values()), tuple(node.drivers.values())
        self.late.append((node, node.info, node.sequence, *report))
        self.disturbed = self.disturbed or not self.slots.is_pending(order.allocation.id)
        self._allocate(order)
        node.sequence += 1
        self._deliver(node, node.info, node.sequence, tuple(node.allocations.values()), tuple(node.drivers.values()))

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def late_report_arrives(self, data: st.DataObject) -> None:
        self._deliver(*self.late.pop(data.draw(st.integers(0, len(self.late) - 1))))

    def _deliver(
        self,
        node: Node,
        info: TaskManagerInfo,
        sequence: int,
        allocations: tuple[Allocation, ...],
        drivers: tuple[DriverUse, ...],
    ) -> None:
        report = HeldReport(sequence, allocations, drivers)
        if info != node.info:
            with contextlib.suppress(Conflict):
                known = self.slots.task_managers.take_report(info.id, info.instance, report, self.now)
                assert not known, "a life that is over is not listened to"
        elif self.slots.task_managers.take_report(info.id, info.instance, report, self.now):
            node.delivered(sequence, allocations)
        else:
            self._register(node)

    @precondition(lambda self: self.orders)
    @rule(data=st.data(), fate=st.sampled_from(["arrives", "refused", "lost"]))
    def order_ends(self, data: st.DataObject, fate: str) -> None:
        order = self.orders.pop(data.draw(st.integers(0, len(self.orders) - 1)))
        self.disturbed = self.disturbed or fate != "arrives"
        if fate == "refused":
            self.slots.take_refusal(order.allocation.id, self.now)
        elif fate == "arrives":
            self.disturbed = self.disturbed or not self.slots.is_pending(order.allocation.id)
            self._allocate(order)

    def _allocate(self, order: Allotted) -> None:
        node = self.nodes[order.info.id]
        tenant = self.tenants.get(order.allocation.job_id)
        if tenant is None or tenant.attempt != order.allocation.attempt:
            return  # its JobMaster is gone: nobody accepts the offer
        slots, cores, memory, _ = node.resources()
        wanted = order.allocation.profile
        total = node.info.total
        fits = slots < node.info.slots and cores + wanted.cores <= total.cores
        if not fits or memory + wanted.memory_mb > total.memory_mb:
            assert self.disturbed, "resources are never exceeded, unless an order that was given up still arrived"
            self.slots.take_refusal(order.allocation.id, self.now)
            return
        node.allocations[order.allocation.id] = order.allocation

    @precondition(lambda self: any(node.allocations for node in self.nodes.values()))
    @rule(data=st.data())
    def executor_ends(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from([node for node in self.nodes.values() if node.allocations]))
        del node.allocations[data.draw(st.sampled_from(list(node.allocations)))]

    # --- jobs ---------------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.tenants) < 4)
    @rule(memory=st.sampled_from([512, 1500, 4096]), python=st.sampled_from(["", "3.11", "3.12"]))
    def job_arrives(self, memory: int, python: str) -> None:
        tenant = self._new_tenant()
        self.slots.jobs.add(tenant.job_id, tenant.order, 0, tenant.namespace, tenant.priority)
        self.slots.jobs.request_place(tenant.job_id, DriverNeed(memory, python), 1, self.now)

    def _new_tenant(self) -> Tenant:
        self.jobs_made += 1
        tenant = Tenant(JobId(f"{self.jobs_made:032x}"), self.jobs_made)
        self.tenants[tenant.job_id] = tenant
        return tenant

    @precondition(lambda self: any(tenant.place for tenant in self.tenants.values()))
    @rule(data=st.data(), memory=st.sampled_from([512, 1500]))
    def driver_starts(self, data: st.DataObject, memory: int) -> None:
        tenant = data.draw(st.sampled_from([tenant for tenant in self.tenants.values() if tenant.place]))
        assert tenant.place is not None
        tenant.attempt += 1
        self.slots.jobs.begin_attempt(tenant.job_id, tenant.attempt, self.now)
        node = self.nodes[tenant.place.info.id]
        tenant.place = None
        member = self.slots.task_managers.get(node.info.id)
        reserved = member.reservations.get(tenant.job_id) if member else None
        if reserved is not None:
            driver = DriverUse(tenant.job_id, tenant.attempt, reserved.memory_mb, live=True)
            node.drivers[tenant.job_id, tenant.attempt] = driver

    @precondition(lambda self: any(tenant.attempt for tenant in self.tenants.values()))
    @rule(data=st.data(), counts=st.tuples(st.integers(0, 4), st.integers(0, 2)), runtime=st.sampled_from(RUNTIMES))
    def job_requires(self, data: st.DataObject, counts: tuple[int, int], runtime: RuntimeVersions) -> None:
        tenant = data.draw(st.sampled_from([tenant for tenant in self.tenants.values() if tenant.attempt]))
        tenant.requirements = tuple(
            SlotRequirement(count=count, profile=profile, runtime=runtime)
            for count, profile in zip(counts, PROFILES, strict=True)
        )
        held = {key: member.info.id for key, member in self.slots.jobs.by_id[tenant.job_id].held.items()}
        self.slots.jobs.require(tenant.job_id, tenant.attempt, "jm:1", tenant.requirements, held)

    @precondition(
        lambda self: self.tenants and any(each.away or each.is_evacuated for each in self.slots.task_managers.all())
    )
    @rule(data=st.data())
    def job_master_gives_up(self, data: st.DataObject) -> None:
        """Some slots on task managers that are away or evacuated; replacements are wanted at once."""
        holders = {
            job_id: None
            for job_id in self.tenants
            for each in self.slots.jobs.by_id[job_id].spread
            if each.away or each.is_evacuated
        }
        tenant = self.tenants[data.draw(st.sampled_from([*holders] or [*self.tenants]))]
        account = self.slots.jobs.by_id[tenant.job_id]
        if account.over or not tenant.attempt:
            return
        going = [key for key, member in account.held.items() if member.away or member.is_evacuated]
        given_up = set(data.draw(st.lists(st.sampled_from(going), min_size=1, unique=True))) if going else set()
        held = {key: member.info.id for key, member in account.held.items() if key not in given_up}
        self.given_up |= given_up
        self.slots.jobs.require(tenant.job_id, tenant.attempt, "jm:1", tenant.requirements, held)
        assert not given_up & account.held.keys()
        assert held.keys() == account.held.keys(), "nothing else is given up"

    @precondition(lambda self: self._kept_after_all())
    @rule(data=st.data())
    def job_master_keeps(self, data: st.DataObject) -> None:
        """A slot that it had given up, as the evacuation is over before its executor was told to leave."""
        key, member = data.draw(st.sampled_from(self._kept_after_all()))
        tenant = self.tenants[member.allocations[key].job_id]
        account = self.slots.jobs.by_id[tenant.job_id]
        held = {key: member.info.id for key, member in account.held.items()}
        self.given_up.discard(key)
        self.slots.jobs.require(
            tenant.job_id, tenant.attempt, "jm:1", tenant.requirements, {**held, key: member.info.id}
        )
        assert account.held.keys() == {*held, key}, "it counts again"

    def _kept_after_all(self) -> list[tuple[AllocationId, Member]]:
        """What was given up, is still reported, and belongs to an attempt that goes on."""
        return [
            (key, member)
            for member in self.slots.task_managers.all()
            for key, slot in member.allocations.items()
            if key in self.given_up
            and not (member.away or member.is_evacuated)
            and slot.job_id in self.tenants
            and slot.attempt == self.slots.jobs.by_id[slot.job_id].attempt
            and not self.slots.jobs.by_id[slot.job_id].over
        ]

    @precondition(lambda self: any(tenant.attempt for tenant in self.tenants.values()))
    @rule(data=st.data())
    def driver_ends(self, data: st.DataObject) -> None:
        """Its task manager reports that before it is known what follows."""
        tenant = data.draw(st.sampled_from([tenant for tenant in self.tenants.values() if tenant.attempt]))
        for node in self.nodes.values():
            node.drivers = {key: use for key, use in node.drivers.items() if key[0] != tenant.job_id}

    @precondition(lambda self: any(tenant.rests for tenant in self.tenants.values()))
    @rule(data=st.data())
    def pause_ends(self, data: st.DataObject) -> None:
        tenant = data.draw(st.sampled_from([tenant for tenant in self.tenants.values() if tenant.rests]))
        tenant.rests = False
        self.slots.jobs.request_place(tenant.job_id, DriverNeed(512, ""), tenant.attempt + 1, self.now)

    @precondition(lambda self: any(tenant.attempt for tenant in self.tenants.values()))
    @rule(data=st.data(), ends=st.booleans(), rests=st.booleans(), closes=st.booleans())
    def attempt_ends(self, data: st.DataObject, ends: bool, rests: bool, closes: bool) -> None:
        """``rests``: there is a pause before the next attempt. ``closes``: its slots are freed before its end is
        known."""
        tenant = data.draw(st.sampled_from([tenant for tenant in self.tenants.values() if tenant.attempt]))
        if closes:
            self.slots.jobs.close_requirements(tenant.job_id, tenant.attempt, self.now, returns=not ends)
            self._free_slots_of(tenant)
        self.slots.jobs.end_attempt(tenant.job_id, tenant.attempt, self.now, returns=not ends)
        tenant.place = None
        self.disturbed = True
        for node in self.nodes.values():  # task managers free what is over
            node.drivers = {key: use for key, use in node.drivers.items() if key[0] != tenant.job_id}
        self._free_slots_of(tenant)
        tenant.rests = rests and not ends
        if ends:
            self.slots.jobs.remove(tenant.job_id)
            del self.tenants[tenant.job_id]
        elif not rests:
            self.slots.jobs.request_place(tenant.job_id, DriverNeed(512, ""), tenant.attempt + 1, self.now)

    def _free_slots_of(self, tenant: Tenant) -> None:
        for node in self.nodes.values():
            node.allocations = {key: slot for key, slot in node.allocations.items() if slot.job_id != tenant.job_id}

    @rule(seconds=st.sampled_from([1.0, 3.0, 11.0, 31.0]), alive=st.booleans())
    def time_passes(self, seconds: float, alive: bool) -> None:
        self.now += seconds
        self.disturbed = self.disturbed or seconds > PENDING / 2 or not alive
        if alive:
            for node in self.nodes.values():
                self.slots.task_managers.take_heartbeat(node.info.id, node.info.instance, 0, self.now)
        lapsed = self.slots.expire(self.now)
        lost = {info.id for info, _ in lapsed.lost} | {info.id for info in lapsed.away}
        for tenant in self.tenants.values():
            if tenant.place is not None and tenant.place.info.id in lost:
                tenant.place = None
                self.slots.jobs.request_place(tenant.job_id, DriverNeed(512, ""), tenant.attempt + 1, self.now)

    @rule(blocked=st.frozensets(st.sampled_from([f"tm-{number}" for number in range(4)]), max_size=2), data=st.data())
    def nodes_are_blocked(self, blocked: frozenset[str], data: st.DataObject) -> None:
        self.blocked = blocked
        evacuated = frozenset(node for node in sorted(blocked) if data.draw(st.sampled_from([True, True, False])))
        self.slots.restrictions.block(Places(blocked, evacuated))
        for member in self.slots.task_managers.all():
            assert member.is_evacuated == (member.info.id in evacuated or member.is_draining)
        if evacuated and self.tenants:
            self.job_master_gives_up(data)
        # What was decided is given up, and may arrive all the same.
        self.disturbed = self.disturbed or any(order.info.id in blocked for order in self.orders)

    @precondition(lambda self: self.nodes and not any(member.is_leaving for member in self.slots.task_managers.all()))
    @rule(data=st.data(), drains=st.booleans())
    def node_is_about_to_end(self, data: st.DataObject, drains: bool) -> None:
        """Its next life is not."""
        members = self.slots.task_managers.all()
        if members:
            member = data.draw(st.sampled_from(members))
            self.slots.restrictions.take_leaving(member.info.id, drains=drains)
            self.slots.restrictions.take_leaving(member.info.id, drains=drains)
            assert self.slots.restrictions.draining() == ({member.info.id} if drains else set())
            self.disturbed = self.disturbed or any(order.info.id == member.info.id for order in self.orders)

    # --- decisions ----------------------------------------------------------------------------------------------------

    @rule()
    def match(self) -> None:
        room = {member.info.id: _room(self.slots, member.info.id) for member in self.slots.task_managers.all()}
        avoided = {member.info.id for member in self.slots.task_managers.all() if member.avoided or member.away}
        avoided |= {TaskManagerId(name) for name in self.blocked}
        leaving = {member.info.id for member in self.slots.task_managers.all() if member.is_leaving}
        avoided |= leaving
        spread = {
            (job_id, member.info.id): count
            for job_id in self.tenants
            for member, count in self.slots.jobs.by_id[job_id].spread.items()
        }
        held = {job_id: len(self.slots.jobs.by_id[job_id].held) for job_id in self.tenants}
        priorities = self._priorities()
        drivers = self._drivers_of_the_team()
        returning = self._returning()
        wants = {job_id: self._wants(job_id) for job_id in self.tenants}
        restarting = {
            key
            for key, account in self.slots.jobs.by_id.items()
            if account.need is not None
            and account.place_kept_until is not None
            and (home := account.reserved_on) is not None
            and not home.avoided
        }
        matches = self.slots.match(self.now, lambda: next(self.ids))
        assert restarting <= {granted.job_id for granted in matches.places}, "a place that was kept is still there"
        for granted in matches.places:
            tenant = self.tenants[granted.job_id]
            assert tenant.place is None, "a job has one driver place at a time"
            assert granted.info.node_id not in self.blocked, "no driver goes to a blocked node"
            assert granted.info.id not in leaving, "nor to one that is about to end"
            tenant.place = granted
        granted_to_team = sum(self.tenants[granted.job_id].namespace != "" for granted in matches.places)
        assert drivers + granted_to_team <= TEAM_DRIVERS or not granted_to_team, "no driver above the quota"
        if not matches.places:  # else the room has changed before the slots were given
            for member in self.slots.task_managers.all():
                room[member.info.id][2] -= member.withheld_memory  # kept for a driver that has waited for long
            self._judge(matches.slots, room, avoided, held, wants, spread, priorities, returning)
        for allotted in matches.slots:
            assert allotted.allocation.id not in self.given, "a slot is given once"
            self.given.add(allotted.allocation.id)
            assert self.tenants[allotted.allocation.job_id].attempt == allotted.allocation.attempt
            self.orders.append(allotted)

    def _priorities(self) -> dict[JobId, int]:
        """The priorities of jobs while they hold no slot: those that have waited for long count as the highest."""
        accounts = self.slots.jobs.by_id
        top = max((self.tenants[key].priority for key, account in accounts.items() if account.wants), default=0)
        since = {key: account.without_slot_since for key, account in accounts.items()}
        starved = {key for key, begun in since.items() if begun is not None and self.now - begun >= FAIR_AFTER}
        return {key: top if key in starved else tenant.priority for key, tenant in self.tenants.items()}

    def _returning(self) -> dict[JobId, int]:
        """How many slots jobs that have restarted get before all others."""
        accounts = self.slots.jobs.by_id.items()
        return {key: account.returning if self.now < account.kept_until else 0 for key, account in accounts}

    def _drivers_of_the_team(self) -> int:
        accounts = self.slots.jobs.by_id.values()
        return sum(account.has_driver and account.need is None for account in accounts if account.namespace)

    def _wants(self, job_id: JobId) -> list[tuple[SlotRequirement, int]]:
        """What a job lacks, counted here from what the task managers are known to hold for it."""
        account, tenant = self.slots.jobs.by_id[job_id], self.tenants[job_id]
        if account.over:
            return []
        mine = [
            slot.profile
            for member in self.slots.task_managers.all()
            for slot in {**member.allocations, **member.pending}.values()
            if slot.job_id == job_id and slot.attempt == tenant.attempt and slot.id not in self.given_up
        ]
        return [(wish, max(0, wish.count - mine.count(wish.profile))) for wish in account.requirements]

    def _judge(
        self,
        decisions: tuple[Allotted, ...],
        room: dict[TaskManagerId, list[int]],
        closed: set[TaskManagerId],
        held: dict[JobId, int],
        wants: dict[JobId, list[tuple[SlotRequirement, int]]],
        spread: dict[tuple[JobId, TaskManagerId], int],
        priorities: dict[JobId, int],
        returning: dict[JobId, int],
    ) -> None:
        """Replay the decisions one by one: none may pass over a job that comes first and could use that very slot, and
        at the end nobody may lack a slot that is free. The quota of the team excuses both."""
        missing = {job_id: dict(wishes) for job_id, wishes in wants.items() if wishes}

        def may_have(job: JobId) -> bool:
            team = [each for each, tenant in self.tenants.items() if tenant.namespace]
            accounts = {each: self.slots.jobs.by_id[each] for each in team}
            used = sum(held[each] + one.uses - len(one.held) for each, one in accounts.items())
            return job not in team or used < TEAM_SLOTS

        def rank(job: JobId) -> tuple[bool, bool, int, int, int]:
            tenant, holds = self.tenants[job], held[job] > 0
            return not returning[job], holds, -(tenant.priority if holds else priorities[job]), held[job], tenant.order

        for allotted in decisions:
            job_id, node = allotted.allocation.job_id, self.nodes[allotted.info.id]
            assert node.info.id not in closed
            assert may_have(job_id), "no slot above the quota"
            mine = rank(job_id)
            for other, wishes in missing.items():
                theirs = rank(other)
                if theirs < mine:
                    fitting = [wish for wish, count in wishes.items() if count and _fits(wish, node, room)]
                    usable = fitting if may_have(other) else []
                    assert not usable, f"{job_id} with {mine} got a slot before {other} with {theirs}"
            wish = next(wish for wish in missing[job_id] if wish.profile == allotted.allocation.profile)
            assert wish.runtime == node.info.runtime, "executors run what their driver runs"
            assert _fits(wish, node, room), "resources are never exceeded"
            shares = {
                key: other.state.get(job_id, 0) / (spread.get((job_id, key), 0) + 1)
                for key, other in self.nodes.items()
                if key not in closed and _fits(wish, other, room)
            }
            assert shares[node.info.id] == max(shares.values()), "it goes where the job's state lies, by shares"
            spread[job_id, node.info.id] = spread.get((job_id, node.info.id), 0) + 1
            missing[job_id][wish] -= 1
            assert missing[job_id][wish] >= 0, "no more than was asked for"
            _use(room[node.info.id], allotted.allocation.profile)
            held[job_id] += 1
            returning[job_id] = max(0, returning[job_id] - 1)
        if self.slots._due.slots:
            return
        for job_id, wishes in missing.items():
            for wish, count in wishes.items():
                free = [key for key in room if key not in closed and _fits(wish, self.nodes[key], room)]
                lacks = count and free and decisions and may_have(job_id)
                assert not lacks, f"{job_id} lacks a slot although {free} have one"

    # --- truths -------------------------------------------------------------------------------------------------------

    @invariant()
    def accounts_agree(self) -> None:
        self.slots.check_invariants()

    @invariant()
    def the_newest_report_counts(self) -> None:
        for member in self.slots.task_managers.all():
            assert set(member.allocations) == self.nodes[member.info.id].newest[1], "late reports change nothing"

    @invariant()
    def what_is_held_is_kept_while_its_task_manager_is_away(self) -> None:
        for member in self.slots.task_managers.all():
            if member.away:
                assert (
                    self.now - self.slots.task_managers._away[member] < ORPHAN + 31.0
                )  # as long as time passes in one step

    def teardown(self) -> None:
        """When every job ends and every task manager reports, nothing stays reserved."""
        for job_id in list(self.tenants):
            self.slots.jobs.remove(job_id)
        for node in self.nodes.values():
            node.allocations.clear()
            node.drivers.clear()
            node.sequence += 1
            self._deliver(node, node.info, node.sequence, (), ())
        self.slots.expire(self.now)
        self.slots.check_invariants()
        for member in self.slots.task_managers.all():
            everything = (member.info.total.cores, member.info.total.memory_mb)
            assert (member.free_cores, member.free_memory) == everything, "nothing leaks"
            slots, places = (0, 0) if member.is_leaving else (member.info.slots, member.info.driver_places)
            assert (member.free_slots, member.free_places) == (slots, places), "no slot and no driver place leaks"
            assert member.claimed_by is None


def _room(slots: SlotManager, name: TaskManagerId) -> list[int]:
    member = slots.task_managers.get(name)
    assert member is not None
    taken = [slot.profile for slot in {**member.allocations, **member.pending, **member.kept}.values()]
    drivers = [driver.memory_mb for driver in member.drivers] + [r.memory_mb for r in member.reservations.values()]
    return [
        member.info.slots - len(taken),
        member.info.total.cores - sum(profile.cores for profile in taken),
        member.info.total.memory_mb - sum(profile.memory_mb for profile in taken) - sum(drivers),
    ]


def _fits(wish: SlotRequirement, node: Node, room: dict[TaskManagerId, list[int]]) -> bool:
    if node.info.id not in room or wish.runtime != node.info.runtime:
        return False
    slots, cores, memory = room[node.info.id]
    return slots >= 1 and cores >= wish.profile.cores and memory >= wish.profile.memory_mb


def _use(room: list[int], profile: ResourceProfile) -> None:
    room[0] -= 1
    room[1] -= profile.cores
    room[2] -= profile.memory_mb


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=examples(38), stateful_step_count=40, deadline=None)
