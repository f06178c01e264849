"""What an upgrade does in each phase: stop, start, watch, go back."""

from __future__ import annotations

import pytest

from emberkeep.base.errors import Conflict
from emberkeep.jobs.model import JobStatus
from emberkeep.jobs.upgrades.machine import BASES_KEPT, UNREADABLE
from emberkeep.jobs.upgrades.model import CancelJob, StopFacts, StopState, SubmitJob, UpgradePhase, VersionFacts
from emberkeep.jobs.upgrades.ports import UPGRADE_BYTES, record_size
from emberkeep.jobs.upgrades.words import upgrade_text
from tests.unit.jobs.upgrades.upgraded_job import BACK, NEW, OLD, SAVEPOINT, UpgradedJob, query, watched

WITHIN = 600.0  # seconds, as in the record


def test_a_good_upgrade_stops_starts_and_counts_the_batches_of_each_query() -> None:
    job = UpgradedJob()
    assert job.steps() is UpgradePhase.STOPPING
    assert (job.asked, job.accepted) == (1, [])
    job.stopped()
    assert job.steps() is UpgradePhase.WATCHING
    (graph,) = job.accepted
    assert (graph.job_id, graph.savepoint) == (NEW, SAVEPOINT)
    job.runs(query(10), query(5, location="/c/2", has_rows=False))
    assert job.steps() is UpgradePhase.WATCHING
    assert job.stored.bases == {"/c/1": 9, "/c/2": 5}, "a query that has read no rows yet shows the savepoint's batch"
    job.runs(query(12), query(7, location="/c/2"))
    assert job.steps() is UpgradePhase.WATCHING, "the second query has committed two batches"
    job.runs(query(12), query(8, location="/c/2"))
    assert job.steps() is UpgradePhase.DONE
    assert (job.stored.new, job.stored.back, job.stored.ended_ms) == (None, None, job.ms)
    assert job.look() == []


def test_the_new_job_is_not_submitted_before_the_old_one_is_over() -> None:
    job = UpgradedJob()
    job.steps()
    job.stop = StopFacts(state=StopState.MADE, savepoint=SAVEPOINT)
    assert job.steps() is UpgradePhase.STOPPING
    job.change(OLD, status=JobStatus.FINISHED)  # its driver still ends
    assert job.steps() is UpgradePhase.STOPPING
    job.end(OLD, JobStatus.FAILED, "the script raised after the stop")
    assert job.steps() is UpgradePhase.WATCHING, "its state is in the savepoint"


def test_an_old_job_whose_result_is_forgotten_has_ended() -> None:
    job = UpgradedJob()
    job.steps()
    del job.jobs[OLD]
    job.stop = StopFacts(state=StopState.MADE, savepoint=SAVEPOINT)
    assert job.steps() is UpgradePhase.WATCHING


def test_an_old_job_that_is_forgotten_without_a_savepoint_ends_the_upgrade() -> None:
    job = UpgradedJob()
    job.steps()
    del job.jobs[OLD]
    assert job.steps() is UpgradePhase.FAILED
    assert job.accepted == []


def test_a_savepoint_whose_record_cannot_be_read_is_waited_for_until_the_job_is_over() -> None:
    job = UpgradedJob()
    job.steps()
    job.take_over()
    job.stop = StopFacts(state=StopState.UNREADABLE)
    asked = job.asked
    assert job.steps() is UpgradePhase.STOPPING
    job.change(OLD, status=JobStatus.FINISHED)
    assert job.steps() is UpgradePhase.STOPPING
    assert job.asked == asked
    job.end(OLD, JobStatus.FINISHED)
    assert job.steps() is UpgradePhase.FAILED
    assert job.stored.reason == UNREADABLE


@pytest.mark.parametrize(
    ("status", "phase", "reason"),
    [
        (JobStatus.CANCELED, UpgradePhase.FAILED, "was cancelled"),
        (JobStatus.FAILED, UpgradePhase.FAILED, "it is FAILED: no memory"),
        (JobStatus.FINISHED, UpgradePhase.FAILED, "it is FINISHED"),
    ],
)
def test_an_old_job_that_ends_without_the_stop_ends_the_upgrade(
    status: JobStatus, phase: UpgradePhase, reason: str
) -> None:
    job = UpgradedJob()
    job.steps()
    job.end(OLD, status, "no memory" if status is JobStatus.FAILED else "")
    assert job.steps() is phase
    assert reason in job.stored.reason
    assert job.accepted == []


