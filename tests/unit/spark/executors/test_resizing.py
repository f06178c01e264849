"""Which executors stay when Spark is made to want fewer, with a fake scheduler; the long tests have the real one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from emberkeep.spark.errors import SparkUnavailable
from emberkeep.spark.executors.resizing import resize


class Seq(list[Any]):
    """A Scala sequence."""

    def size(self) -> int:
        return len(self)

    def apply(self, index: int) -> Any:
        return self[index]

    def toSeq(self) -> Seq:  # noqa: N802 - Scala's name
        return self


class Spark:
    """A SparkContext: the Python one, the Java one, the Scala one, its scheduler and its JVM in one."""

    def __init__(self, *executors: str) -> None:
        self.wanted = len(executors)
        self.left = list(executors)
        self.decommissioned: list[str] = []
        self.killed: list[str] = []
        self._jsc: Spark | None = self
        self._gateway = SimpleNamespace(new_array=lambda _, length: [None] * length)
        self._jvm = SimpleNamespace(
            scala=SimpleNamespace(
                Option=SimpleNamespace(empty=lambda: None),
                Tuple2=lambda first, second: (first, second),
                collection=SimpleNamespace(immutable=SimpleNamespace(HashMap=dict)),
                jdk=SimpleNamespace(javaapi=SimpleNamespace(CollectionConverters=SimpleNamespace(asScala=Seq))),
            ),
            java=SimpleNamespace(util=SimpleNamespace(ArrayList=list)),
            org=SimpleNamespace(
                apache=SimpleNamespace(
                    spark=SimpleNamespace(
                        scheduler=SimpleNamespace(ExecutorDecommissionInfo=lambda reason, host: (reason, host))
                    )
                )
            ),
        )

    def sc(self) -> Spark:
        return self

    def schedulerBackend(self) -> Spark:  # noqa: N802 - Spark's name
        return self

    def getExecutorIds(self) -> Seq:  # noqa: N802 - Spark's name
        return Seq(self.left)

    def requestTotalExecutors(self, count: int, _tasks: int, _hosts: object) -> None:  # noqa: N802 - Spark's name
        self.wanted = count

    def decommissionExecutors(self, leaving: list[Any], adjust: bool, _by_executor: bool) -> None:  # noqa: N802
        assert not adjust, "Spark would want fewer than asked for"
        self.decommissioned = [executor for executor, _ in leaving]
        self._remove(self.decommissioned)

    def killExecutors(self, ids: Seq, adjust: bool, _count_failures: bool, _force: bool) -> None:  # noqa: N802
        assert not adjust, "Spark would want fewer than asked for"
        self.killed = list(ids)
        self._remove(self.killed)

    def _remove(self, ids: list[str]) -> None:
        self.left = [executor for executor in self.left if executor not in ids]


@pytest.mark.parametrize("decommissions", [True, False])
def test_the_oldest_executors_stay_because_the_state_is_there(decommissions: bool) -> None:
    spark = Spark("10", "9", "11", "2")
    resize(spark, 2, decommissions=decommissions)
    assert spark.wanted == 2
    assert sorted(spark.left) == ["2", "9"], "2 is older than 10"
    ended = (spark.decommissioned, spark.killed)
    assert ended == ((["10", "11"], []) if decommissions else ([], ["10", "11"]))


@pytest.mark.parametrize("count", [2, 3])
def test_no_executor_leaves_when_spark_is_to_want_as_many_or_more(count: int) -> None:
    spark = Spark("1", "2")
    resize(spark, count, decommissions=True)
    assert (spark.wanted, spark.left) == (count, ["1", "2"])


def test_a_stopped_spark_does_not_answer() -> None:
    spark = Spark("1", "2")
    spark._jsc = None
    with pytest.raises(SparkUnavailable):
        resize(spark, 1, decommissions=True)
