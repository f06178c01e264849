"""A job's life step by step: what is decided when, and what is not."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from emberkeep.base.ids import InstanceId
from emberkeep.jobs import events as ev
from emberkeep.jobs.machine import CANCELED_EXIT_CODE, JobMachine
from emberkeep.jobs.model import AttemptOutcome, ExceptionEntry, FailureKind, JobResult, JobStatus
from emberkeep.jobs.policy import JobPolicy
from emberkeep.jobs.restart import FixedDelay, NoRestart
from emberkeep.jobs.state import JobState
from emberkeep.jobs.traces.moment import Moment
from emberkeep.jobs.transitions import Phase
from tests.property.job_world import KILLED, MOVED, POLICY, SCRIPT_FAILED, SUCCESS, JobWorld, TrueDriver, place

RESOURCES = AttemptOutcome(exit_code=1, kind=FailureKind.RESOURCES, message="no slot within 300 s")
SETUP = AttemptOutcome(exit_code=1, kind=FailureKind.SETUP, message="no space left on device")


def running(**changes: Any) -> tuple[JobWorld, TrueDriver]:
    world = JobWorld(**changes)
    return world, world.to_running()


@pytest.mark.req("SAFE-23")
class TestLostWithItsCluster:
    """A job was restored from a backup: its newest attempt was lost with all machines."""

    def restored(self, **changes: Any) -> tuple[JobMachine, list[ev.Effect]]:
        world = JobWorld()
        policy = dataclasses.replace(POLICY, listening=1.0)
        machine = JobMachine(
            JobState(graph=world.graph, policy=policy, strategy=world.strategy, attempt=1003, over=True, **changes)
        )
        return machine, machine.handle(ev.Begin("", recovered=True), Moment(0.0, 0, 0.5, 0.0))

    def test_its_next_attempt_waits_for_reports_and_not_for_the_lease(self) -> None:
        machine, effects = self.restored()
        assert (machine.state.phase, effects) == (Phase.BACKING_OFF, [])
        machine.check_invariants()
        later = Moment(1.0, 1000, 0.5, 0.0)
        assert machine.handle(ev.Tick(), later) == [ev.RequestPlace()]
        (record,) = machine.handle(ev.PlaceGranted(place(1), only_node=False), later)
        assert record == ev.RecordAttempt(1004)

    def test_a_stopped_job_gets_no_further_attempt(self) -> None:
        machine, _ = self.restored(stopped=True)
        assert machine.state.phase is Phase.STARTING, "its driver is awaited, and then the job has finished"


@pytest.mark.req("HA-5")
@pytest.mark.req("HA-7")
class TestRecoveredWithoutDriver:
    """The driver of a recovered job is where it was to be started, or nowhere."""

    def recovered(self) -> JobWorld:
        world, driver = running()
        driver.alive = False
        world.restart()
        return world

    def test_its_home_has_not_got_it_and_the_next_attempt_need_not_wait_for_the_lease(self) -> None:
        world = self.recovered()
        world.report_completely(place(1, 2))
        assert world.status() is JobStatus.RESTARTING
        assert (
            "tm-1, where the driver was started, no longer has it"
            in world.machine.state.history.exceptions()[0].message
        )

    def test_the_very_same_life_need_not_continue_another(self) -> None:
        world = self.recovered()
        world.tell(ev.DriverNotAtHome(1, place(1), continues=False))
        assert world.status() is JobStatus.RESTARTING

    def test_other_task_managers_prove_nothing(self) -> None:
        world = self.recovered()
        world.report_completely(place(2))
        elsewhere = msgspec.structs.replace(place(1, 2), node_id="another machine")
        world.report_completely(elsewhere)
        forgetful = place(1, 2)  # started anew, with nothing of what its former life knew
        world.tell(ev.DriverNotAtHome(1, forgetful, continues=False))
        assert world.status() is JobStatus.INITIALIZING
        world.wait(POLICY.lease)
        assert world.status() is JobStatus.RESTARTING

    def test_its_own_word_counts_more(self) -> None:
        world, driver = running()
        world.restart()
        world.register(driver)
        world.tell(ev.DriverNotAtHome(1, place(1), continues=True))
        assert world.status() is JobStatus.RUNNING

    def test_a_word_before_it_has_registered_counts_more_as_well(self) -> None:
        world, _ = running()
        world.restart()
        world.now += 0.5
        world.tell(ev.JobMasterHeard(1))
        world.tell(ev.DriverNotAtHome(1, place(1), continues=True))
        assert world.status() is JobStatus.INITIALIZING

    def test_a_cancelled_job_ends_at_once(self) -> None:
        world = self.recovered()
        world.tell(ev.CancelRequested())
        world.report_completely(place(1, 2))
        world.write_result()
        assert world.status() is JobStatus.CANCELED

    def test_a_driver_that_is_being_started_is_not_missed(self) -> None:
        world = JobWorld()
        world.grant()
        world.write_attempt()
        world.tell(ev.DriverNotAtHome(1, place(1), continues=True))
        assert world.status() is JobStatus.INITIALIZING


class TestStart:
    @pytest.mark.req("HA-7")
    def test_the_attempt_is_recorded_before_the_driver_starts(self) -> None:
        world = JobWorld()
        world.grant()
        assert [type(effect) for effect in world.pending] == [ev.RecordAttempt]
        assert world.status() is JobStatus.CREATED
        world.write_attempt()
        assert [type(effect) for effect in world.pending] == [ev.StartDriver]
        assert world.status() is JobStatus.INITIALIZING

    def test_an_order_that_its_task_manager_did_not_live_to_take_costs_a_number_and_no_waiting(self) -> None:
        world = JobWorld()
        world.grant()
        world.write_attempt()
        world.tell(ev.TaskManagerLost(place(1).instance))
        world.tell(ev.DriverNotAtHome(1, place(2), continues=True))
        assert world.status() is JobStatus.INITIALIZING
        world.tell(ev.DriverNotAtHome(1, place(1, 2), continues=True))
        assert world.status() is JobStatus.RESTARTING
        assert "is over" in world.machine.state.refusal(1)

    def test_one_that_it_has_taken_and_handed_on_goes_on(self) -> None:
        world = JobWorld()
        world.grant()
        world.write_attempt()
        driver = world.start()
        world.tell(ev.TaskManagerLost(place(1).instance))
        world.tell(ev.DriverListed(1, place(1, 2), 42))
        assert world.register(driver)
        world.tell(ev.DriverNotAtHome(1, place(1, 3), continues=True))
        assert world.status() is JobStatus.RUNNING

    @pytest.mark.req("HA-7")
    def test_a_number_that_may_be_written_is_not_used(self) -> None:
        world = JobWorld()
        world.grant()
        world.write_attempt(known=False)
        assert world.take(ev.RecordAttempt) == ev.RecordAttempt(2)

    def test_a_start_without_answer_is_ordered_again_until_it_is_accepted(self) -> None:
        world = JobWorld()
        world.grant()
        world.write_attempt()
        world.take(ev.StartDriver)
        world.wait(POLICY.repeat)
        assert world.take(ev.StartDriver) == ev.StartDriver(1, place(1))
        world.tell(ev.StartAccepted(1))
        world.wait(POLICY.repeat * 3)
        assert world.take(ev.StartDriver) is None

    def test_a_refused_start_counts_as_a_failure_of_the_setup(self) -> None:
        world = JobWorld()
        world.grant()
        world.write_attempt()
        world.tell(ev.StartRefused(1, "task manager tm-1 does not start the driver: no room"))
        assert world.status() is JobStatus.RESTARTING
        assert world.machine.state.history.exceptions()[-1].message.endswith("no room")

    def test_a_place_whose_task_manager_is_lost_meanwhile_is_not_used(self) -> None:
        world = JobWorld()
        world.grant()
        world.tell(ev.TaskManagerLost(place(1).instance))
        world.write_attempt()
        assert world.take(ev.StartDriver) is None
        assert world.take(ev.RequestPlace) is not None
        assert world.status() is JobStatus.CREATED

    @pytest.mark.req("BLK-2")
    def test_a_place_that_is_blocked_meanwhile_is_not_used(self) -> None:
        world = JobWorld()
        world.grant()
        world.tell(ev.PlaceBlocked(place(2).instance))
        world.tell(ev.PlaceBlocked(place(1).instance))
        world.write_attempt()
        assert world.take(ev.StartDriver) is None
        world.grant(2)
        world.write_attempt()
        assert world.take(ev.StartDriver) == ev.StartDriver(2, place(2))

    @pytest.mark.req("BLK-2")
    def test_a_driver_that_was_not_accepted_where_it_is_blocked_is_given_up_and_never_let_in(self) -> None:
        world = JobWorld(strategy=FixedDelay(0, 5.0))
        world.grant()
        world.write_attempt()
        late = world.start()  # the order has arrived all the same, and nobody knows
        world.tell(ev.PlaceBlocked(place(1).instance))
        assert (world.phase(), world.status()) == (Phase.ENDING, JobStatus.RESTARTING)
        assert world.take(ev.StopDriver) == ev.StopDriver(1, late.place, 0.0)
        assert not world.register(late)
        world.wait(POLICY.lease - 0.5)
        assert world.take(ev.RequestPlace) is None
        world.wait(0.5)
        world.wait(0.0)
        assert world.to_running(2).attempt == 2
        (first, _) = world.machine.state.history.attempts()
        assert first.outcome is not None
        assert first.outcome.kind is FailureKind.MOVED

    @pytest.mark.req("HA-7")
    def test_a_job_whose_start_order_was_lost_ends_without_waiting_for_a_lease(self) -> None:
        world = JobWorld()
        world.grant()
        world.write_attempt()
        assert world.take(ev.StartDriver) is not None, "it does not arrive"
        world.tell(ev.CancelRequested())
        order = world.take(ev.StopDriver)
        assert isinstance(order, ev.StopDriver)
        assert world.phase() is Phase.ENDING
        world.tell(ev.DriverNeverThere(1, order.place.instance))
        world.write_result()
        assert (world.phase(), world.status()) == (Phase.ENDED, JobStatus.CANCELED)

    @pytest.mark.req("HA-7")
    def test_an_answer_of_another_life_of_the_task_manager_proves_nothing(self) -> None:
        world = JobWorld()
        world.grant()
        world.write_attempt()
        assert world.take(ev.StartDriver) is not None, "it may have arrived"
        world.tell(ev.CancelRequested())
        assert world.take(ev.StopDriver) is not None
        world.tell(ev.DriverNeverThere(1, InstanceId("i-another-life")))
        assert world.phase() is Phase.ENDING
        world.wait(POLICY.lease)
        world.wait(0.0)
        world.write_result()
        assert (world.phase(), world.status()) == (Phase.ENDED, JobStatus.CANCELED)

    @pytest.mark.req("BLK-2")
    def test_a_driver_that_is_there_stays_where_it_is_blocked(self) -> None:
        world = JobWorld()
        world.grant()
        world.write_attempt()
        driver = world.start()
        world.tell(ev.StartAccepted(1))
        world.tell(ev.PlaceBlocked(place(1).instance))
        assert world.phase() is Phase.STARTING
        assert world.register(driver)

    def test_a_driver_that_does_not_register_in_time_is_ended_and_counts_as_lost(self) -> None:
        world = JobWorld()
        world.grant()
        world.write_attempt()
        driver = world.start()
        world.tell(ev.DriverListed(1, driver.place, 42))
        world.wait(POLICY.start_timeout - 1)
        assert world.phase() is Phase.STARTING
        world.wait(1)
        assert world.take(ev.StopDriver) == ev.StopDriver(1, driver.place, 0.0)
        assert world.phase() is Phase.ENDING
        assert world.machine.state.refusal(1)
        world.tell(ev.DriverExited(1, driver.place, KILLED))
        assert world.phase() is Phase.BACKING_OFF

    def test_no_place_in_time_fails_the_job_and_says_why(self) -> None:
        world = JobWorld()
        world.wait(POLICY.place_timeout)
        assert world.take(ev.ExplainPlace) is not None
        world.tell(ev.PlaceExplained("no place for the driver (1408 MiB): no task manager is registered"))
        world.write_result()
        assert world.status() is JobStatus.FAILED
        assert world.machine.state.result is not None
        assert world.machine.state.result.root_cause == (
            "after 300 s there is no place for the driver (1408 MiB): no task manager is registered"
        )

    def test_without_a_place_timeout_it_waits_for_ever(self) -> None:
        world = JobWorld(policy=_policy(place_timeout=0.0))
        world.wait(1e6)
        assert world.phase() is Phase.PLACING

    def test_a_place_that_comes_just_before_the_timeout_counts(self) -> None:
        world = JobWorld()
        world.wait(POLICY.place_timeout)
        world.grant()
        world.tell(ev.PlaceExplained("late"))
        assert world.phase() is Phase.RECORDING_ATTEMPT

    def test_a_graph_that_cannot_be_read_fails_its_job(self) -> None:
        world = JobWorld()
        world.machine = JobMachine(JobState(graph=world.graph, policy=POLICY, strategy=NoRestart()))
        world.pending.clear()
        world.tell(ev.Begin("the job graph at /storage/graph is damaged"))
        assert world.status() is JobStatus.FAILING
        world.write_result()
        assert world.status() is JobStatus.FAILED


class TestEnd:
    def test_success_is_shown_when_it_is_durable(self) -> None:
        world, driver = running()
        world.tell(ev.OutcomeReported(1, SUCCESS))
        assert world.status() is JobStatus.RUNNING
        world.write_result()
        assert world.status() is JobStatus.FINISHED
        assert ev.JobOver() not in world.asked
        world.tell(ev.DriverExited(1, driver.place, SUCCESS))
        assert ev.JobOver() in world.asked

    def test_the_first_word_about_the_end_counts(self) -> None:
        world, driver = running()
        world.tell(ev.OutcomeReported(1, SUCCESS))
        world.tell(ev.OutcomeReported(1, SCRIPT_FAILED))
        world.tell(ev.DriverExited(1, driver.place, KILLED))
        world.write_result()
        assert world.status() is JobStatus.FINISHED

    def test_an_ended_job_is_forgotten_after_a_while_even_if_its_driver_hangs(self) -> None:
        world, _ = running()
        world.tell(ev.OutcomeReported(1, SUCCESS))
        world.write_result()
        world.wait(POLICY.grace)
        assert world.asked[-1] == ev.JobOver()
        assert world.machine.state.refusal(1)

    def test_the_exit_told_by_the_task_manager_is_as_good(self) -> None:
        world, driver = running()
        world.tell(ev.DriverExited(1, driver.place, SUCCESS))
        world.write_result()
        assert world.status() is JobStatus.FINISHED

    def test_a_failing_script_ends_the_job_with_its_exit_code(self) -> None:
        world, _ = running()
        world.tell(ev.OutcomeReported(1, SCRIPT_FAILED))
        assert world.status() is JobStatus.FAILING
        world.write_result()
        result = world.machine.state.result
        assert result is not None
        assert (result.status, result.exit_code, result.root_cause) == (JobStatus.FAILED, 3, "ValueError: no")

    def test_restart_on_any_restarts_failing_scripts_too(self) -> None:
        world, driver = running(policy=_policy(restarts_script_failures=True))
        world.tell(ev.OutcomeReported(1, SCRIPT_FAILED))
        assert world.status() is JobStatus.RESTARTING
        assert world.take(ev.StopDriver) == ev.StopDriver(1, driver.place, POLICY.grace)

    def test_settings_that_no_attempt_can_use_are_never_answered_by_a_restart(self) -> None:
        world, _ = running(policy=_policy(restarts_script_failures=True))
        world.tell(ev.OutcomeReported(1, msgspec.structs.replace(SCRIPT_FAILED, lasting=True)))
        assert world.status() is JobStatus.FAILING

    def test_missing_resources_are_never_answered_by_a_restart(self) -> None:
        world, _ = running(policy=_policy(restarts_script_failures=True))
        world.tell(ev.OutcomeReported(1, RESOURCES))
        assert world.status() is JobStatus.FAILING

    @pytest.mark.parametrize("outcome", [KILLED, SETUP])
    def test_a_lost_driver_is_started_again_after_the_pause(self, outcome: AttemptOutcome) -> None:
        world, driver = running(strategy=FixedDelay(3, 5.0))
        driver.alive = False
        world.tell(ev.DriverExited(1, driver.place, outcome))
        assert world.status() is JobStatus.RESTARTING
        world.wait(4.9)
        assert world.take(ev.RequestPlace) is None
        world.wait(0.1)
        again = world.to_running(2)
        assert (again.attempt, world.status()) == (2, JobStatus.RUNNING)

    def test_the_strategy_s_last_word_is_in_the_root_cause(self) -> None:
        world, driver = running(strategy=FixedDelay(0, 5.0))
        world.tell(ev.DriverExited(1, driver.place, KILLED))
        assert world.machine.state.verdict is not None
        assert world.machine.state.verdict.root_cause == (
            "killed by SIGKILL (not restarted: restart-strategy.fixed-delay.attempts is 0)"
        )


class TestLoss:
    @pytest.mark.req("HA-7")
    def test_no_new_attempt_while_the_old_driver_may_live(self) -> None:
        world, driver = running(strategy=FixedDelay(3, 0.0))
        world.wait(POLICY.heartbeat_timeout)
        assert world.status() is JobStatus.RESTARTING
        world.wait(10_000)
        assert world.take(ev.RequestPlace) is None, "its task manager lists it still"
        driver.alive = False
        world.tell(ev.DriverVanished(1, driver.place.instance))
        world.wait(0)
        assert world.take(ev.RequestPlace) is not None

    def test_an_order_to_stop_is_repeated_until_the_driver_is_gone(self) -> None:
        world, driver = running()
        world.wait(POLICY.heartbeat_timeout)
        for _ in range(3):
            assert world.take(ev.StopDriver) == ev.StopDriver(1, driver.place, 0.0)
            world.wait(POLICY.repeat)

    @pytest.mark.req("HA-5")
    def test_the_loss_of_the_task_manager_alone_changes_nothing(self) -> None:
        world, driver = running()
        world.tell(ev.TaskManagerLost(driver.place.instance))
        for _ in range(50):
            world.now += POLICY.lease - 1
            world.tell(ev.JobMasterHeard(1))
            world.tell(ev.Tick())
        assert world.status() is JobStatus.RUNNING

    def test_silence_of_both_for_a_lease_is_the_driver_s_end(self) -> None:
        world, driver = running()
        world.tell(ev.TaskManagerLost(driver.place.instance))
        world.wait(POLICY.lease - 0.5)
        assert world.status() is JobStatus.RUNNING
        driver.alive = False
        world.wait(0.5)
        assert world.phase() is Phase.BACKING_OFF
        assert world.machine.state.history.attempts()[-1].outcome is not None

    def test_a_driver_that_comes_back_after_its_lease_is_refused(self) -> None:
        world, driver = running()
        world.tell(ev.TaskManagerLost(driver.place.instance))
        world.wait(POLICY.lease)
        assert "is over" in world.machine.state.refusal(1)

    def test_a_task_manager_that_is_back_makes_its_driver_reachable_again(self) -> None:
        world, driver = running()
        world.tell(ev.TaskManagerLost(driver.place.instance))
        again = place(1, life=2)
        world.tell(ev.DriverListed(1, again, 42))
        world.tell(ev.CancelRequested())
        assert world.take(ev.StopDriver) == ev.StopDriver(1, again, POLICY.grace)

    def test_absence_in_the_report_of_another_life_proves_nothing(self) -> None:
        world, _ = running()
        world.tell(ev.DriverVanished(1, place(1, life=2).instance))
        assert world.status() is JobStatus.RUNNING

    def test_the_truth_about_a_presumed_loss_is_believed_while_nothing_new_was_started(self) -> None:
        world, driver = running()
        world.wait(POLICY.heartbeat_timeout)
        assert world.status() is JobStatus.RESTARTING
        world.tell(ev.DriverExited(1, driver.place, SUCCESS))
        world.write_result()
        assert world.status() is JobStatus.FINISHED


@pytest.mark.req("HA-5")
class TestLeaderInDoubt:
    """It hears hardly anybody, and may be cut off itself."""

    @pytest.mark.parametrize("lost", [False, True])
    def test_nobody_is_given_up_however_long_that_lasts(self, lost: bool) -> None:
        world, driver = running()
        if lost:
            world.tell(ev.TaskManagerLost(driver.place.instance))
        world.hears_since = None
        for _ in range(100):
            world.wait(POLICY.repeat)
            assert world.machine.state.deadline() == world.now + POLICY.repeat, "it looks again"
        assert world.status() is JobStatus.RUNNING
        assert "may be cut off" in world.machine.state.waiting()

    def test_silence_counts_from_when_it_hears_again(self) -> None:
        world, driver = running()
        world.tell(ev.TaskManagerLost(driver.place.instance))
        world.hears_since = None
        world.wait(10 * POLICY.lease)
        world.hears_since = world.now
        world.wait(POLICY.lease - 0.5)
        assert world.status() is JobStatus.RUNNING
        world.wait(0.5)
        assert world.status() is JobStatus.RESTARTING

    def test_a_silent_driver_whose_task_manager_is_heard_is_ended_after_its_timeout_from_then(self) -> None:
        world, _ = running()
        world.hears_since = None
        world.wait(10 * POLICY.heartbeat_timeout)
        world.hears_since = world.now
        world.wait(POLICY.heartbeat_timeout - 0.5)
        assert world.status() is JobStatus.RUNNING
        world.wait(0.5)
        assert world.take(ev.StopDriver) is not None

    def test_one_that_is_recovered_waits_for_its_driver(self) -> None:
        world, driver = running()
        world.hears_since = None
        world.restart()
        world.wait(10 * POLICY.lease)
        assert world.status() is JobStatus.INITIALIZING
        assert world.register(driver)

    def test_what_somebody_has_cancelled_need_not_wait(self) -> None:
        world, driver = running()
        world.tell(ev.TaskManagerLost(driver.place.instance))
        world.hears_since = None
        world.tell(ev.CancelRequested())
        world.wait(POLICY.lease)
        world.write_result()
        assert world.status() is JobStatus.CANCELED


class TestCancel:
    def test_before_it_has_a_driver_it_ends_at_once(self) -> None:
        world = JobWorld()
        world.tell(ev.CancelRequested())
        assert ev.WithdrawPlace() in world.asked
        world.write_result()
        assert world.status() is JobStatus.CANCELED
        world.tell(ev.PlaceGranted(place(1)))  # crossed the withdrawal
        assert world.asked[-1] == ev.JobOver()

    def test_while_the_attempt_is_recorded_nothing_starts(self) -> None:
        world = JobWorld()
        world.grant()
        world.tell(ev.CancelRequested())
        assert world.status() is JobStatus.CANCELLING
        world.write_attempt()
        assert world.take(ev.StartDriver) is None
        world.write_result()
        assert world.status() is JobStatus.CANCELED

    def test_canceled_means_the_driver_is_gone_and_the_result_durable(self) -> None:
        world, driver = running()
        world.tell(ev.CancelRequested())
        assert world.take(ev.StopDriver) == ev.StopDriver(1, driver.place, POLICY.grace)
        assert world.take(ev.RecordResult) is None
        assert not world.machine.state.refusal(1), "it may end in order"
        world.tell(ev.DriverExited(1, driver.place, KILLED))
        assert world.status() is JobStatus.CANCELLING
        world.write_result()
        assert world.status() is JobStatus.CANCELED
        assert world.machine.state.result is not None
        assert world.machine.state.result.exit_code == CANCELED_EXIT_CODE

    def test_the_rest_of_the_grace_goes_with_a_repeated_order(self) -> None:
        world, driver = running()
        world.tell(ev.CancelRequested())
        world.take(ev.StopDriver)
        world.wait(4.0)
        assert world.take(ev.StopDriver) == ev.StopDriver(1, driver.place, 6.0)

    def test_a_driver_that_no_task_manager_can_reach_is_told_to_end_itself(self) -> None:
        world, driver = running()
        world.tell(ev.TaskManagerLost(driver.place.instance))
        world.tell(ev.CancelRequested())
        assert "cannot be reached" in world.machine.state.refusal(1)
        world.wait(POLICY.lease)
        world.write_result()
        assert world.status() is JobStatus.CANCELED

    def test_in_the_pause_before_a_restart(self) -> None:
        world, driver = running()
        world.tell(ev.DriverExited(1, driver.place, KILLED))
        world.tell(ev.CancelRequested())
        world.write_result()
        assert world.status() is JobStatus.CANCELED

    def test_a_job_that_has_succeeded_stays_so(self) -> None:
        world, _ = running()
        world.tell(ev.OutcomeReported(1, SUCCESS))
        world.tell(ev.CancelRequested())
        world.write_result()
        assert world.status() is JobStatus.FINISHED


@pytest.mark.req("HA-5")
class TestRecovery:
    def recovered(self) -> JobWorld:
        world = JobWorld(stored_attempt=3)
        assert world.status() is JobStatus.INITIALIZING
        assert not world.pending
        return world

    def test_a_live_driver_is_attached_again_under_its_attempt(self) -> None:
        world = self.recovered()
        driver = world.drivers[3] = TrueDriver(3, place(1))
        assert not world.machine.state.knows_jobmaster()
        assert world.register(driver)
        assert (world.status(), world.machine.state.attempt) == (JobStatus.RUNNING, 3)
        world.tell(ev.DriverListed(3, place(1), 42))
        world.wait(POLICY.heartbeat_timeout - 1)
        assert world.status() is JobStatus.RUNNING

    def test_without_a_trace_of_the_driver_the_next_attempt_comes_after_the_lease(self) -> None:
        world = self.recovered()
        world.wait(POLICY.lease - 1)
        assert world.phase() is Phase.STARTING
        world.wait(1)
        world.wait(5)
        assert world.to_running().attempt == 4

    def test_an_exit_that_the_old_leader_did_not_hear_of_counts(self) -> None:
        world = self.recovered()
        world.tell(ev.DriverExited(3, place(1), SUCCESS))
        world.write_result()
        assert world.status() is JobStatus.FINISHED

    @pytest.mark.req("HA-7")
    def test_older_attempts_are_refused(self) -> None:
        world = self.recovered()
        assert "not the current attempt" in world.machine.state.refusal(2)
        world.tell(ev.JobMasterRegistered(2, place(1).task_manager, 1))
        world.tell(ev.DriverExited(2, place(1), SUCCESS))
        assert world.status() is JobStatus.INITIALIZING


def test_exceptions_that_the_attempt_survived_are_noted_once_and_bounded() -> None:
    world, _ = running()
    entries = tuple(
        ExceptionEntry(timestamp_ms=number, attempt=1, kind="executor", message=f"executor {number} was lost")
        for number in range(100)
    )
    world.tell(ev.ExceptionsNoted(1, entries))
    world.tell(ev.ExceptionsNoted(1, entries[-10:]))
    noted = world.machine.state.history.exceptions()
    assert [entry.message for entry in noted] == [f"executor {number} was lost" for number in range(68, 100)]


def test_what_it_waits_for_is_said_in_words() -> None:
    world, driver = running()
    assert world.machine.state.waiting() == ""
    world.tell(ev.CancelRequested())
    assert world.machine.state.waiting() == "the end of the driver of attempt 1 on task manager tm-1"
    world.tell(ev.DriverExited(1, driver.place, KILLED))
    assert world.machine.state.waiting() == "the job store to record its result"


def test_a_result_names_the_savepoint_that_the_job_was_started_from() -> None:
    world, driver = running()
    state = world.machine.state
    state.graph = msgspec.structs.replace(state.graph, savepoint="/savepoints/1")
    world.tell(ev.DriverExited(1, driver.place, SUCCESS))
    assert state.result is not None
    assert state.result.savepoint == "/savepoints/1"


def test_results_can_be_written_as_json() -> None:
    world, driver = running()
    world.tell(ev.DriverExited(1, driver.place, SUCCESS))
    assert world.machine.state.result is not None
    assert (
        msgspec.json.decode(msgspec.json.encode(world.machine.state.result), type=JobResult)
        == world.machine.state.result
    )


def _policy(**changes: Any) -> JobPolicy:
    return dataclasses.replace(POLICY, **changes)


def test_an_end_that_is_reported_again_is_one_failure() -> None:
    world, _ = running()
    world.tell(ev.OutcomeReported(1, SETUP))
    state = world.machine.state
    before = (state.history.exceptions(), state.restart_at, state.phase)
    assert len(before[0]) == 1
    world.tell(ev.OutcomeReported(1, SETUP))
    assert (state.history.exceptions(), state.restart_at, state.phase) == before


@pytest.mark.req("END-5")
class TestStopped:
    """A job that was suspended or drained ends with its script, and nothing of it is started again."""

    def test_its_script_goes_on_and_ends_the_job(self) -> None:
        world, _ = running()
        world.stop()
        world.stop()
        assert (world.status(), world.asked[-1]) == (JobStatus.RUNNING, ev.StartDriver(1, place(1)))
        world.tell(ev.OutcomeReported(1, SUCCESS))
        world.write_result()
        assert world.status() is JobStatus.FINISHED

    @pytest.mark.parametrize("outcome", [KILLED, RESOURCES, SETUP])
    def test_an_attempt_that_is_lost_then_is_the_end_and_no_failure(self, outcome: AttemptOutcome) -> None:
        world, _ = running()
        world.stop()
        world.tell(ev.DriverExited(1, place(1), outcome))
        world.write_result()
        assert (world.machine.state.result.status, world.machine.state.result.exit_code) == (JobStatus.FINISHED, 0)  # type: ignore[union-attr]

    def test_a_script_that_does_not_end_is_ended(self) -> None:
        world, _ = running(policy=dataclasses.replace(POLICY, script_timeout=7.0))
        world.stop()
        assert world.machine.state.deadline() == world.now + 7.0
        world.wait(6.9)
        assert world.take(ev.StopDriver) is None
        world.wait(0.1)
        assert world.take(ev.StopDriver) == ev.StopDriver(1, place(1), POLICY.grace)
        world.tell(ev.OutcomeReported(1, AttemptOutcome(exit_code=143, kind=FailureKind.SCRIPT, message="SystemExit")))
        world.write_result()
        assert (world.status(), world.machine.state.result.exit_code) == (JobStatus.FINISHED, 0)  # type: ignore[union-attr]

    def test_a_script_that_raises_after_the_stop_has_failed_and_is_not_started_again(self) -> None:
        world, _ = running(policy=dataclasses.replace(POLICY, restarts_script_failures=True))
        world.stop()
        world.tell(ev.OutcomeReported(1, SCRIPT_FAILED))
        world.write_result()
        assert world.status() is JobStatus.FAILED
        assert world.machine.state.result.exit_code == 3  # type: ignore[union-attr]
        assert "its savepoint is complete" in world.machine.state.result.root_cause  # type: ignore[union-attr]

    def test_a_cancellation_wins(self) -> None:
        world, _ = running()
        world.stop()
        world.tell(ev.CancelRequested())
        world.tell(ev.OutcomeReported(1, SUCCESS))
        world.tell(ev.DriverExited(1, place(1), SUCCESS))
        world.write_result()
        assert world.status() is JobStatus.CANCELED

    @pytest.mark.parametrize("steps", [0, 1, 2])
    def test_it_is_not_started_again_when_the_attempt_was_lost_before_that_was_known(self, steps: int) -> None:
        world, driver = running()
        driver.alive = False
        world.tell(ev.DriverExited(1, place(1), KILLED))
        if steps > 0:
            world.wait(5.0)
        if steps > 1:
            world.grant()
        world.stop()
        if steps > 1:
            world.write_attempt()
        world.write_result()
        assert world.status() is JobStatus.FINISHED

    def test_the_next_leader_starts_nothing_either(self) -> None:
        world, driver = running()
        world.stop()
        world.restart()
        driver.alive = False
        world.report_completely(place(1, 2))
        world.write_result()
        assert world.status() is JobStatus.FINISHED

    def test_the_next_leader_ends_a_script_that_does_not(self) -> None:
        world, driver = running()
        world.stop()
        world.restart()
        world.report_completely(place(1))
        assert world.register(driver)
        world.wait(POLICY.heartbeat_timeout - 1)
        for _ in range(7):
            world.tell(ev.JobMasterHeard(1))
            world.wait(9.0)
        assert world.take(ev.StopDriver) is not None
        world.tell(ev.DriverExited(1, place(1), KILLED))
        world.write_result()
        assert world.status() is JobStatus.FINISHED


@pytest.mark.req("BLK-18")
class TestEvacuation:
    """A driver that leaves its node has not failed: no restart strategy is asked."""

    def check_next_attempt(self, world: JobWorld) -> None:
        assert world.status() is JobStatus.RESTARTING
        world.wait(0.0)
        assert world.phase() is Phase.PLACING
        assert world.to_running(2).attempt == 2
        (moved, _) = world.machine.state.history.attempts()
        assert moved.outcome == AttemptOutcome(exit_code=0, kind=FailureKind.MOVED, message="moved from node tm-1")
        assert not world.machine.state.history.exceptions()

    def test_one_that_has_stopped_between_two_batches_starts_elsewhere_at_once(self) -> None:
        world, driver = running(strategy=NoRestart())
        world.tell(ev.OutcomeReported(1, MOVED))
        assert (world.phase(), world.status()) == (Phase.ENDING, JobStatus.RESTARTING)
        driver.alive = False
        world.tell(ev.DriverExited(1, driver.place, MOVED))
        self.check_next_attempt(world)

    @pytest.mark.parametrize("outcome", [KILLED, SCRIPT_FAILED])
    def test_one_that_is_told_to_end_starts_elsewhere_however_its_script_takes_that(
        self, outcome: AttemptOutcome
    ) -> None:
        world, driver = running(strategy=NoRestart())
        effects = world.tell(ev.MoveDriver(1))
        assert ev.StopDriver(1, driver.place, POLICY.grace) in effects
        assert not world.tell(ev.MoveDriver(1)), "once"
        world.tell(ev.OutcomeReported(1, outcome))
        driver.alive = False
        world.tell(ev.DriverExited(1, driver.place, outcome))
        self.check_next_attempt(world)

    def test_a_script_that_ends_well_meanwhile_has_ended(self) -> None:
        world, driver = running()
        world.tell(ev.MoveDriver(1))
        world.tell(ev.OutcomeReported(1, SUCCESS))
        driver.alive = False
        world.tell(ev.DriverExited(1, driver.place, SUCCESS))
        world.write_result()
        assert world.status() is JobStatus.FINISHED

    def test_a_cancelled_job_does_not_move(self) -> None:
        world, driver = running()
        world.tell(ev.MoveDriver(1))
        world.tell(ev.CancelRequested())
        driver.alive = False
        world.tell(ev.DriverExited(1, driver.place, KILLED))
        world.write_result()
        assert world.status() is JobStatus.CANCELED

    def test_while_nodes_are_blocked_a_job_waits_for_a_place_as_long_as_it_takes(self) -> None:
        world = JobWorld()
        for _ in range(3):
            world.wait(POLICY.place_timeout)
            assert world.take(ev.ExplainPlace)
            world.tell(ev.PlaceExplained("all 2 driver places are on blocked nodes", blocked=True))
            assert world.status() is JobStatus.CREATED
        for expected in (JobStatus.CREATED, JobStatus.FAILING):  # after the block there is the whole time again
            world.wait(POLICY.place_timeout)
            world.take(ev.ExplainPlace)
            world.tell(ev.PlaceExplained("all 2 driver places are taken"))
            assert world.status() is expected