def test_a_cancelled_old_job_starts_nothing_although_its_savepoint_is_complete() -> None:
    job = UpgradedJob()
    job.steps()
    job.stopped()
    job.end(OLD, JobStatus.CANCELED)
    assert job.steps() is UpgradePhase.FAILED
    assert job.accepted == []


def test_the_savepoint_of_a_job_that_was_cancelled_after_its_stop_is_recorded() -> None:
    job = UpgradedJob()
    job.steps()
    job.stopped()
    job.end(OLD, JobStatus.CANCELED)
    assert job.steps() is UpgradePhase.FAILED
    assert job.stored.savepoint == SAVEPOINT


@pytest.mark.parametrize("status", [JobStatus.CANCELLING, JobStatus.FAILING])
def test_it_is_not_unchanged_while_the_old_job_is_ending(status: JobStatus) -> None:
    job = UpgradedJob()
    job.steps()
    job.change(OLD, status=status)
    job.stop = StopFacts(state=StopState.FAILED, failure="the job is ending")
    assert job.steps() is UpgradePhase.STOPPING
    job.end(OLD, JobStatus.CANCELED if status is JobStatus.CANCELLING else JobStatus.FAILED)
    assert job.steps() is UpgradePhase.FAILED


def test_a_job_that_was_failing_and_runs_again_is_unchanged() -> None:
    job = UpgradedJob()
    job.steps()
    job.change(OLD, status=JobStatus.FAILING)
    job.stop = StopFacts(state=StopState.FAILED, failure="no space")
    job.steps()
    job.change(OLD, status=JobStatus.RESTARTING)
    assert job.steps() is UpgradePhase.UNCHANGED


def test_a_failed_stop_leaves_the_old_job_running() -> None:
    job = UpgradedJob()
    job.steps()
    job.stop = StopFacts(state=StopState.FAILED, failure="a batch did not end in time")
    assert job.steps() is UpgradePhase.UNCHANGED
    assert "a batch did not end in time" in upgrade_text(job.stored)


def test_a_refused_stop_leaves_the_old_job_running() -> None:
    job = UpgradedJob()
    job.machine.stop_refused("it is being drained")
    assert job.steps() is UpgradePhase.UNCHANGED
    assert job.asked == 0


def test_the_next_leader_asks_again_for_a_stop_that_it_does_not_know() -> None:
    job = UpgradedJob()
    job.steps()
    job.stop = StopFacts(state=StopState.UNKNOWN)
    job.take_over()
    job.steps()
    assert job.asked == 2


def test_a_new_job_that_fails_is_followed_by_the_old_code_once_its_driver_is_gone() -> None:
    job = watched()
    job.change(NEW, status=JobStatus.FAILED, cause="no such column")
    assert job.steps() is UpgradePhase.WATCHING
    job.end(NEW, JobStatus.FAILED, "no such column")
    assert job.steps() is UpgradePhase.RETURNED
    assert [(each.job_id, each.savepoint) for each in job.accepted] == [(NEW, SAVEPOINT), (BACK, SAVEPOINT)]
    assert job.canceled == []
    assert "no such column" in upgrade_text(job.stored)


def test_a_driver_that_is_restarted_too_often_is_cancelled_first() -> None:
    job = watched()
    job.runs(attempt=3)
    assert job.steps() is UpgradePhase.WATCHING
    job.change(NEW, attempt=4, cause="no such column")
    assert job.steps() is UpgradePhase.CANCELLING
    assert job.canceled == [NEW]
    assert [each.job_id for each in job.accepted] == [NEW]
    job.end(NEW, JobStatus.CANCELED)
    assert job.steps() is UpgradePhase.RETURNED
    assert job.stored.reason == "the driver of the new job was restarted 3 times: no such column"


def test_a_query_that_is_too_slow_is_not_good() -> None:
    job = watched()
    job.runs(query(10))
    job.steps()
    job.step(WITHIN - 1)
    assert job.at() is UpgradePhase.WATCHING
    job.step(1)
    assert job.at() is UpgradePhase.CANCELLING
    assert "query counts has committed 1 of 3 batches" in job.stored.reason


