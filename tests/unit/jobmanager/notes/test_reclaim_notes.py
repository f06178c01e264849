"""What is noted of a job that gives slots back: once for each time that it has to give more."""

from __future__ import annotations

import pytest

from emberkeep.chronicle.occurrence import What
from emberkeep.jobmanager.notes.job_notes import JobNotes
from emberkeep.protocol.messages.job_master_reports import JobMasterStatus
from emberkeep.slots.model import Reclaim

pytestmark = pytest.mark.req("RES-6")


def noted(notes: JobNotes, ceiling: int | None, attempt: int = 1) -> list[str]:
    reclaim = None if ceiling is None else Reclaim(ceiling=ceiling, reason="job 7 waits", whole=not ceiling)
    status = JobMasterStatus(sequence=1, requirements=(), executors=(), reclaim=reclaim)
    found = list(notes.reported(attempt, status, 0))
    return [each.message for each in found if each.what == What.SLOTS_RECLAIMED]


def test_each_further_loss_is_noted_with_its_reason() -> None:
    notes = JobNotes("job", 0, 0)
    assert noted(notes, None) == []
    assert noted(notes, 2) == ["the job gives slots back and keeps 2 executors: job 7 waits"]
    assert noted(notes, 2) == []
    assert noted(notes, 3) == [], "it may keep more than it was told"
    assert noted(notes, 1) == ["the job gives slots back and keeps 1 executor: job 7 waits"]
    assert noted(notes, None) == []
    assert noted(notes, 1) == ["the job gives slots back and keeps 1 executor: job 7 waits"]


def test_a_job_that_is_put_back_is_noted_as_such() -> None:
    notes = JobNotes("job", 0, 0)
    assert noted(notes, 1) == ["the job gives slots back and keeps 1 executor: job 7 waits"]
    assert noted(notes, 0) == ["the job is put back to waiting, and gives all its slots back: job 7 waits"]
    assert noted(notes, 0) == []


def test_what_an_earlier_leader_has_noted_is_not_noted_again() -> None:
    notes = JobNotes("job", 3, 0)
    assert noted(notes, 2, attempt=3) == []
    assert noted(notes, 1, attempt=3) != []
    assert noted(notes, 1, attempt=4) != [], "a later attempt gives back by itself"
