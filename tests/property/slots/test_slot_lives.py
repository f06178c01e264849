"""A JobMaster's pool and the tables of its task managers, which die and come back, over a network that loses, repeats
and reorders what they say to each other: no executor in two slots, no slot with two executors, and in the end each
allocation is held by both sides or by none."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from emberkeep.base.errors import Conflict, EmberkeepError, RetryLater
from emberkeep.base.ids import AllocationId, ExecutorId, InstanceId, JobId, TaskManagerId
from emberkeep.slots.model import ResourceProfile, RuntimeVersions, SlotRequirement, TaskManagerInfo
from emberkeep.slots.pool import events as pool
from emberkeep.slots.pool.held_slot import ExecutorState, HeldSlot
from emberkeep.slots.pool.limits import PoolLimits
from emberkeep.slots.pool.machine import SlotPool
from emberkeep.slots.table import events as table
from emberkeep.slots.table.machine import SlotTable
from emberkeep.slots.table.record import TableRecord, record_table, restore_table
from emberkeep.slots.table.slot import Slot, SlotState
from emberkeep.slots.table.state import TableLimits, TableState
from tests.campaign import examples

JOB, ATTEMPT = JobId("j"), 1
PROFILE = ResourceProfile(cores=1, memory_mb=500)
TOTAL = ResourceProfile(cores=3, memory_mb=1500)
RUNTIME = RuntimeVersions(python="3.11", spark="4.3.0")
SILENCE = 10.0
POOL = PoolLimits(
    max_failures=10_000,
    failure_window=100.0,
    backoff_initial=0.5,
    backoff_max=1.0,
    request_timeout=0.0,
    silence_timeout=SILENCE,
    start_timeout=30.0,
    orphan_timeout=60.0,
    evacuation_timeout=25.0,
    reclaim_timeout=25.0,
)
TABLE = TableLimits(
    slots=3,
    driver_places=0,
    total=TOTAL,
    slot_timeout=5.0,
    recovery_timeout=15.0,
    silence_timeout=SILENCE,
    forget_after=60.0,
)
WANTED = 3


@dataclass
class Agent:
    """A task manager's process in one of its lives; ``table`` None: it is dead."""

    info: TaskManagerInfo
    table: SlotTable | None
    disk: TableRecord
    life: int = 1


@dataclass
class Letter:
    """A message under way: ``arrive`` is what it does. To or from a life other than the present one it does nothing
    where it belongs to that life."""

    what: str
    arrive: Callable[[], None]


