"""What a later leader reads of a job's attempts from the events of an earlier one."""

from __future__ import annotations

import pytest

from emberkeep.base.ids import TaskManagerId
from emberkeep.chronicle.occurrence import CANCELED, Occurrence, What, occurrence_id
from emberkeep.jobmanager.notes.noted_attempts import noted_attempts
from emberkeep.jobs.model import AttemptOutcome, AttemptRecord, FailureKind

TM = TaskManagerId("tm-1")


def start(attempt: int) -> Occurrence:
    return Occurrence(
        id=occurrence_id(1, 10 * attempt),
        time_ms=1000 * attempt,
        what=What.ATTEMPT_STARTED,
        message=f"attempt {attempt} starts on task manager {TM}",
        attempt=attempt,
        task_manager=TM,
    )


def end(attempt: int, message: str, **details: str) -> Occurrence:
    return Occurrence(
        id=occurrence_id(1, 10 * attempt + 1),
        time_ms=1000 * attempt + 500,
        what=What.ATTEMPT_ENDED,
        message=message,
        attempt=attempt,
        task_manager=TM,
        details={name.replace("_", "-"): text for name, text in details.items()},
    )


@pytest.mark.parametrize(
    ("ended", "outcome"),
    [
        (
            end(1, "attempt 1 ended so: or otherwise", cause="script", exit_code="3", reason="KeyError: 'a: b'"),
            AttemptOutcome(exit_code=3, kind=FailureKind.SCRIPT, message="KeyError: 'a: b'"),
        ),
        (end(1, "attempt 1 has ended: well", cause="", exit_code="0", reason=""), AttemptOutcome(exit_code=0)),
        (
            end(1, "attempt 1 was lost: killed: by signal 9", cause="lost", exit_code="137"),  # by an earlier release
            AttemptOutcome(exit_code=137, kind=FailureKind.LOST, message="killed: by signal 9"),
        ),
        (
            end(1, "attempt 1 was cancelled", cause=CANCELED, exit_code="many"),
            AttemptOutcome(exit_code=1, kind=FailureKind.LOST),
        ),
    ],
)
def test_the_cause_of_an_end_is_a_detail_of_its_event(ended: Occurrence, outcome: AttemptOutcome) -> None:
    (found,) = noted_attempts([ended, start(1)])
    assert found == AttemptRecord(attempt=1, task_manager=TM, started_ms=1000, ended_ms=1500, outcome=outcome)


def test_attempts_come_in_order_and_an_end_without_a_start_is_left_out() -> None:
    found = noted_attempts([end(4, "attempt 4 was lost"), start(3), start(2), end(2, "attempt 2 has moved: x")])
    assert [(each.attempt, each.ended_ms) for each in found] == [(2, 2500), (3, None)]
