"""Pointers to checkpoints and savepoints: what a report changes and what it does not."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.base.errors import Conflict
from emberkeep.jobs.checkpoints import (
    LOCATION_LIMIT,
    QUERIES_BYTES,
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


def named(name: str, number: int) -> QueryCheckpoint:
    return msgspec.structs.replace(checkpoint(0, location=f"/c/{number}", committed_ms=number), query=name)


@pytest.mark.parametrize("letter", ["x", "\x00", "ü"])
def test_queries_with_long_names_leave_a_record_that_fits_into_a_node(letter: str) -> None:
    """ZooKeeper closes the connection of whoever writes a larger one, which is the leader's."""
    known = merged(JobPointers(), 1, [named(letter * 5_000, number) for number in range(QUERIES_KEPT)])

    assert 0 < len(msgspec.json.encode(known.queries)) < QUERIES_BYTES + 1024
    assert known.queries[-1].committed_ms == QUERIES_KEPT - 1
    assert merged(known, 1, known.queries) is known


def test_a_query_that_fits_into_no_record_does_not_keep_out_the_others() -> None:
    known = merged(JobPointers(), 1, [named("x" * 2_000_000, 1), named("flights", 0)])
    assert [each.query for each in known.queries] == ["flights"]
    assert merged(known, 1, [named("x" * 2_000_000, 2)]) is known


@pytest.mark.parametrize(
    ("path", "digits", "is_recordable"),
    [("/s/1", 64, True), ("/" + "ü" * (LOCATION_LIMIT // 2), 64, False), ("/s/1", 65, False)],
)
def test_no_savepoint_is_where_no_path_leads(path: str, digits: int, is_recordable: bool) -> None:
    pointer = SavepointPointer(path=path, manifest_sha256="a" * digits, created_ms=1)
    assert pointer.is_recordable is is_recordable