class World(RuleBasedStateMachine):
    """Who executes what, and what is under way."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.pool = SlotPool(POOL)
        self.agents: dict[TaskManagerId, Agent] = {}
        self.processes: dict[ExecutorId, AllocationId] = {}  # living executors
        self.started: set[ExecutorId] = set()
        self.post: list[Letter] = []
        self.numbers = itertools.count()

    @initialize()
    def begins(self) -> None:
        for name in ("tm0", "tm1"):
            info = TaskManagerInfo(
                id=TaskManagerId(name),
                instance=InstanceId(f"{name}#1"),
                address=f"{name}:1",
                host=name,
                node_id=name,
                pid=1,
                slots=3,
                driver_places=0,
                total=TOTAL,
                runtime=RUNTIME,
                java_major=17,
                started_ms=0,
            )
            started = SlotTable(TableState(TABLE))
            self.agents[info.id] = Agent(info, started, record_table(started.state))
        requirement = SlotRequirement(count=WANTED, profile=PROFILE, runtime=RUNTIME)
        self.decide(pool.ApplicationStarted(requirement))

    # --- what actors do -----------------------------------------------------------------------------------------------

    def decide(self, event: pool.PoolEvent) -> pool.AcceptOffer | None:
        """As the JobMaster does. Returns its answer to an offer."""
        answer = None
        vouched = {
            key: slot.executor.id
            for key, slot in self.pool.state.held.items()
            if slot.executor.is_alive
            and slot.executor.id in self.processes
            and self.silence(slot) <= POOL.orphan_timeout
        }
        effects = self.pool.handle(event, self.now)
        if isinstance(event, pool.Tick | pool.SparkSaw):
            left = {key: slot.executor.id for key, slot in self.pool.state.held.items()}
            assert vouched.items() <= left.items(), "an executor that Spark hears is kept (P2)"
        for effect in effects:
            match effect:
                case pool.AcceptOffer():
                    answer = effect
                case pool.StartExecutorIn():
                    self.send_start(effect.allocation_id)
                case pool.ReleaseSlotAt():
                    self.send_release(effect.allocation_id, effect.address)
                case pool.RemoveExecutor():
                    self.ends(effect.executor_id)  # Spark tells it to end
                case _:
                    pass
        return answer

    def act(self, agent: Agent, event: table.TableEvent) -> None:
        """As the task manager does. Raises what its table raises."""
        assert agent.table is not None
        effects = agent.table.handle(event, self.now)
        agent.disk = record_table(agent.table.state)
        for effect in effects:
            match effect:
                case table.LaunchExecutor():
                    self.launch(agent, effect.allocation_id, effect.executor_id)
                case table.EndExecutor():
                    self.ends(effect.executor_id)
                    self.tell(agent, table.ExecutorEnded(effect.allocation_id, effect.executor_id, -9, ""))
                case _:
                    pass

    def tell(self, agent: Agent, event: table.TableEvent) -> None:
        """Something that the process notices by itself."""
        life = agent.life
        self.post.append(Letter("local", lambda: self.of_life(agent, life, lambda: self.act(agent, event))))

    def of_life(self, agent: Agent, life: int, action: Callable[[], None]) -> None:
        if agent.table is not None and agent.life == life:
            action()

    def launch(self, agent: Agent, allocation_id: AllocationId, executor_id: ExecutorId) -> None:
        assert executor_id not in self.started, "an executor is started once"
        assert allocation_id not in self.processes.values(), "no slot has two executors"
        self.started.add(executor_id)
        self.processes[executor_id] = allocation_id
        self.tell(agent, table.ExecutorStarted(allocation_id, executor_id, 7))

    def ends(self, executor_id: ExecutorId) -> None:
        allocation_id = self.processes.pop(executor_id, None)
        for agent in self.agents.values():
            if allocation_id is not None and agent.table is not None and allocation_id in agent.table.state.slots:
                self.tell(agent, table.ExecutorEnded(allocation_id, executor_id, 1, "killed"))

    # --- what they say to each other ----------------------------------------------------------------------------------

    def found(self, slots: list[Slot]) -> tuple[pool.FoundExecutor, ...]:
        states = {
            SlotState.STARTING: ExecutorState.STARTING,
            SlotState.RUNNING: ExecutorState.RUNNING,
            SlotState.EXITED: None,
        }
        return tuple(
            pool.FoundExecutor(slot.allocation.id, slot.executor_id, states[slot.state], slot.pid, slot.exit_code)
            for slot in slots
            if slot.executor_id is not None and slot.state in states
        )

    def offer(self, agent: Agent) -> None:
        assert agent.table is not None
        slots = list(agent.table.state.offers().get((JOB, ATTEMPT), ()))
        if not slots:
            return
        info, life, executors = agent.info, agent.life, self.found(slots)
        allocations = tuple(slot.allocation for slot in slots)
        offered = tuple(allocation.id for allocation in allocations)

        def arrive() -> None:
            running = {
                key: slot.executor.id
                for key, slot in self.pool.state.held.items()
                if any((one.executor_id, one.state) == (slot.executor.id, ExecutorState.RUNNING) for one in executors)
            }
            reply = self.decide(pool.SlotsOffered(info, allocations, executors))
            left = {key: slot.executor.id for key, slot in self.pool.state.held.items()}
            assert running.items() <= left.items(), "an executor that runs is kept"
            if reply is not None:
                answer = table.OfferAnswered(offered, reply.allocations, reply.later)
                self.post.append(Letter("answer", lambda: self.of_life(agent, life, lambda: self.act(agent, answer))))

        self.post.append(Letter("offer", arrive))

    def send_start(self, allocation_id: AllocationId) -> None:
        slot = self.pool.state.held[allocation_id]
        agent, executor_id = self.agents[slot.task_manager.id], slot.executor.id

        def arrive() -> None:
            held = self.pool.state.held.get(allocation_id)
            if held is None or held.executor.id != executor_id or held.executor.state is not ExecutorState.STARTING:
                return
            if agent.table is None:
                self.send_start(allocation_id)  # it is repeated until it is answered
                return
            try:
                self.act(agent, table.StartWanted(JOB, ATTEMPT, allocation_id, executor_id))
            except EmberkeepError as error:
                gone = pool.SlotGone(allocation_id, executor_id, error.message)
                self.post.append(Letter("answer", lambda: self.decided(gone)))

        self.post.append(Letter("start", arrive))

    def decided(self, event: pool.PoolEvent) -> None:
        self.decide(event)

    def send_release(self, allocation_id: AllocationId, address: str) -> None:
        agent = next(agent for agent in self.agents.values() if agent.info.address == address)

        def arrive() -> None:
            if agent.table is not None:
                self.act(agent, table.SlotReleased(JOB, ATTEMPT, allocation_id))
                self.post.append(Letter("answer", lambda: self.decided(pool.ReleaseDone(allocation_id))))

        self.post.append(Letter("release", arrive))

    def beat(self) -> None:
        for info, asked in self.pool.state.to_beat():
            agent = self.agents[info.id]
            self.post.append(Letter("beat", lambda agent=agent, asked=asked: self.beat_arrives(agent, asked)))  # type: ignore[misc]

    def beat_arrives(self, agent: Agent, asked: tuple[AllocationId, ...]) -> None:
        if agent.table is None:
            return
        try:
            self.act(agent, table.JobMasterHeard(JOB, ATTEMPT, asked))
        except RetryLater:
            return
        held = agent.table.state.held_by(JOB, ATTEMPT)
        reply = pool.BeatAnswered(
            agent.info.id,
            agent.info.instance,
            asked,
            tuple(slot.allocation.id for slot in held),
            self.found(held),
        )
        self.post.append(Letter("answer", lambda: self.decided(reply)))

    # --- what happens -------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.pool.state.held) < self.pool.state.target)
    @rule(name=st.sampled_from(["tm0", "tm1"]))
    def slot_is_allotted(self, name: str) -> None:
        agent = self.agents[TaskManagerId(name)]
        if agent.table is None:
            return
        allocation_id = AllocationId(f"al{next(self.numbers)}")
        try:
            self.act(agent, table.ReserveSlot(allocation_id, JOB, ATTEMPT, PROFILE, "driver:1"))
        except Conflict:
            return
        self.offer(agent)

    @precondition(lambda self: self.post)
    @rule(data=st.data(), fate=st.sampled_from(["comes", "comes", "comes", "repeated", "lost"]))
    def letter(self, data: st.DataObject, fate: str) -> None:
        index = data.draw(st.integers(0, len(self.post) - 1))
        letter = self.post[index]
        if fate != "repeated" or letter.what == "local":
            del self.post[index]
        if fate != "lost" or letter.what in ("local", "start"):  # a start is tried until it is answered
            letter.arrive()

    @rule(name=st.sampled_from(["tm0", "tm1"]))
    def agent_offers_again(self, name: str) -> None:
        agent = self.agents[TaskManagerId(name)]
        if agent.table is not None:
            self.offer(agent)

    @rule(name=st.sampled_from(["tm0", "tm1"]), node=st.booleans())
    def agent_dies(self, name: str, node: bool) -> None:
        """With its executors, or alone."""
        agent = self.agents[TaskManagerId(name)]
        if agent.table is None:
            return
        mine = [slot.executor_id for slot in agent.table.state.slots.values()]
        agent.table = None
        if node:
            for executor_id in filter(None, mine):
                self.ends(executor_id)

    @rule(name=st.sampled_from(["tm0", "tm1"]), looks=st.integers(3, 20))
    def agent_stays_away(self, name: str, looks: int) -> None:
        """For longer than silence is tolerated, perhaps for longer than executors without it are."""
        self.agents[TaskManagerId(name)].table = None
        for _ in range(looks):
            self.time_passes(4.0)
            self.spark_looks()

    @rule(name=st.sampled_from(["tm0", "tm1"]))
    def agent_comes_back(self, name: str) -> None:
        self.restart(self.agents[TaskManagerId(name)])

    def restart(self, agent: Agent) -> None:
        if agent.table is not None:
            return
        agent.life += 1
        agent.table = SlotTable(restore_table(TABLE, agent.disk, self.now))
        before = agent.info.instance
        agent.info = msgspec.structs.replace(
            agent.info, instance=InstanceId(f"{agent.info.id}#{agent.life}"), predecessor=before
        )
        for slot in list(agent.table.state.slots.values()):
            if slot.executor_id is None or slot.state is SlotState.EXITED:
                continue
            if slot.executor_id in self.processes:
                self.act(agent, table.ExecutorStarted(slot.allocation.id, slot.executor_id, 7))
            else:
                self.act(agent, table.ExecutorEnded(slot.allocation.id, slot.executor_id, None, "gone"))
        self.offer(agent)

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def executor_dies(self, data: st.DataObject) -> None:
        self.ends(data.draw(st.sampled_from(sorted(self.processes))))

    @rule()
    def looks(self) -> None:
        self.spark_looks()

    def spark_looks(self) -> None:
        self.decide(pool.SparkSaw(frozenset(self.processes)))

    def silence(self, slot: HeldSlot) -> float:
        view = self.pool.state.lives.views.get(slot.task_manager.instance)
        return float("inf") if view is None else self.now - view.heard_at

    @rule()
    def beats(self) -> None:
        self.beat()

    @rule(seconds=st.sampled_from([0.5, 2.0, 8.0]))
    def time_goes_on(self, seconds: float) -> None:
        self.time_passes(seconds)

    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.decide(pool.Tick())
        for agent in self.agents.values():
            if agent.table is not None:
                self.act(agent, table.Tick())

    # --- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def accounts_agree(self) -> None:
        self.pool.check_invariants()
        for agent in self.agents.values():
            if agent.table is not None:
                agent.table.check_invariants()

    @invariant()
    def each_slot_has_one_executor_and_each_executor_one_slot(self) -> None:
        places = list(self.processes.values())
        assert len(places) == len(set(places))

    @invariant()
    def each_executor_is_known_where_it_lives(self) -> None:
        for executor_id, allocation_id in self.processes.items():
            known = [
                slot
                for agent in self.agents.values()
                for slot in (agent.table.state.slots.values() if agent.table is not None else agent.disk.slots)
                if slot.allocation.id == allocation_id and slot.executor_id == executor_id
            ]
            assert known, f"executor {executor_id} in {allocation_id} belongs to nobody"

    def teardown(self) -> None:
        """Everybody comes back and the network works: both sides come to agree."""
        if not self.agents:
            return
        for agent in self.agents.values():
            self.restart(agent)
        for _ in range(40):
            for _ in range(1000):
                if not self.post:
                    break
                self.post.pop(0).arrive()
            self.now += 1.0
            self.beat()
            self.decide(pool.SparkSaw(frozenset(self.processes)))
            self.decide(pool.Tick())
            for agent in self.agents.values():
                assert agent.table is not None
                self.act(agent, table.Tick())
                self.offer(agent)
        held = {slot.allocation.id: slot.executor.id for slot in self.pool.state.held.values()}
        there = {
            slot.allocation.id: slot.executor_id
            for agent in self.agents.values()
            if agent.table is not None
            for slot in agent.table.state.slots.values()
        }
        assert held == there, "each allocation is held by both sides or by none"
        assert {allocation_id: executor_id for executor_id, allocation_id in self.processes.items()} == held
        for slot in self.pool.state.held.values():
            assert slot.executor.state is ExecutorState.RUNNING
            assert slot.task_manager.instance == self.agents[slot.task_manager.id].info.instance


TestSlotLives = pytest.mark.req("LOC-5")(World.TestCase)
TestSlotLives.settings = settings(max_examples=examples(30), stateful_step_count=60, deadline=None)
