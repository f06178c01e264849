"""Which queries of a script are known: a script that starts a query again has one query, not two."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from emberkeep.spark.model import StartedQuery
from emberkeep.spark.queries import script_queries
from emberkeep.spark.queries.checkpoints import QueryIdentity
from emberkeep.spark.queries.script_queries import ScriptQueries, ScriptQuery

SINK = QueryIdentity("foreachBatch", "append", "jobs.write")


class Handle:
    """A StreamingQuery. Its id is in its checkpoint, so the next run has it as well."""

    def __init__(self, identity: str, failure: Exception | None = None) -> None:
        self.id = identity
        self.failure = failure

    def exception(self) -> Exception | None:
        return self.failure


class Java:
    """A writer in the JVM without settings."""

    def getClass(self) -> Java:  # noqa: N802 - Java's name
        return self

    def getDeclaredFields(self) -> list[Any]:  # noqa: N802
        return []


def start(
    queries: ScriptQueries,
    handle: Handle,
    location: str | None,
    *,
    writer: Any = None,
    name: str = "",
    identity: QueryIdentity = SINK,
) -> ScriptQuery:
    started, writer = StartedQuery(location), object() if writer is None else writer
    key = queries.key_for(writer, name or None, identity, started)
    query = ScriptQuery(writer, "start", (), {}, key, name, identity, started, location, [], handle)
    queries.add(query)
    return query


@pytest.mark.req("END-4", "END-9")
def test_an_unnamed_query_that_is_started_again_with_a_new_writer_is_the_same_query() -> None:
    """As in a script that tries again: ``while True: frame.writeStream….start().awaitTermination()``."""
    queries = ScriptQueries()
    failed = start(queries, Handle("1", ValueError("bad row")), "/c/one")
    other = start(queries, Handle("2"), "/c/two")
    assert queries.has_failed()

    again = start(queries, Handle("1"), "/c/one/")

    assert queries.all() == [other, again], "its savepoint has one part"
    assert again.key == failed.key, "a savepoint made now fits the script that has not failed"
    assert not queries.has_failed(), "the end of the script is a success"
    assert queries.handle_of(Handle("1")) is again.handle
    assert start(queries, Handle("3"), "/c/three").key.startswith("unnamed-2-"), "as if nothing had failed"


def test_queries_with_checkpoints_of_their_own_or_none_are_different_queries() -> None:
    queries = ScriptQueries()
    keys = [start(queries, Handle(str(n)), location).key for n, location in enumerate(("/c/one", None, None, "/c/on"))]
    assert len(set(keys)) == 4
    assert len(queries.all()) == 4


def test_another_query_with_the_checkpoint_of_one_that_has_ended_takes_its_place() -> None:
    queries = ScriptQueries()
    start(queries, Handle("1", ValueError("bad row")), "/c/one", name="before")
    renamed = start(queries, Handle("1"), "/c/one", name="after")
    assert queries.all() == [renamed]
    elsewhere = start(queries, Handle("1"), "/c/one", identity=QueryIdentity("console", "append", ""))
    assert queries.all() == [elsewhere]
    assert elsewhere.key == "unnamed-0-console-append"


def test_an_unnamed_query_keeps_its_position_in_another_spark_context_and_after_a_start_that_failed() -> None:
    queries = ScriptQueries()
    begun = queries.key_for(object(), None, SINK, StartedQuery("/c/one"))  # its start raises
    assert start(queries, Handle("1"), "/c/one").key == begun
    queries.clear()
    assert start(queries, Handle("1"), "/c/one").key == begun


def test_a_query_is_known_while_it_is_started_again() -> None:
    """A stop that is given up starts queries again while the script starts others, which are to end at once."""
    queries = ScriptQueries()
    seen: list[bool] = []
    handle = Handle("1")
    writer = cast(Any, SimpleNamespace(_jwrite=Java()))
    writer.start = lambda: seen.append(queries.is_starting_again("1") and not queries.is_starting_again("2"))
    query = start(queries, handle, "/c/one", writer=writer)
    assert not queries.is_starting_again("1")
    queries.start_again(query)
    assert seen == [True]
    assert not queries.is_starting_again("1")


class Session:
    """A session lists the queries that it runs, those that the hook around the start does not know as well."""

    def __init__(self, *running: Any) -> None:
        self.streams = SimpleNamespace(active=running)


def test_all_running_queries_are_stopped_whatever_session_has_started_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session lists only its own queries; functions that see rows after their end would lose these."""
    stopped: list[str] = []

    def stops(identity: str, *, active: bool = True) -> Any:
        handle = cast(Any, Handle(identity))
        handle._jsq = SimpleNamespace(isActive=lambda: active)
        handle.stop = lambda: stopped.append(identity)
        return handle

    own, other, process = Session(stops("unknown")), Session(), Session(stops("of the JVM"))
    monkeypatch.setattr(script_queries, "session_of_process", lambda: process)
    queries = ScriptQueries()
    for identity, active, session in (("1", True, own), ("2", False, other), ("3", True, own)):
        start(queries, stops(identity, active=active), f"/c/{identity}", writer=SimpleNamespace(_spark=session))
    queries.stop()
    assert stopped == ["1", "3", "unknown", "of the JVM"]

    stopped.clear()
    monkeypatch.setattr(script_queries, "session_of_process", lambda: None)
    queries.clear()
    queries.stop()
    assert stopped == []
