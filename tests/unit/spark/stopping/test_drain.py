"""Planned batches that fail, end, or go on: what a checkpoint's logs say afterwards."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from emberkeep.base.errors import Absent, Conflict, Fatal
from emberkeep.lifecycle.errors import StepHangs
from emberkeep.lifecycle.manifest import MAX_WATERMARK_MS
from emberkeep.spark.errors import DrainGivenUp
from emberkeep.spark.files.hadoop import FoundFile
from emberkeep.spark.model import StartedQuery
from emberkeep.spark.queries.checkpoints import QueryIdentity
from emberkeep.spark.queries.script_queries import ScriptQueries, ScriptQuery
from emberkeep.spark.stopping import drain as module
from emberkeep.spark.stopping import planned_batch
from emberkeep.spark.stopping.drain import DRAIN_BATCHES, QueryDrains
from emberkeep.spark.stopping.limit import NO_LIMIT, Limit

PLACE = "/checkpoints/windows"
BEFORE = 1_600_000_000_000  # the watermark before the drain


class Files:
    """As much of Hadoop's as a drain needs."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def numbered(self, directory: str) -> list[int]:
        return sorted(int(path.rpartition("/")[2]) for path in self.texts if path.rpartition("/")[0] == directory)

    def read_text(self, location: str) -> str:
        if location not in self.texts:
            raise Absent(location)
        return self.texts[location]

    def add_log_entry(self, location: str, text: str, *, overwrite: bool = False) -> None:
        if location in self.texts and not overwrite:
            raise Conflict(location)
        self.texts[location] = text

    def is_directory(self, location: str) -> bool:
        return location == f"{PLACE}/state"

    def below(self, directory: str) -> list[FoundFile]:
        prefix = f"{directory}/"
        return [FoundFile(path.removeprefix(prefix), 1) for path in self.texts if path.startswith(prefix)]


class Spark:
    """Runs what is planned. ``fails``: whether it does so with this batch, at this watermark; ``timers``: so many
    batches update state."""

    def __init__(self, files: Files, fails: Callable[[int, int], bool], timers: int = 0) -> None:
        self.files = files
        self.runs: list[tuple[int, int]] = []
        self.hangs = False
        self.heeds_stop = True
        self.stopped = False
        self._fails = fails
        self._timers = timers
        for batch in range(3):
            self._plan(batch, BEFORE)
            self.commit(batch, BEFORE)

    def _plan(self, batch: int, watermark: int) -> None:
        metadata = json.dumps({"batchWatermarkMs": watermark, "batchTimestampMs": 1, "conf": {}})
        self.files.texts[f"{PLACE}/offsets/{batch}"] = f'v1\n{metadata}\n{{"logOffset":0}}'

    def commit(self, batch: int, watermark: int) -> None:
        self.files.texts[f"{PLACE}/commits/{batch}"] = f'v1\n{{"nextBatchWatermarkMs":{watermark}}}'

    def start_again(self, query: ScriptQuery, *, once: bool) -> Any:
        assert once, str(query)
        batch = max(self.files.numbered(f"{PLACE}/offsets"))
        assert batch not in self.files.numbered(f"{PLACE}/commits")
        watermark = self.watermark(batch)
        self.runs.append((batch, watermark))
        failed = self._fails(batch, watermark)
        if not failed and not self.hangs:
            self.commit(batch, watermark)
        self._timers -= 1
        report = {
            "batchId": batch,
            "numInputRows": 0,
            "stateOperators": [{"operatorName": "transformWithState", "numRowsUpdated": int(self._timers >= 0)}],
        }
        alive = iter([True, False])
        if self.hangs:
            alive = iter(lambda: not self.stopped, object())
        failure = SimpleNamespace(getMessage=lambda: "ValueError: year 10000 is out of range")
        thread = SimpleNamespace(isAlive=lambda: next(alive), join=lambda milliseconds: time.sleep(milliseconds / 1000))
        java = SimpleNamespace(
            streamingQuery=lambda: SimpleNamespace(queryExecutionThread=lambda: thread),
            stop=self.stop,
            exception=lambda: SimpleNamespace(isDefined=lambda: failed, get=lambda: failure),
            lastProgress=lambda: None if failed else SimpleNamespace(json=lambda: json.dumps(report)),
        )
        return SimpleNamespace(_jsq=java)

    def stop(self) -> None:
        self.stopped = self.heeds_stop

    def watermark(self, batch: int) -> int:
        return int(json.loads(self.files.texts[f"{PLACE}/offsets/{batch}"].split("\n")[1])["batchWatermarkMs"])

    @property
    def committed(self) -> int:
        return self.files.numbered(f"{PLACE}/commits")[-1]

    @property
    def planned(self) -> int:
        return self.files.numbered(f"{PLACE}/offsets")[-1]


def at_the_end(batch: int, watermark: int) -> bool:
    del batch
    return watermark == MAX_WATERMARK_MS


def never(batch: int, watermark: int) -> bool:
    del batch, watermark
    return False


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Files:
    found = Files()
    monkeypatch.setattr(module, "HadoopFiles", lambda _: found)
    return found


def drain_of(spark: Spark) -> QueryDrains:
    return QueryDrains(cast(ScriptQueries, spark), lambda: None)


