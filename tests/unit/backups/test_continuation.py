"""From where a restored job continues."""

from __future__ import annotations

import pytest

from emberkeep.backups.continuation import (
    CheckpointSeen,
    From,
    SavepointSeen,
    Sight,
    continuation,
    pointers_after,
)
from emberkeep.jobs.checkpoints import JobPointers, QueryCheckpoint, SavepointPointer

pytestmark = pytest.mark.req("SAFE-23")


def checkpoint(location: str, batch: int = 5) -> QueryCheckpoint:
    return QueryCheckpoint(
        query="q", query_id="id", location=location, batch_id=batch, triggered_ms=1, committed_ms=batch
    )


def savepoint(path: str, created_ms: int) -> SavepointPointer:
    return SavepointPointer(path=path, manifest_sha256="0" * 64, created_ms=created_ms)


def seen(location: str, sight: Sight, newest: int = -1) -> CheckpointSeen:
    return CheckpointSeen(pointer=checkpoint(location), sight=sight, newest=newest)


def test_a_job_without_committed_batches_runs_from_its_beginning() -> None:
    assert continuation([], []).start is From.BEGINNING


def test_checkpoints_that_are_there_are_used_even_if_there_is_a_savepoint() -> None:
    found = continuation([seen("/c/1", Sight.FOUND, 7)], [SavepointSeen(pointer=savepoint("/s", 9), sight=Sight.FOUND)])
    assert (found.start, found.savepoint, found.batches, found.notes) == (From.CHECKPOINTS, "", {"/c/1": 7}, ())


def test_a_checkpoint_that_lacks_batches_is_reported() -> None:
    (note,) = continuation([seen("/c/1", Sight.FOUND, 3)], []).notes
    assert "ends at batch 3, but batch 5 was committed" in note


def test_the_newest_savepoint_that_can_be_reached_replaces_checkpoints_that_are_all_lost() -> None:
    savepoints = [
        SavepointSeen(pointer=savepoint("/s/old", 1), sight=Sight.FOUND),
        SavepointSeen(pointer=savepoint("/s/new", 2), sight=Sight.FOUND),
        SavepointSeen(pointer=savepoint("/s/lost", 3), sight=Sight.MISSING),
        SavepointSeen(pointer=savepoint("s3a://s/unknown", 4), sight=Sight.UNKNOWN),
    ]
    found = continuation([seen("/c/1", Sight.MISSING)], savepoints)
    assert (found.start, found.savepoint) == (From.SAVEPOINT, "/s/new")
    assert "its checkpoints are missing (/c/1)" in found.notes[0]
    assert found.notes[1:] == ("the newer savepoint s3a://s/unknown was not examined: it cannot be read from here",)


@pytest.mark.parametrize("other", [Sight.FOUND, Sight.UNKNOWN])
def test_a_savepoint_is_not_used_while_one_checkpoint_may_be_there(other: Sight) -> None:
    found = continuation(
        [seen("/c/1", Sight.MISSING), seen("/c/2", other, 9)],
        [SavepointSeen(pointer=savepoint("/s", 1), sight=Sight.FOUND)],
    )
    assert found.start is From.CHECKPOINTS
    assert "the checkpoint /c/1 is missing: its query waits for it" in found.notes


def test_without_any_savepoint_the_queries_wait() -> None:
    unknown = SavepointSeen(pointer=savepoint("s3a://s/unknown", 4), sight=Sight.UNKNOWN)
    found = continuation([seen("/c/1", Sight.MISSING)], [unknown])
    assert found.start is From.NOTHING
    assert "the query waits until the checkpoint is back" in found.notes[0]
    assert found.notes[1:] == ("the savepoint s3a://s/unknown was not examined: it cannot be read from here",)


def test_a_job_that_starts_from_a_savepoint_forgets_the_checkpoints_that_its_queries_would_wait_for() -> None:
    pointers = JobPointers(queries=(checkpoint("/c/1"),), savepoints=(savepoint("/s", 1),))
    lost = continuation(
        [seen("/c/1", Sight.MISSING)], [SavepointSeen(pointer=pointers.savepoints[0], sight=Sight.FOUND)]
    )
    assert pointers_after(pointers, lost) == JobPointers(savepoints=pointers.savepoints)
    kept = continuation([seen("/c/1", Sight.FOUND, 5)], [])
    assert pointers_after(pointers, kept) == pointers
