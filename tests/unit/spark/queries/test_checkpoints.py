"""Default checkpoints: who gets which, and noticing a script whose queries have changed places."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emberkeep.spark.errors import CheckpointIdentityError
from emberkeep.spark.queries.checkpoints import (
    QueryIdentity,
    QueryRecord,
    can_recover,
    decode,
    directory_of_named,
    directory_of_unnamed,
    encode,
    record_unnamed,
)

_PARQUET = QueryIdentity("parquet", "append", "/out")
_CONSOLE = QueryIdentity("console", "append", "")


def test_same_queries_in_the_same_order_keep_their_record() -> None:
    record = QueryRecord({})
    for ordinal, query in enumerate([_PARQUET, _CONSOLE]):
        record = record_unnamed(record, ordinal, query, "file:///root")
    for ordinal, query in enumerate([_PARQUET, _CONSOLE]):
        assert record_unnamed(record, ordinal, query, "file:///root") is record


def test_swapped_queries_are_refused_naming_both() -> None:
    record = QueryRecord({0: _PARQUET})
    with pytest.raises(CheckpointIdentityError) as caught:
        record_unnamed(record, 0, _CONSOLE, "file:///root")
    assert "now writes console (append mode)" in str(caught.value)
    assert "belongs to a query that writes parquet /out (append mode)" in str(caught.value)
    assert "queryName" in str(caught.value)


def test_same_sink_with_another_target_is_another_query() -> None:
    with pytest.raises(CheckpointIdentityError, match="/elsewhere"):
        record_unnamed(QueryRecord({0: _PARQUET}), 0, QueryIdentity("parquet", "append", "/elsewhere"), "r")


def test_memory_recovers_in_complete_mode_only() -> None:
    assert can_recover("memory", "complete")
    assert not can_recover("memory", "append")
    assert can_recover("console", "append")


def test_names_become_directories_of_their_own() -> None:
    assert directory_of_named("a/b c") == "query-a%2Fb%20c"
    assert len(directory_of_named("注文の集計" * 20)) <= 255, "the most that file systems take"
    assert directory_of_unnamed(2, QueryIdentity("org.x.Sink$", "update", "t")) == "unnamed-2-org.x.Sink_-update"


@given(st.dictionaries(st.integers(0, 50), st.builds(QueryIdentity, st.text(), st.text(), st.text())))
def test_record_is_read_as_it_was_written(queries: dict[int, QueryIdentity]) -> None:
    assert decode(encode(QueryRecord(queries)), "here") == QueryRecord(queries)


def test_damaged_record_is_refused_naming_the_file() -> None:
    text = encode(QueryRecord({0: _PARQUET}))
    for broken in (text[:-10], text.replace("/out", "/0ut"), "[]", "{}", ""):
        with pytest.raises(CheckpointIdentityError, match=r"somewhere/queries\.json is damaged"):
            decode(broken, "somewhere/queries.json")
    newer = json.loads(text) | {"version": 2}
    with pytest.raises(CheckpointIdentityError, match="format version 2"):
        decode(json.dumps(newer), "somewhere/queries.json")
