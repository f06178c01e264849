"""Which checkpoint an unnamed query gets. Objects with the same methods stand in for Spark's."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from emberkeep.spark.errors import CheckpointIdentityError
from emberkeep.spark.files.state_locations import DirectLocations
from emberkeep.spark.queries import unnamed_checkpoints
from emberkeep.spark.queries.checkpoints import QueryIdentity, QueryRecord
from emberkeep.spark.queries.unnamed_checkpoints import FUNCTION, UnnamedCheckpoints

SINK = QueryIdentity("foreachBatch", "append", "__main__.write")
TARGET = "one"


def write(frame: object, batch: int) -> None:
    print(frame, batch, TARGET)


class Frame:
    """A DataFrame, whose plan is a text."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._jdf = self

    def queryExecution(self) -> Frame:  # noqa: N802 - Java's name
        return self

    def analyzed(self) -> Frame:
        return self

    def sameResult(self, other: Frame) -> bool:  # noqa: N802 - Java's name
        return self.source == other.source


class Query:
    def __init__(self, failure: Exception | None = None, *, runs: bool = True) -> None:
        self.failure = failure
        self._jsq = SimpleNamespace(isActive=lambda: runs and failure is None)

    def exception(self) -> Exception | None:
        return self.failure


class Store:
    """The record of all queries of a root."""

    record = QueryRecord({})
    fails = False

    def __init__(self, *_: object) -> None: ...

    def read(self) -> QueryRecord:
        if Store.fails:
            raise CheckpointIdentityError("cannot read the record")
        return Store.record

    def write(self, record: QueryRecord) -> None:
        Store.record = record


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> None:
    Store.record, Store.fails = QueryRecord({}), False
    monkeypatch.setattr(unnamed_checkpoints, "CheckpointStore", Store)


class Script:
    def __init__(self) -> None:
        self.checkpoints = UnnamedCheckpoints(DirectLocations())

    def start(self, source: str, query: Query | None, function: Any = write, identity: QueryIdentity = SINK) -> int:
        """Start a query; return its position. ``query``: None if the start fails."""
        writer = SimpleNamespace(_spark=None, _df=Frame(source))
        setattr(writer, FUNCTION, function)
        with self.checkpoints.starting() as start:
            location = self.checkpoints.locate(writer, identity, "/c", start)
            if query is not None:
                start.succeeded(query)
        return int(location.removeprefix("/c/unnamed-").partition("-")[0])


def failed() -> Query:
    return Query(ValueError("bad row"))


def test_a_query_that_is_started_again_after_a_failure_keeps_its_checkpoint() -> None:
    script = Script()
    assert script.start("a", None) == 0, "its start fails"
    assert script.start("a", failed()) == 0, "a batch fails"
    assert script.start("a", Query()) == 0
    assert script.start("a", Query()) == 1, "it runs: this one is another query"
    assert script.start("b", Query()) == 2


def test_another_query_does_not_get_the_checkpoint_of_one_that_has_failed() -> None:
    """As in a script that goes on to the next table after a failure: it would read none of what is before."""
    script = Script()
    assert script.start("a", failed()) == 0
    assert script.start("b", failed()) == 1
    assert script.start("a", failed(), print) == 2
    assert script.start("a", failed(), write, QueryIdentity("console", "append", "")) == 3
    assert script.start("b", Query()) == 1


def test_a_function_that_the_script_defines_again_is_the_same_one_unless_it_writes_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def to(target: str) -> Callable[..., None]:
        return lambda frame, batch: print(frame, batch, target)

    script = Script()
    assert script.start("a", failed(), to("one")) == 0
    assert script.start("a", failed(), to("one")) == 0
    assert script.start("a", failed(), to("two")) == 1
    assert script.start("a", failed(), write) == 2
    monkeypatch.setitem(globals(), "TARGET", "two")
    assert script.start("a", failed(), write) == 3


def test_a_query_that_has_ended_well_is_not_continued_by_the_next_one() -> None:
    script = Script()
    assert [script.start("a", Query(runs=False)) for _ in range(3)] == [0, 1, 2]
    assert len(script.checkpoints._given) == 1, "nothing is kept of those before"


def test_a_query_that_runs_again_with_its_own_writer_is_not_taken_for_one_that_has_failed() -> None:
    script = Script()
    assert script.start("a", failed()) == 0
    with script.checkpoints.starting() as start:
        script.checkpoints.starts_again("/c/unnamed-0-foreachBatch-append", start)
        assert script.start("a", Query()) == 1, "it is being started"
        start.succeeded(Query())
    assert script.start("a", Query()) == 2


def test_a_record_that_cannot_be_read_costs_no_position() -> None:
    script = Script()
    Store.fails = True
    with pytest.raises(CheckpointIdentityError):
        script.start("a", Query())
    Store.fails = False
    assert script.start("a", Query()) == 0
    assert dict(Store.record.unnamed) == {0: SINK}


def test_a_query_that_cannot_be_compared_is_another_one() -> None:
    class Gone(Query):
        def exception(self) -> Exception | None:
            raise ConnectionRefusedError

    script = Script()
    assert script.start("a", Gone()) == 0
    assert script.start("a", Query()) == 1
