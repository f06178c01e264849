"""What is noted of a job whose number of executors changes: little, and nothing twice."""

from __future__ import annotations

from itertools import count

import msgspec

from emberkeep.base.ids import AllocationId, ExecutorId, TaskManagerId
from emberkeep.chronicle.occurrence import Occurrence, What
from emberkeep.jobmanager.notes.job_notes import JobNotes
from emberkeep.jobmanager.notes.scaling_notes import LACK_MS, PAUSE_MS
from emberkeep.jobs.model import ExceptionEntry
from emberkeep.protocol.messages.job_master_reports import ExecutorView, JobMasterStatus, Scaling
from emberkeep.protocol.messages.task_manager_reports import ProcessState

SECOND = 1000
numbers = count(1)


def report(present: int, wanted: int, waiting: str = "") -> JobMasterStatus:
    executors = tuple(
        ExecutorView(
            executor_id=ExecutorId(str(number)),
            allocation_id=AllocationId(str(number)),
            task_manager=TaskManagerId("tm"),
            host="127.0.0.1",
            state=ProcessState.RUNNING,
            registered=True,
            cores=1,
            heap_mb=1,
        )
        for number in range(present)
    )
    scaling = Scaling(wanted=wanted, minimum=0, maximum=4, changed_ms=0)
    return JobMasterStatus(
        sequence=next(numbers), requirements=(), executors=executors, waiting=waiting, scaling=scaling
    )


def noted(notes: JobNotes, now_ms: int, status: JobMasterStatus, attempt: int = 1) -> list[str]:
    found: list[Occurrence] = list(notes.reported(attempt, status, now_ms))
    assert all(each.attempt == attempt for each in found)
    return [each.message for each in found]


def test_the_first_change_is_noted_at_once_and_what_follows_within_a_minute_together() -> None:
    notes = JobNotes("job", 0, 0)
    assert noted(notes, 0, report(0, 1)) == []
    assert noted(notes, SECOND, report(1, 3)) == ["dynamic allocation: 0 → 1 executors; Spark wants 3"]
    for second, present in enumerate((3, 4, 0, 2), 2):
        assert noted(notes, second * SECOND, report(present, 2)) == []
    late = SECOND + PAUSE_MS
    assert noted(notes, late, report(2, 2)) == [
        "dynamic allocation: 1 → 2 executors, and between 0 and 4 in the meantime; Spark wants 2"
    ]
    assert noted(notes, late + PAUSE_MS, report(2, 2)) == [], "nothing has changed"