def query(sink: str = "foreachBatch", target: str = "tell") -> ScriptQuery:
    settings = {"spark.sql.streaming.minBatchesToRetain": "100"}
    session = SimpleNamespace(conf=SimpleNamespace(get=settings.get, set=settings.__setitem__))
    return ScriptQuery(
        writer=SimpleNamespace(_spark=session),
        method="start",
        positional=(),
        named={},
        key="query-windows",
        name="windows",
        identity=QueryIdentity(sink, "append", target),
        started=StartedQuery(PLACE),
        reached=PLACE,
        fields=[],
    )


def ignored(_: str) -> None:
    return


@pytest.mark.req("END-6")
def test_a_batch_that_fails_gives_the_drain_up_and_the_query_goes_on_as_before(files: Files) -> None:
    spark = Spark(files, at_the_end)
    drain = drain_of(spark)
    with pytest.raises(DrainGivenUp, match=r"batch 3 failed: .*year 10000 is out of range"):
        drain.drain(query(), ignored)
    assert (spark.planned, spark.committed) == (3, 2), "the number stays: a sink may know it"
    assert spark.watermark(3) == BEFORE
    drain.settle(query())
    assert spark.runs == [(3, MAX_WATERMARK_MS)], "the query's own next start runs it"


@pytest.mark.req("END-4", "END-6")
def test_one_after_others_takes_nothing_back_that_came_out(files: Files) -> None:
    spark = Spark(files, lambda batch, _: batch == 5, timers=DRAIN_BATCHES)
    with pytest.raises(DrainGivenUp):
        drain_of(spark).drain(query(), ignored)
    assert (spark.planned, spark.committed) == (5, 4)
    assert [spark.watermark(batch) for batch in range(6)] == [BEFORE] * 6


@pytest.mark.req("END-6")
def test_one_that_a_crash_has_left_and_that_fails_is_given_up_by_the_next_attempt(files: Files) -> None:
    spark = Spark(files, never)
    drain = drain_of(spark)
    drain._plan(cast(Any, files), PLACE, query(), 2, NO_LIMIT)
    spark._fails = at_the_end
    drain.settle(query())
    assert (spark.planned, spark.watermark(3)) == (3, BEFORE)
    # Asked to drain once more, it runs the batch in which nothing happens, and plans the next one.
    spark._fails = never
    drain.drain(query(), ignored)
    assert spark.runs == [(3, MAX_WATERMARK_MS), (3, BEFORE), (4, MAX_WATERMARK_MS)]
    drain.settle(query())
    assert (spark.committed, spark.watermark(4)) == (4, BEFORE)


@pytest.mark.req("END-6")
def test_what_sparks_file_sink_has_already_stays_planned_and_the_way_out_is_named(files: Files) -> None:
    spark = Spark(files, at_the_end)
    files.texts["/out/_spark_metadata/3"] = "v1"
    with pytest.raises(Fatal, match=f"already has batch 3 .*checkpointLocation {PLACE}") as failed:
        drain_of(spark).drain(query("json", "/out"), ignored)
    assert not isinstance(failed.value, DrainGivenUp)
    assert spark.watermark(3) == MAX_WATERMARK_MS


def test_a_batch_of_the_query_itself_that_fails_is_left_as_it_is(files: Files) -> None:
    spark = Spark(files, lambda *_: True)
    spark._plan(3, BEFORE + 1)
    with pytest.raises(Fatal, match="year 10000"):
        drain_of(spark).drain(query(), ignored)
    assert spark.watermark(3) == BEFORE + 1


@pytest.mark.req("END-6")
def test_one_that_does_not_end_is_interrupted_and_given_up(files: Files) -> None:
    spark = Spark(files, never)
    spark.hangs = True
    with pytest.raises(DrainGivenUp, match="did not end in time"):
        drain_of(spark).drain(query(), ignored, soon())
    assert (spark.stopped, spark.committed, spark.watermark(3)) == (True, 2, BEFORE)
    files.texts.clear()
    with pytest.raises(Fatal, match="was not drained in time"):
        drain_of(Spark(files, never)).drain(query(), ignored, Limit(time.monotonic()))


@pytest.mark.req("END-6")
def test_one_that_cannot_be_interrupted_stays_planned(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned_batch, "_INTERRUPT_SECONDS", 0.1)
    spark = Spark(files, never)
    spark.hangs, spark.heeds_stop = True, False
    with pytest.raises(StepHangs, match="ignores its interruption"):
        drain_of(spark).drain(query(), ignored, soon())
    assert spark.watermark(3) == MAX_WATERMARK_MS, "it may still commit"


def soon() -> Limit:
    """Long enough for a batch to be planned."""
    return Limit(time.monotonic() + 0.5)


@pytest.mark.req("END-4")
@pytest.mark.parametrize(("batches", "all_out"), [(0, True), (DRAIN_BATCHES - 1, True), (DRAIN_BATCHES, False)])
def test_timers_that_set_timers_are_bounded_and_what_is_left_is_told(files: Files, batches: int, all_out: bool) -> None:
    spark = Spark(files, never, timers=batches)
    assert drain_of(spark).drain(query(), ignored) is all_out
    assert len(spark.runs) == min(batches + 1, DRAIN_BATCHES)
