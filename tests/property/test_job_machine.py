"""What must never happen in a job's life, whatever the network, the stores, the task managers and the clock do."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from emberkeep.base.errors import IllegalTransition
from emberkeep.base.ids import InstanceId
from emberkeep.jobs import events as ev
from emberkeep.jobs.model import AttemptOutcome, JobStatus
from emberkeep.jobs.restart import ExponentialDelay, FixedDelay
from emberkeep.jobs.traces.moment import Moment
from emberkeep.jobs.traces.recovery_trace import TraceReport
from emberkeep.jobs.transitions import TRANSITIONS, Phase
from tests.campaign import examples
from tests.property.job_world import KILLED, MOVED, SCRIPT_FAILED, SUCCESS, JobWorld, TrueDriver, place

# Mostly what the job survives: a life that ended tests nothing more.
OUTCOMES = st.sampled_from([KILLED] * 6 + [MOVED, SUCCESS, SCRIPT_FAILED])
SETTLE_STEPS = 400


class JobLife(RuleBasedStateMachine):
    """Rules are what the outside may do. Truths that hold at each step are checked by the world and by ``true``.

    A driver that was let in may be cut off, but for less than its lease: longer silence is what the protocol takes for
    death, and such a driver is refused when it comes back.
    """

    def __init__(self) -> None:
        super().__init__()
        self.world = JobWorld(strategy=FixedDelay(10, 5.0))
        self.lost: set[str] = set()
        self.lives = 1

    def _alive(self) -> list[TrueDriver]:
        return [driver for driver in self.world.drivers.values() if driver.alive]

    def _pending(self, kind: type[ev.Effect]) -> bool:
        return any(isinstance(effect, kind) for effect in self.world.pending)

    # --- the resource manager and the store ---------------------------------------------------------------------------

    @precondition(lambda self: self._pending(ev.RequestPlace))
    @rule(number=st.integers(1, 2))
    def place_granted(self, number: int) -> None:
        self.world.grant(number, self.lives)

    @precondition(lambda self: self._pending(ev.ExplainPlace))
    @rule()
    def place_explained(self) -> None:
        self.world.take(ev.ExplainPlace)
        self.world.tell(ev.PlaceExplained("all 4 driver places are taken"))

    @precondition(lambda self: self._pending(ev.ExplainPlace))
    @rule()
    def places_are_blocked(self) -> None:
        self.world.take(ev.ExplainPlace)
        self.world.tell(ev.PlaceExplained("all 4 driver places are on blocked nodes", blocked=True))

    @precondition(lambda self: self._pending(ev.RecordAttempt))
    @rule(fate=st.sampled_from(["written", "unknown but written", "unknown"]))
    def attempt_written(self, fate: str) -> None:
        self.world.write_attempt(known=fate == "written", durable=fate != "unknown")

    @precondition(lambda self: self._pending(ev.RecordResult))
    @rule()
    def result_written(self) -> None:
        self.world.write_result()

    # --- orders to the task manager -----------------------------------------------------------------------------------

    @precondition(lambda self: self._pending(ev.StartDriver))
    @rule(answered=st.booleans())
    def start_arrives(self, answered: bool) -> None:
        if self.world.refuses_start():
            return
        driver = self.world.start()
        if answered:
            self.world.tell(ev.StartAccepted(driver.attempt))

    @precondition(lambda self: self._pending(ev.StartDriver))
    @rule()
    def start_refused(self) -> None:
        effect = self.world.take(ev.StartDriver)
        assert isinstance(effect, ev.StartDriver)
        if effect.attempt not in self.world.drivers:
            self.world.tell(ev.StartRefused(effect.attempt, "no room"))

    @precondition(lambda self: self._pending(ev.StartDriver) or self._pending(ev.StopDriver))
    @rule()
    def order_is_lost(self) -> None:
        if self.world.take(ev.StopDriver) is None:
            self.world.take(ev.StartDriver)

    @precondition(lambda self: any(not driver.alive for driver in self.world.drivers.values()))
    @rule(data=st.data())
    def old_start_arrives_again(self, data: st.DataObject) -> None:
        """An order that was under way for very long, or arrives twice, starts a driver of an old attempt."""
        gone = [driver for driver in self.world.drivers.values() if not driver.alive]
        driver = data.draw(st.sampled_from(gone))
        if driver.attempt < self.world.machine.state.attempt:
            driver.alive, driver.accepted = True, False
            assert not self.world.register(driver), "an old attempt is let in (HA-7)"

    @precondition(
        lambda self: (
            self.world.machine.state.attempt > 0 and self.world.stored_attempt == self.world.machine.state.attempt
        )
    )
    @precondition(lambda self: any(driver.accepted for driver in self.world.drivers.values()))
    @rule()
    def stop_is_recorded(self) -> None:
        """Some time after a driver has said that the job is suspended or drained."""
        if self.world.machine.state.phase is not Phase.ENDED and self.world.stored_result is None:
            self.world.stop()

    @precondition(lambda self: self._pending(ev.StopDriver))
    @rule()
    def stop_arrives_at_another_life(self) -> None:
        """The task manager that answers was started again, and does not know what its earlier life has received."""
        effect = self.world.take(ev.StopDriver)
        assert isinstance(effect, ev.StopDriver)
        self.world.refused.add(effect.attempt)
        self.world.tell(ev.DriverNeverThere(effect.attempt, InstanceId(f"{effect.place.instance}-later")))

    @precondition(lambda self: self._pending(ev.StopDriver))
    @rule(outcome=OUTCOMES)
    def stop_arrives(self, outcome: AttemptOutcome) -> None:
        effect = self.world.take(ev.StopDriver)
        assert isinstance(effect, ev.StopDriver)
        driver = self.world.drivers.get(effect.attempt)
        if driver is not None:
            driver.alive = False
            self.world.tell(ev.DriverExited(driver.attempt, driver.place, outcome))
        else:
            self.world.refused.add(effect.attempt)
            self.world.tell(ev.DriverNeverThere(effect.attempt, effect.place.instance))

    @initialize(steps=st.integers(0, 5), number=st.integers(1, 2))
    def set_out(self, steps: int, number: int) -> None:
        self.all_goes_well(steps, number)

    @rule(steps=st.integers(1, 5), number=st.integers(1, 2))
    def all_goes_well(self, steps: int, number: int) -> None:
        """Some steps on the straight way to RUNNING, so that what follows starts from everywhere on it."""
        for _ in range(steps):
            waiting = [driver for driver in self._alive() if not driver.accepted]
            if self._pending(ev.RequestPlace):
                self.world.grant(number, self.lives)
            elif self._pending(ev.RecordAttempt):
                self.world.write_attempt()
            elif self._pending(ev.StartDriver):
                self.world.start()
            elif waiting:
                self.world.tell(ev.DriverListed(waiting[0].attempt, waiting[0].place, 42))
                self.world.register(waiting[0])
            elif self.world.machine.state.phase is Phase.BACKING_OFF:
                self.time_passes(5.0, cut_off=True)

    # --- facts from the network, in any order and number --------------------------------------------------------------

    @precondition(lambda self: self.world.drivers)
    @rule(data=st.data())
    def driver_listed(self, data: st.DataObject) -> None:
        driver = data.draw(st.sampled_from(list(self.world.drivers.values())))
        if driver.alive and driver.place.instance not in self.lost:
            self.world.tell(ev.DriverListed(driver.attempt, driver.place, 42))

    @precondition(lambda self: self._alive())
    @rule(data=st.data())
    def jobmaster_registers(self, data: st.DataObject) -> None:
        self.world.register(data.draw(st.sampled_from(self._alive())))

    @rule(attempt=st.integers(0, 5), age=st.floats(), after=st.floats())
    def hear_a_trace(self, attempt: int, age: float, after: float) -> None:
        milestones = dict.fromkeys(("registered", "batch-committed", "unknown"), after)
        self.world.tell(ev.TraceReported(attempt, TraceReport(age=age, milestones=milestones)))

    @rule(attempt=st.integers(0, 5))
    def late_heartbeat(self, attempt: int) -> None:
        self.world.tell(ev.JobMasterHeard(attempt))

    @precondition(lambda self: self._alive())
    @rule(data=st.data(), outcome=OUTCOMES, told=st.booleans(), reported=st.booleans())
    def driver_ends(self, data: st.DataObject, outcome: AttemptOutcome, told: bool, reported: bool) -> None:
        driver = data.draw(st.sampled_from(self._alive()))
        driver.alive = False
        if told and driver.accepted and self.world.phase() is not Phase.WITHOUT_GRAPH:  # then it is to try again
            self.world.tell(ev.OutcomeReported(driver.attempt, outcome))
        if reported:
            self.world.tell(ev.DriverExited(driver.attempt, driver.place, outcome))

    @precondition(lambda self: self.world.drivers)
    @rule(data=st.data(), outcome=OUTCOMES)
    def exit_is_told_late_or_again(self, data: st.DataObject, outcome: AttemptOutcome) -> None:
        gone = [driver for driver in self.world.drivers.values() if not driver.alive]
        if gone:
            driver = data.draw(st.sampled_from(gone))
            self.world.tell(ev.DriverExited(driver.attempt, driver.place, outcome))

    @precondition(lambda self: self.world.drivers)
    @rule(data=st.data(), other_life=st.booleans())
    def driver_vanishes_from_a_report(self, data: st.DataObject, other_life: bool) -> None:
        driver = data.draw(st.sampled_from(list(self.world.drivers.values())))
        if other_life:
            self.world.tell(ev.DriverVanished(driver.attempt, place(9).instance))
        elif not driver.alive:
            self.world.tell(ev.DriverVanished(driver.attempt, driver.place.instance))

    @rule(number=st.integers(1, 2))
    def task_manager_reports_completely(self, number: int) -> None:
        where = place(number, self.lives)
        if where.instance not in self.lost:
            self.world.report_completely(where)

    @rule(number=st.integers(1, 2))
    def task_manager_lost(self, number: int) -> None:
        instance = place(number, self.lives).instance
        self.lost.add(instance)
        self.world.tell(ev.TaskManagerLost(instance))
        self.lives += 1

    @rule(number=st.integers(1, 2))
    def place_blocked(self, number: int) -> None:
        self.world.tell(ev.PlaceBlocked(place(number, self.lives).instance))
        assert self.world.machine.state.place != place(number, self.lives)

    @rule(attempt=st.integers(0, 5))
    def watchdog_restarts_it(self, attempt: int) -> None:
        self.world.tell(ev.RestartDriver(attempt, "no micro-batch was committed"))

    # --- people and time ----------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.world.machine.state.status.is_globally_terminal)
    @rule(really=st.integers(0, 5), grace=st.sampled_from([None, 0.0, 3.0]))
    def cancel(self, really: int, grace: float | None) -> None:
        if really == 0:
            self.world.tell(ev.CancelRequested(grace))

    @rule(seconds=st.sampled_from([0.5, 2.0, 5.0, 11.0]), cut_off=st.booleans())
    def time_passes(self, seconds: float, cut_off: bool) -> None:
        """A driver that was let in is heard of (or answered to end itself), unless it is cut off; but a driver that
        lives is never silent for its whole lease."""
        world = self.world
        world.now += seconds
        for driver in self._alive():
            if driver.accepted and not (cut_off and world.now - driver.heard_at < world.policy.lease):
                driver.heard_at = world.now
                world.tell(ev.JobMasterHeard(driver.attempt))
                if world.machine.state.refusal(driver.attempt):
                    driver.alive = False
        world.tell(ev.Tick())

    @rule(seconds=st.sampled_from([0.5, 11.0, 50.0, 500.0]))
    def leader_is_cut_off(self, seconds: float) -> None:
        """Nobody is heard for any time; no driver is given up for that, unless its job was cancelled."""
        world = self.world
        world.hears_since = None
        world.now += seconds
        over = any(isinstance(effect, ev.AttemptOver) for effect in world.tell(ev.Tick()))
        assert not over or world.machine.state.verdict_is(JobStatus.CANCELED), "a leader in doubt gives up nobody"
        world.hears_since = world.now
        for driver in self._alive():
            driver.heard_at = world.now  # who lives is not silent for a lease from now on

    @rule(attempt=st.integers(0, 5))
    def node_is_evacuated(self, attempt: int) -> None:
        self.world.tell(ev.MoveDriver(attempt))

    @precondition(lambda self: not self.world.machine.state.status.is_globally_terminal)
    @rule(without_graph=st.booleans())
    def jobmanager_restarts(self, without_graph: bool) -> None:
        if self.world.stored_result is None:
            self.world.restart(without_graph=without_graph)

    # --- the storage --------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.world.phase() is Phase.WITHOUT_GRAPH)
    @rule(seconds=st.sampled_from([0.0, 11.0, 500.0]))
    def graph_can_be_read(self, seconds: float) -> None:
        """After any time. Whatever had come to nobody's ears before that was not for this job to judge."""
        self.world.now += seconds
        alive = [driver for driver in self._alive() if driver.accepted]
        effects = self.world.read_graph()
        for driver in alive:
            driver.heard_at = self.world.now
            over = ev.AttemptOver(driver.attempt)
            assert over not in effects, "a driver that lives is not given up for the time without a graph (SAFE-1)"

    @precondition(lambda self: self.world.phase() is Phase.WITHOUT_GRAPH)
    @rule(really=st.integers(0, 5))
    def graph_is_looked_for_again(self, really: int) -> None:
        if really:
            self.world.tell(ev.GraphStillAway("/graph cannot be read now either"))
            assert "either" in self.world.machine.state.waiting()
            return
        self.world.take(ev.ReadGraph)
        self.world.tell(ev.GraphDamaged("/graph: damaged"))
        verdict = self.world.machine.state.verdict
        assert verdict is not None
        assert verdict.keeps_data is (verdict.status is JobStatus.FAILED), "what a damaged job has is kept (SAFE-3)"

    # --- truths -------------------------------------------------------------------------------------------------------

    @invariant()
    def one_attempt_lives(self) -> None:
        running = [driver.attempt for driver in self._alive() if driver.accepted]
        assert len(running) <= 1, f"attempts {running} live at once (P1)"

    @invariant()
    def numbers_grow(self) -> None:
        assert self.world.attempts_written == sorted(set(self.world.attempts_written))

    @invariant()
    def traces_are_in_order(self) -> None:
        traces = self.world.machine.state.history.traces()
        attempts = [trace.attempt for trace in traces]
        assert attempts == sorted(set(attempts)), "one trace for each attempt"
        for trace in traces:
            seconds = [reached.seconds for reached in trace.milestones]
            assert seconds == sorted(seconds)
            assert seconds[:1] in ([], [0.0])

    @invariant()
    def not_stuck(self) -> None:
        machine = self.world.machine
        answers = (ev.ReadGraph, ev.RequestPlace, ev.ExplainPlace, ev.RecordAttempt, ev.RecordResult)
        awaited = any(isinstance(effect, answers) for effect in self.world.pending)
        assert machine.state.status.is_globally_terminal or awaited or machine.state.deadline() is not None

    def teardown(self) -> None:
        """From wherever it is, a well-behaved world brings the job to an end, and everything of it is given back."""
        if self.world.machine.state.phase is Phase.NEW:
            return
        for _ in range(SETTLE_STEPS):
            if self.world.machine.state.status.is_globally_terminal and not self._pending(ev.RecordResult):
                break
            self._settle()
        assert self.world.machine.state.status.is_globally_terminal, self.world.machine.state.steps
        for _ in range(20):
            self.time_passes(5.0, cut_off=False)
        assert any(isinstance(effect, ev.JobOver) for effect in self.world.asked), "nothing of it stays reserved"

    def _settle(self) -> None:
        world = self.world
        if self.world.phase() is Phase.WITHOUT_GRAPH:
            world.read_graph()
        elif self._pending(ev.RequestPlace):
            world.grant(1, self.lives)
        elif self._pending(ev.ExplainPlace):
            self.place_explained()
        elif self._pending(ev.RecordAttempt):
            world.write_attempt()
        elif self._pending(ev.RecordResult):
            world.write_result()
        elif self._pending(ev.StopDriver):
            self.stop_arrives(KILLED)
        elif self._pending(ev.StartDriver):
            world.start()
        else:
            for driver in self._alive():
                if world.register(driver):
                    world.tell(ev.DriverListed(driver.attempt, driver.place, 42))
                    driver.alive = False
                    world.tell(ev.OutcomeReported(driver.attempt, SUCCESS))
                    world.tell(ev.DriverExited(driver.attempt, driver.place, SUCCESS))
            self.time_passes(5.0, cut_off=False)


