"""Recovery traces: what the JobManager sees itself, what drivers report, and what survives a takeover."""

from __future__ import annotations

import math

import pytest

from emberkeep.jobs import events as ev
from emberkeep.jobs.history import TRACES_KEPT
from emberkeep.jobs.model import AttemptOutcome, FailureKind
from emberkeep.jobs.restart import FixedDelay
from emberkeep.jobs.traces.moment import Moment
from emberkeep.jobs.traces.recovery_trace import Milestone, Reached, RecoveryCause, RecoveryTrace, TraceReport
from emberkeep.jobs.traces.trace_recorder import TEXT_LIMIT, TraceRecorder
from emberkeep.slots.model import ProcessStart
from tests.property.job_world import KILLED, MOVED, POLICY, SUCCESS, JobWorld, TrueDriver, job_graph

M = Milestone


def moment(at: float, ms: int | None = None) -> Moment:
    return Moment(at, round(at * 1000) if ms is None else ms)


def reached(trace: RecoveryTrace) -> dict[str, float]:
    return {each.milestone.value: round(each.seconds, 3) for each in trace.milestones}


def newest(world: JobWorld) -> RecoveryTrace:
    trace = world.machine.state.history.newest_trace()
    assert trace is not None
    return trace


def to_running(world: JobWorld) -> TrueDriver:
    """A place after one second, a durable number, a process and a registration after one second each."""
    world.now += 1
    world.grant()
    world.now += 1
    world.write_attempt()
    driver = world.start()
    world.now += 1
    world.tell(ev.DriverListed(driver.attempt, driver.place, 42, ProcessStart.COLD, "no standby process yet"))
    world.now += 1
    assert world.register(driver)
    return driver


def exits(world: JobWorld, driver: TrueDriver, outcome: AttemptOutcome = KILLED) -> None:
    driver.alive = False
    world.tell(ev.DriverExited(driver.attempt, driver.place, outcome))


class TestWhatTheJobManagerSees:
    def test_a_first_start_counts_from_the_submission(self) -> None:
        world = JobWorld(graph=job_graph(submitted_ms=99_500))  # half a second before its machine
        to_running(world)
        assert newest(world) == RecoveryTrace(
            attempt=1,
            began_ms=99_500,
            milestones=(
                Reached(M.SUBMITTED, 0.0),
                Reached(M.PLACE_REQUESTED, 0.5),
                Reached(M.PLACED, 1.5),
                Reached(M.ORDERED, 2.5),
                Reached(M.PROCESS_STARTED, 3.5),
                Reached(M.REGISTERED, 4.5),
            ),
            cause=RecoveryCause.SUBMISSION,
            start=ProcessStart.COLD,
            why_cold="no standby process yet",
        )
        assert newest(world).is_complete_from_the_beginning

    def test_a_lost_driver_counts_from_its_detection_and_shows_the_delay(self) -> None:
        world = JobWorld(strategy=FixedDelay(3, 5.0))
        driver = to_running(world)
        exits(world, driver)
        world.wait(5)
        to_running(world)
        assert (newest(world).attempt, newest(world).cause, newest(world).delay) == (2, RecoveryCause.LOST, 5.0)
        assert reached(newest(world)) == {
            "detected": 0,
            "decided": 0,
            "gone": 0,
            "place-requested": 5,
            "placed": 6,
            "ordered": 7,
            "process-started": 8,
            "registered": 9,
        }

    def test_a_driver_that_reports_its_end_is_gone_later(self) -> None:
        world = JobWorld(strategy=FixedDelay(3, 0.0))
        driver = to_running(world)
        world.tell(ev.OutcomeReported(1, KILLED))
        world.now += 3
        world.tell(ev.TraceReported(1, TraceReport(age=1.0, milestones={"context-up": 0.5})))
        exits(world, driver)
        assert "context-up" in reached(newest(world)), "what the ending attempt still reports is its own"
        world.wait(0)
        to_running(world)
        assert {name: reached(newest(world))[name] for name in ("detected", "decided", "gone", "place-requested")} == {
            "detected": 0,
            "decided": 0,
            "gone": 3,
            "place-requested": 3,
        }

    def test_a_silent_driver_counts_from_its_last_message(self) -> None:
        world = JobWorld(strategy=FixedDelay(3, 5.0))
        driver = to_running(world)
        world.tell(ev.TaskManagerLost(driver.place.instance))
        driver.alive = False
        world.wait(POLICY.lease)
        world.wait(5)
        world.grant()
        world.write_attempt()
        assert newest(world).is_complete_from_the_beginning
        assert reached(newest(world)) == {
            "last-contact": 0,
            "detected": POLICY.lease,
            "decided": POLICY.lease,
            "gone": POLICY.lease,
            "place-requested": POLICY.lease + 5,
            "placed": POLICY.lease + 5,
            "ordered": POLICY.lease + 5,
        }

    def test_a_move_is_no_loss(self) -> None:
        world = JobWorld()
        driver = to_running(world)
        world.tell(ev.OutcomeReported(1, MOVED))
        exits(world, driver, SUCCESS)
        world.wait(0)
        to_running(world)
        assert (newest(world).cause, newest(world).delay) == (RecoveryCause.MOVED, 0.0)

    def test_the_place_that_was_used_counts(self) -> None:
        world = JobWorld()
        world.grant()
        world.tell(ev.TaskManagerLost(world.machine.state.stands_on()))  # type: ignore[arg-type]
        world.now += 7
        world.write_attempt()
        world.now += 1
        world.grant(2)
        world.write_attempt()
        assert {name: reached(newest(world))[name] for name in ("place-requested", "placed")} == {
            "place-requested": 7 + 99.999,
            "placed": 8 + 99.999,
        }

    def test_only_the_newest_traces_are_kept(self) -> None:
        world = JobWorld(strategy=FixedDelay(99, 0.0))
        for _ in range(TRACES_KEPT + 2):
            driver = to_running(world)
            exits(world, driver)
            world.wait(0)
        kept = [trace.attempt for trace in world.machine.state.history.traces()]
        assert kept == list(range(3, TRACES_KEPT + 3))
        world.tell(ev.TraceReported(1, TraceReport(age=1.0)))


