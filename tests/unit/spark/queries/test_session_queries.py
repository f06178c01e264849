"""Streaming queries of Spark Connect sessions, as the driver sees them in its JVM."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from emberkeep.spark.queries.session_queries import PLUGIN, SessionQueries


class Query:
    """A StreamExecution."""

    def __init__(self, run_id: str, name: str | None) -> None:
        self.active = True
        self._run_id, self._name = run_id, name

    def id(self) -> str:
        return f"id-{self._run_id}"

    def runId(self) -> str:  # noqa: N802
        return self._run_id

    def name(self) -> str | None:
        return self._name

    def isActive(self) -> bool:  # noqa: N802
        return self.active

    def lastProgress(self) -> None:  # noqa: N802
        return None

    def recentProgress(self) -> list[Any]:  # noqa: N802
        return []

    def status(self) -> Any:
        return SimpleNamespace(message=lambda: "Waiting for data")


def context(plugins: str, queries: list[Query]) -> Any:
    """A SparkContext whose JVM runs these queries."""

    def active() -> dict[str, Query]:
        return {each.id(): each for each in queries if each.active}

    session = SimpleNamespace(sharedState=lambda: SimpleNamespace(activeStreamingQueries=active))
    found = SimpleNamespace(isDefined=lambda: True, get=lambda: session)
    kind = SimpleNamespace(SparkSession=SimpleNamespace(getDefaultSession=lambda: found))
    runtime = SimpleNamespace(StreamingQueryWrapper=lambda execution: execution)
    execution = SimpleNamespace(streaming=SimpleNamespace(runtime=runtime))
    apache = SimpleNamespace(spark=SimpleNamespace(sql=SimpleNamespace(classic=kind, execution=execution)))
    conf = SimpleNamespace(get=lambda _key, _default: plugins)
    spark_context = SimpleNamespace(sc=lambda: SimpleNamespace(conf=lambda: conf))
    return SimpleNamespace(_jvm=SimpleNamespace(org=SimpleNamespace(apache=apache)), _jsc=spark_context)


def test_a_flow_is_seen_while_it_runs_and_once_more_after_its_end() -> None:
    flow = Query("r1", "orders")
    spark, queries = context(f"mine.Plugin,{PLUGIN}", [flow]), SessionQueries()
    seen = [queries.progress(spark, set()) for _ in range(2)]
    assert [[(query.name, query.is_active, query.checkpoint_location) for query in each] for each in seen] == [
        [("orders", True, None)],
        [("orders", True, None)],
    ]
    flow.active = False
    assert [query.is_active for query in queries.progress(spark, set())] == [False]
    assert queries.progress(spark, set()) == []


def test_queries_of_the_script_itself_are_left_to_the_hook_around_their_start() -> None:
    spark = context(PLUGIN, [Query("r1", "own"), Query("r2", None)])
    assert [query.run_id for query in SessionQueries().progress(spark, {"r1"})] == ["r2"]


def test_a_job_without_a_connect_server_is_asked_for_nothing() -> None:
    spark = context("", [Query("r1", "own")])
    del spark._jvm
    assert SessionQueries().progress(spark, set()) == []


def test_queries_of_an_earlier_application_are_forgotten() -> None:
    queries = SessionQueries()
    queries.progress(context(PLUGIN, [Query("r1", "old")]), set())
    assert [query.run_id for query in queries.progress(context(PLUGIN, [Query("r2", "new")]), set())] == ["r2"]


def test_a_spark_that_cannot_list_them_shows_none() -> None:
    spark = context(PLUGIN, [Query("r1", "own")])
    del spark._jvm
    assert SessionQueries().progress(spark, set()) == []