def test_a_job_that_changes_all_day_makes_at_most_one_entry_a_minute() -> None:
    notes = JobNotes("job", 0, 0)
    hours, step = 24, 2 * SECOND
    entries = [
        message
        for now in range(0, hours * 3600 * SECOND, step)
        for message in noted(notes, now, report((now // step) % 5, (now // step + 1) % 5))
    ]
    assert hours * 60 - 1 <= len(entries) <= hours * 60


def test_only_a_lasting_lack_is_noted_and_its_end_once() -> None:
    notes = JobNotes("job", 0, 0)
    assert noted(notes, 0, report(0, 2, "2 of 2 slots are missing")) == []
    assert noted(notes, SECOND, report(0, 0)) == [], "nothing is wanted"
    assert noted(notes, 2 * SECOND, report(0, 2, "2 of 2 slots are missing")) == []
    start = 2 * SECOND + LACK_MS
    assert noted(notes, start, report(0, 2, "2 of 2 slots are missing")) == [
        "the attempt waits: 2 of 2 slots are missing"
    ]
    assert noted(notes, start + SECOND, report(0, 2, "2 of 2 slots are missing")) == []
    assert noted(notes, start + 2 * SECOND, report(1, 2)) == [
        "dynamic allocation: 0 → 1 executors; Spark wants 2",
        "the attempt has 1 of 2 executors, and continues",
    ]


def test_each_decision_of_autoscaling_is_noted_with_its_reason() -> None:
    notes = JobNotes("job", 0, 0)

    def status(wanted: int, changed_ms: int, reason: str = "") -> JobMasterStatus:
        scaling = Scaling(wanted=wanted, minimum=1, maximum=4, changed_ms=changed_ms, autoscaled=True, reason=reason)
        return msgspec.structs.replace(report(1, wanted), scaling=scaling)

    assert noted(notes, 0, status(1, 5)) == [], "the number with which it begins"
    for now in (SECOND, 2 * SECOND):
        expected = ["autoscaling: 1 → 2 executors wanted: query q is busy"] if now == SECOND else []
        assert noted(notes, now, status(2, 900, "query q is busy")) == expected
    assert noted(notes, 3 * SECOND, status(1, 2900, "query q is idle")) == [
        "autoscaling: 2 → 1 executors wanted: query q is idle"
    ]


def losing(status: JobMasterStatus, *executors: int) -> JobMasterStatus:
    """The report with the newest entries about lost executors, as a JobMaster repeats them."""
    entries = tuple(
        ExceptionEntry(
            timestamp_ms=executor,
            attempt=1,
            kind="ExecutorLost",
            message="gone",
            task_manager="tm",
            executor=str(executor),
        )
        for executor in executors
    )
    return msgspec.structs.replace(status, exceptions=entries)


def test_executors_that_are_lost_are_noted_at_once_and_are_no_change_of_the_number() -> None:
    notes = JobNotes("job", 0, 0)
    assert len(noted(notes, 0, report(4, 4))) == 1
    (ended,) = notes.reported(1, losing(report(2, 4), 2, 3), SECOND)
    assert ended.what == What.EXECUTORS_ENDED
    assert ended.message == "executors 2, 3 ended on tm: 2 of 4"
    assert ended.task_manager == "tm"
    assert ended.details == {"executors": "2 3", "present": "2", "wanted": "4"}
    late = SECOND + PAUSE_MS
    assert noted(notes, late, losing(report(2, 4), 2, 3)) == [], "Spark wants as many as before"
    assert noted(notes, late + SECOND, losing(report(4, 4), 2, 3)) == [
        "dynamic allocation: 2 → 4 executors; Spark wants 4"
    ]
    assert noted(notes, late + 2 * SECOND, losing(report(2, 2), 2, 3)) == [], "others of these names were dismissed"


def test_an_executor_that_spark_misses_first_is_noted_once_its_end_is_known() -> None:
    notes = JobNotes("job", 0, 0)
    noted(notes, 0, report(2, 2))
    whole = report(2, 2)
    missed = msgspec.structs.replace(whole.executors[1], registered=False)
    assert noted(notes, PAUSE_MS, msgspec.structs.replace(whole, executors=(whole.executors[0], missed))) == []
    assert noted(notes, PAUSE_MS + SECOND, losing(report(1, 2), 1)) == ["executor 1 ended on tm: 1 of 2"]


def test_a_loss_under_autoscaling_is_noted_beside_its_decisions() -> None:
    notes = JobNotes("job", 0, 0)
    scaling = Scaling(wanted=2, minimum=1, maximum=4, changed_ms=5, autoscaled=True)
    before, after = (msgspec.structs.replace(report(count, 2), scaling=scaling) for count in (2, 1))
    assert noted(notes, 0, before) == []
    assert noted(notes, SECOND, losing(after, 1)) == ["executor 1 ended on tm: 1 of 2"]


def test_a_new_leader_notes_no_loss_that_an_earlier_one_has_seen() -> None:
    notes = JobNotes("job", recovered=1, since_ms=0)
    assert noted(notes, 0, losing(report(2, 2), 2)) == []
    assert noted(notes, SECOND, losing(report(1, 2), 2, 1)) == ["executor 1 ended on tm: 1 of 2"]


def test_a_new_leader_notes_no_change_that_an_earlier_one_has_seen() -> None:
    notes = JobNotes("job", recovered=3, since_ms=0)
    assert noted(notes, 0, report(4, 4), attempt=3) == []
    assert noted(notes, SECOND, report(2, 2), attempt=3) == ["dynamic allocation: 4 → 2 executors; Spark wants 2"]
    assert noted(notes, 2 * SECOND, report(1, 1), attempt=4) == [
        "dynamic allocation: 0 → 1 executors; Spark wants 1"
    ], "the next attempt begins without any"