def test_the_record_of_a_script_that_begins_query_after_query_stays_small() -> None:
    job = watched()
    job.runs(query(10))
    job.steps()
    for first in range(0, 3 * BASES_KEPT, 100):
        others = (query(0, location=f"/c/other-{number}") for number in range(first, first + 100))
        job.runs(query(10), *others)
        job.steps()
    assert len(job.stored.bases) == BASES_KEPT
    job.runs(query(12))
    assert job.steps() is UpgradePhase.DONE, "the base of a query that runs all the time is kept"


def test_a_record_stays_small_whatever_the_new_job_does() -> None:
    """ZooKeeper ends the session of a leader that writes a megabyte, and that of the next one."""
    job = watched()
    job.runs(query(10), *(query(0, location=f"/{'c' * 4000}/{number}") for number in range(BASES_KEPT)))
    job.steps()
    assert "/c/1" in job.stored.bases
    assert record_size(job.stored) < UPGRADE_BYTES
    job.end(NEW, JobStatus.FAILED, "x" * 2_000_000)
    job.steps()
    assert job.at() is UpgradePhase.RETURNED
    assert "the new job failed: xxx" in job.stored.reason
    assert record_size(job.stored) < UPGRADE_BYTES


def test_a_query_that_waits_for_data_when_the_time_is_over_is_good() -> None:
    job = watched()
    job.runs(query(10, waits=True))
    job.steps()
    assert job.at() is UpgradePhase.WATCHING
    job.step(WITHIN)
    assert job.at() is UpgradePhase.DONE


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (VersionFacts(is_known=True, status=JobStatus.CREATED), "it is CREATED"),
        (VersionFacts(is_known=True, status=JobStatus.RESTARTING, attempt=1, cause="lost"), "it is RESTARTING: lost"),
        (VersionFacts(is_known=True, status=JobStatus.RUNNING, attempt=1), "it runs no streaming query"),
    ],
)
def test_a_job_without_a_running_query_is_not_good(facts: VersionFacts, reason: str) -> None:
    job = watched()
    job.jobs[NEW] = facts
    job.steps()
    job.step(WITHIN)
    assert job.at() is UpgradePhase.CANCELLING
    assert reason in job.stored.reason


def test_a_new_job_that_finishes_is_good() -> None:
    job = watched()
    job.end(NEW, JobStatus.FINISHED)
    assert job.steps() is UpgradePhase.DONE


def test_a_new_job_that_a_person_cancels_is_not_followed() -> None:
    job = watched()
    job.end(NEW, JobStatus.CANCELED)
    assert job.steps() is UpgradePhase.FAILED
    assert [each.job_id for each in job.accepted] == [NEW]


def test_a_new_job_that_a_person_is_cancelling_is_left_to_that_person() -> None:
    job = watched()
    job.change(NEW, status=JobStatus.CANCELLING, attempt=4)
    job.step(2 * WITHIN)
    assert job.at() is UpgradePhase.WATCHING
    job.end(NEW, JobStatus.CANCELED)
    assert job.steps() is UpgradePhase.FAILED
    assert [each.job_id for each in job.accepted] == [NEW]


def test_a_new_job_that_a_person_stops_is_not_cancelled_although_its_time_is_over() -> None:
    job = watched()
    job.runs(query(10))
    job.steps()
    job.change(NEW, is_stopping=True, attempt=4)
    job.step(2 * WITHIN)
    assert job.at() is UpgradePhase.WATCHING
    job.end(NEW, JobStatus.FINISHED)
    assert job.steps() is UpgradePhase.DONE


def test_the_watch_continues_when_the_stop_of_a_person_has_failed() -> None:
    job = watched()
    job.runs(query(10))
    job.change(NEW, is_stopping=True)
    job.step(2 * WITHIN)
    job.change(NEW, is_stopping=False)
    job.steps()
    assert job.at() is UpgradePhase.CANCELLING