class TestWhatDriversReport:
    def test_times_are_those_of_the_driver_from_its_zero_on(self) -> None:
        recorder = TraceRecorder(moment(100), attempt=1)
        recorder.note(M.ORDERED, moment(100))
        recorder.take(TraceReport(age=3.0), moment(105.5))  # it took half a second to arrive
        recorder.take(TraceReport(age=6.0, milestones={"context-up": 4.0}), moment(108))
        assert reached(recorder.trace()) == {"ordered": 0, "context-up": 6}, "the fastest message shows the zero best"

    def test_a_registration_before_the_first_report_of_a_milestone(self) -> None:
        world = JobWorld()
        world.grant()
        world.write_attempt()
        driver = world.start()
        world.now += 2
        report = TraceReport(age=0.25)
        world.tell(ev.JobMasterRegistered(1, driver.place.task_manager, 42, report))
        world.now += 3
        world.tell(ev.TraceReported(1, TraceReport(age=3.25, milestones={"batch-committed": 1.25})))
        times = reached(newest(world))
        assert round(times["registered"] - times["ordered"], 3) == 2
        assert round(times["batch-committed"] - times["registered"], 3) == 1

    @pytest.mark.parametrize(
        ("report", "expected"),
        [
            (TraceReport(age=1.0, milestones={"invented-later": 2.0}), {}),
            (TraceReport(age=1.0, milestones={"context-up": math.nan}), {}),
            (TraceReport(age=1.0, milestones={"context-up": -math.inf}), {}),
            (TraceReport(age=math.inf, milestones={"context-up": 1.0}), {}),
            (TraceReport(age=1.0, cause="invented", start="lukewarm", delay=math.nan), {}),
        ],
    )
    def test_what_makes_no_sense_is_ignored(self, report: TraceReport, expected: dict[str, float]) -> None:
        recorder = TraceRecorder(moment(1), attempt=1)
        recorder.take(report, moment(5))
        trace = recorder.trace()
        assert (reached(trace), trace.cause, trace.start, trace.delay) == (expected, None, None, 0.0)

    def test_texts_are_bounded(self) -> None:
        recorder = TraceRecorder(moment(1), attempt=1)
        recorder.process_started(ProcessStart.COLD, "x" * 1000, moment(2))
        assert recorder.trace().why_cold == "x" * TEXT_LIMIT


class TestTakeover:
    """The driver repeats what earlier leaders saw."""

    def test_the_next_leader_learns_the_whole_trace_on_its_own_clock(self) -> None:
        first = TraceRecorder(moment(100, ms=1_000_000), attempt=2, cause=RecoveryCause.LOST)
        first.note(M.DETECTED, moment(100))
        first.decided(4.0, moment(100))
        first.note(M.ORDERED, moment(105))
        first.process_started(ProcessStart.HOT, "", moment(106))
        own = TraceReport(age=1.0, milestones={"context-up": 0.5})
        first.take(own, moment(108))
        told = first.answer(own)
        assert told == TraceReport(
            milestones={"detected": -7.0, "decided": -7.0, "ordered": -2.0, "process-started": -1.0},
            cause="lost",
            delay=4.0,
            start="hot",
        )

        whole = TraceReport(
            age=11.0,
            milestones=told.milestones | own.milestones,
            cause=told.cause,
            delay=told.delay,
            start=told.start,
        )
        assert first.answer(whole) is None, "the driver knows it all"
        second = TraceRecorder(moment(5000, ms=1_018_500), attempt=2)  # another clock: 18 s after the detection
        second.take(whole, moment(5000))
        trace = second.trace()
        assert reached(trace) == {
            "detected": 0,
            "decided": 0,
            "ordered": 5,
            "process-started": 6,
            "context-up": 7.5,
        }
        assert (trace.cause, trace.delay, trace.start) == (RecoveryCause.LOST, 4.0, ProcessStart.HOT)
        assert trace.began_ms == 1_000_500

    def test_what_nobody_repeats_is_missing(self) -> None:
        world = JobWorld()
        driver = to_running(world)
        world.restart()
        assert world.register(driver)
        trace = newest(world)
        assert (trace.attempt, trace.milestones, trace.cause) == (1, (), None)
        assert not trace.is_complete_from_the_beginning

    def test_a_leader_trusts_its_own_clock_more(self) -> None:
        recorder = TraceRecorder(moment(100), attempt=1)
        recorder.note(M.ORDERED, moment(100))
        recorder.note(M.REGISTERED, moment(102))
        recorder.take(TraceReport(age=0.0, milestones={"ordered": -9.0, "registered": 0.5}), moment(102))
        assert reached(recorder.trace()) == {"ordered": 0, "registered": 2}


def test_a_trace_is_the_same_object_until_it_changes() -> None:
    recorder = TraceRecorder(moment(1), attempt=1)
    recorder.note(M.ORDERED, moment(2))
    before = recorder.trace()
    recorder.note(M.ORDERED, moment(3))
    assert recorder.trace() is before
    recorder.note(M.REGISTERED, moment(3))
    assert recorder.trace() is not before


def test_each_kind_of_failure_is_a_cause() -> None:
    assert [RecoveryCause.of(kind) for kind in FailureKind] == [RecoveryCause(kind.value) for kind in FailureKind]
    assert RecoveryCause.of(None) is None