TestJobLife = JobLife.TestCase
TestJobLife.settings = settings(max_examples=examples(75), stateful_step_count=40, deadline=None)
TestJobLife.pytestmark = [pytest.mark.req(req) for req in ("HA-4", "HA-5", "HA-7", "SAFE-1")]  # type: ignore[attr-defined]


def test_every_phase_can_be_left_or_is_the_end() -> None:
    for phase, row in TRANSITIONS.items():
        leads_on = {target for targets in row.values() for target in targets} - {phase}
        assert leads_on or phase is Phase.ENDED


def test_an_impossible_event_names_state_event_and_history() -> None:
    world = JobWorld()
    world.to_running()
    with pytest.raises(IllegalTransition) as error:
        world.machine.handle(ev.ResultRecorded(), Moment(1.0, 1))
    assert "ResultRecorded is illegal in state RUNNING" in str(error.value)
    assert any("JobMasterRegistered: STARTING → RUNNING" in step for step in error.value.history)


def test_the_machine_outlives_many_restarts() -> None:
    endless = ExponentialDelay(initial=1, longest=2, multiplier=1.5, reset_after=9e9, jitter=0, attempts=0)
    world = JobWorld(strategy=endless)
    for attempt in range(1, 200):
        driver = world.to_running()
        assert driver.attempt == attempt
        driver.alive = False
        world.tell(ev.DriverExited(attempt, driver.place, KILLED))
        assert world.machine.state.status is JobStatus.RESTARTING
        world.wait(2.5)
    assert len(world.machine.state.history.attempts()) == 100
    assert len(world.machine.state.history.exceptions()) == 32