def test_a_leader_that_takes_over_late_looks_before_it_decides() -> None:
    job = watched()
    job.runs(query(10))
    job.steps()
    job.take_over()
    job.jobs[NEW] = VersionFacts(is_known=True, status=JobStatus.INITIALIZING, attempt=1)
    job.step(10 * WITHIN)
    assert job.at() is UpgradePhase.WATCHING, "the driver has not reported to this leader yet"
    job.runs(query(12))
    job.step(5)
    assert job.at() is UpgradePhase.DONE


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_clock_that_is_set_changes_nothing_of_the_time_for_the_watch(hours: int) -> None:
    job = watched()
    job.runs(query(4))
    job.step()
    job.ms += hours * 3_600_000
    job.step(job.stored.within_ms / 1000 - 1)
    assert job.at() is UpgradePhase.WATCHING
    job.step(1.5)
    assert job.at() is UpgradePhase.CANCELLING


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_leader_with_another_clock_ends_the_watch_in_time_and_not_before_it_has_looked(hours: int) -> None:
    job = watched()
    job.ms += hours * 3_600_000
    job.take_over()
    job.step()
    job.step(59.0 if hours > 0 else job.stored.within_ms / 1000 - 1)
    assert job.at() is UpgradePhase.WATCHING
    job.step(1.5)
    assert job.at() is UpgradePhase.CANCELLING


def test_a_new_job_that_is_not_accepted_is_followed_by_the_old_code() -> None:
    job = UpgradedJob()
    job.steps()
    job.stopped()
    job.step()
    (effect,) = job.look()
    assert isinstance(effect, SubmitJob)
    assert job.look() == [], "one submission at a time"
    job.machine.submitted("unknown option")
    assert job.steps() is UpgradePhase.RETURNED
    assert [each.job_id for each in job.accepted] == [BACK]
    assert "unknown option" in job.stored.reason


def test_the_old_code_that_is_not_accepted_needs_a_person() -> None:
    job = watched()
    job.end(NEW, JobStatus.FAILED, "no such column")
    job.step()
    assert isinstance(job.look()[0], SubmitJob)
    job.machine.submitted("its files are gone")
    assert job.steps() is UpgradePhase.FAILED
    assert (
        job.stored.reason
        == "the new job failed: no such column; then the old code was not accepted: its files are gone"
    )
    assert SAVEPOINT in upgrade_text(job.stored)


def test_a_cancelled_watch_goes_back() -> None:
    job = watched()
    job.runs(query(10))
    job.steps()
    job.machine.cancel("ana")
    assert job.steps() is UpgradePhase.CANCELLING
    job.end(NEW, JobStatus.CANCELED)
    assert job.steps() is UpgradePhase.RETURNED
    assert job.stored.reason == "ana has cancelled the upgrade"
    job.machine.cancel("bob")  # a repeated request, which has no effect
    assert job.stored.canceled_by == "ana"


def test_a_cancelled_stop_cannot_be_recalled_but_starts_the_old_code_again() -> None:
    job = UpgradedJob()
    job.steps()
    job.machine.cancel("")
    assert job.steps() is UpgradePhase.STOPPING
    job.stopped()
    assert job.steps() is UpgradePhase.RETURNED
    assert [each.job_id for each in job.accepted] == [BACK]


def test_an_upgrade_that_is_cancelled_before_the_stop_leaves_the_job_as_it_is() -> None:
    job = UpgradedJob()
    job.machine.cancel("ana")
    assert job.steps() is UpgradePhase.UNCHANGED
    assert job.asked == 0


def test_what_goes_back_or_has_ended_cannot_be_cancelled() -> None:
    job = watched()
    job.runs(attempt=4)
    job.steps()
    with pytest.raises(Conflict, match="it was too late: the upgrade is CANCELLING"):
        job.machine.cancel("ana")
    job.end(NEW, JobStatus.CANCELED)
    job.steps()
    with pytest.raises(Conflict, match="it was too late: the upgrade is RETURNED"):
        job.machine.cancel("ana")


def test_a_cancellation_is_asked_for_once_at_a_time() -> None:
    job = watched()
    job.runs(attempt=4)
    job.step()
    assert job.look() == [CancelJob(NEW)]
    assert job.look() == []
    job.machine.cancel_recorded()  # it was not recorded
    assert job.look() == [CancelJob(NEW)]
