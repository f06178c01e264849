"""What is read from Spark's status store: durations of tasks, also while Spark forgets them, and names of stages."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from emberkeep.spark.work.status_store import StatusStore

NAN = float("nan")


class Found:
    """An Option of Scala with the distributions of a stage's tasks."""

    def __init__(self, durations: list[float]) -> None:
        self._durations = durations

    def isDefined(self) -> bool:  # noqa: N802 - Scala's name
        return bool(self._durations)

    def get(self) -> Any:
        launched = [3.0, 4.0]  # among Spark's durations are those of tasks that run, as they were at their start
        return SimpleNamespace(
            duration=lambda: SimpleNamespace(apply=launched.__getitem__),
            executorRunTime=lambda: SimpleNamespace(apply=self._durations.__getitem__),
        )


def context(durations: list[float]) -> Any:
    store = SimpleNamespace(taskSummary=lambda *_: Found(durations))
    gateway = SimpleNamespace(new_array=lambda _, length: [0.0] * length, jvm=SimpleNamespace(double=None))
    spark = SimpleNamespace(sc=lambda: SimpleNamespace(statusStore=lambda: store))
    return SimpleNamespace(applicationId="app", _gateway=gateway, _jsc=spark)


@pytest.mark.parametrize(
    ("durations", "told"),
    [([], (0, 0)), ([7.5, 20.4], (8, 20)), ([0.0, 0.4], (1, 1)), ([7.5, NAN], (8, 0)), ([NAN, NAN], (0, 0))],
)
def test_tasks_that_are_forgotten_while_they_are_counted_end_no_job(
    durations: list[float], told: tuple[int, int]
) -> None:
    assert StatusStore(context(durations)).durations(1, 0) == told


class Executions:
    """Spark's own list of SQL executions, oldest first, each with its stages."""

    def __init__(self, found: list[tuple[str, set[int]]]) -> None:
        self._found = found

    def executionsCount(self) -> int:  # noqa: N802 - Scala's name
        return len(self._found)

    def executionsList(self, offset: int, length: int) -> Any:  # noqa: N802 - Scala's name
        part = [
            SimpleNamespace(
                description=lambda text=text: text,
                stages=lambda stages=stages: SimpleNamespace(contains=stages.__contains__),
            )
            for text, stages in self._found[offset : offset + length]
        ]
        return SimpleNamespace(size=lambda: len(part), apply=part.__getitem__)


def test_the_newest_sql_execution_of_a_stage_is_found() -> None:
    many = [(f"query {number}", {3 * number, 3 * number + 1}) for number in range(100)]
    session = SimpleNamespace(sharedState=lambda: SimpleNamespace(statusStore=lambda: Executions(many)))
    default = SimpleNamespace(isDefined=lambda: True, get=lambda: session)
    sql = SimpleNamespace(classic=SimpleNamespace(SparkSession=SimpleNamespace(getDefaultSession=lambda: default)))
    spark = context([])
    spark._jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(spark=SimpleNamespace(sql=sql))))
    store = StatusStore(spark)
    assert (store.execution(298), store.execution(291), store.execution(299)) == ("query 99", "query 97", "")
    assert store.execution(0) == "", "only the newest are looked through"
    default.isDefined = lambda: False
    assert store.execution(298) == "", "a script without SQL"
