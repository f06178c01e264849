"""Pointers to checkpoints and savepoints: what a report changes and what it does not."""

from __future__ import annotations

import pytest

from emberkeep.base.errors import Conflict
from emberkeep.jobs.checkpoints import (
    QUERIES_KEPT,
    SAVEPOINTS_KEPT,
    JobPointers,
    QueryCheckpoint,
    SavepointPointer,
    merged,
)


def checkpoint(
    batch_id: int, *, location: str = "/c/1", query_id: str = "q-1", committed_ms: int = 0
) -> QueryCheckpoint:
    return QueryCheckpoint(
        query="flights",
        query_id=query_id,
        location=location,
        batch_id=batch_id,
        triggered_ms=0,
        committed_ms=committed_ms,
    )


def savepoint(number: int) -> SavepointPointer:
    return SavepointPointer(path=f"/s/{number}", manifest_sha256="a" * 64, created_ms=number)


def reported(*batches: int) -> JobPointers:
    return merged(JobPointers(), 1, [checkpoint(batch) for batch in batches])


@pytest.mark.parametrize(
    ("batches", "newest"), [((-1,), ()), ((0,), (0,)), ((3, 4), (4,)), ((4, 3), (4,)), ((4, 4), (4,))]
)
def test_the_newest_committed_batch_of_a_query_is_kept(batches: tuple[int, ...], newest: tuple[int, ...]) -> None:
    assert tuple(query.batch_id for query in reported(*batches).queries) == newest


def test_another_query_at_the_same_location_replaces_the_earlier_one() -> None:
    known = merged(reported(7), 1, [checkpoint(0, query_id="q-2")])
    assert known.queries == (checkpoint(0, query_id="q-2"),)


def test_a_report_without_news_changes_nothing() -> None:
    known = reported(7)
    assert merged(known, 2, [checkpoint(6)]) is known
    assert merged(known, 2, [checkpoint(8)]).attempt == 2


def test_an_attempt_that_a_newer_one_has_followed_is_refused() -> None:
    known = merged(JobPointers(), 2, [checkpoint(7)])
    with pytest.raises(Conflict, match="attempt 1 reports checkpoints"):
        merged(known, 1, [checkpoint(8)])


def test_only_the_newest_pointers_are_kept() -> None:
    queries = [checkpoint(0, location=f"/c/{number}", committed_ms=number) for number in range(QUERIES_KEPT + 2)]
    savepoints = [savepoint(number) for number in range(SAVEPOINTS_KEPT + 2)]
    known = merged(JobPointers(), 1, reversed(queries), reversed(savepoints))
    assert known.queries == tuple(queries[2:])
    assert known.savepoints == tuple(savepoints[2:])


def test_a_savepoint_from_a_node_whose_clock_is_slow_is_the_newest_all_the_same() -> None:
    """Else it would be the first to be forgotten, and retention would delete it."""
    earlier = [savepoint(1000 + number) for number in range(SAVEPOINTS_KEPT)]
    known = merged(JobPointers(), 1, (), earlier)
    late = savepoint(5)
    after = merged(known, 2, (), (late,))
    assert [each.path for each in after.savepoints] == [*(each.path for each in earlier[1:]), late.path]
    assert after.savepoints[-1].created_ms > earlier[-1].created_ms
    assert merged(after, 2, (), (late,)) is after
