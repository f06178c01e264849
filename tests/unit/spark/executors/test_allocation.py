"""What Spark's dynamic allocation wants, read from a scheduler of our own; the long tests have the real one."""

from __future__ import annotations

from typing import Any

import pytest

from emberkeep.spark.errors import SparkInternalsMissing, SparkUnavailable
from emberkeep.spark.executors import allocation
from emberkeep.spark.executors.allocation import DemandReader, ExecutorDemand, dynamic_allocation


class Pair:
    """A Scala pair of a resource profile and a number."""

    def __init__(self, profile: int, count: int) -> None:
        self._profile, self._count = profile, count

    def _1(self) -> Pair:
        return self

    def _2(self) -> int:
        return self._count

    def id(self) -> int:
        return self._profile


class Seq(list[Pair]):
    """A Scala sequence."""

    def size(self) -> int:
        return len(self)

    def apply(self, index: int) -> Pair:
        return self[index]

    def toSeq(self) -> Seq:  # noqa: N802 - Scala's name
        return self


class Table(dict[str, object]):
    """A Java map."""

    def isEmpty(self) -> bool:  # noqa: N802 - Java's name
        return not self

    def keySet(self) -> Table:  # noqa: N802 - Java's name
        return self

    def toArray(self) -> list[str]:  # noqa: N802 - Java's name
        return list(self)


class Spark:
    """A SparkContext: the Python one, the Java one, the Scala one, its scheduler and its configuration in one."""

    applicationId = "app-1"  # noqa: N815 - PySpark's name

    def __init__(self, wanted: Seq, tables: dict[str, Table], conf: dict[str, str] | None = None) -> None:
        self.wanted, self.tables, self.settings = wanted, tables, conf or {}
        self._jsc: Spark | None = self

    def sc(self) -> Spark:
        return self

    def schedulerBackend(self) -> Spark:  # noqa: N802 - Spark's name
        return self

    def getRequestedTotalExecutors(self) -> Seq:  # noqa: N802 - Spark's name
        return self.wanted

    def executorAllocationManager(self) -> Spark:  # noqa: N802 - Spark's name
        return self

    def isDefined(self) -> bool:  # noqa: N802 - Scala's name
        return True

    def conf(self) -> Spark:
        return self

    def getBoolean(self, key: str, default: bool) -> bool:  # noqa: N802 - Spark's name
        return self.settings.get(key, str(default)).lower() == "true"

    def getInt(self, key: str, default: int) -> int:  # noqa: N802 - Spark's name
        return int(self.settings.get(key, default))

    def getTimeAsMs(self, key: str, default: str) -> int:  # noqa: N802 - Spark's name
        return 1000 * int(self.settings.get(key, default).rstrip("s"))


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> dict[str, Table]:
    tables = {"executorsPendingDecommission": Table(), "executorsPendingToRemove": Table()}

    def find(_: Any, owner: Spark, name: str) -> Table:
        if name not in owner.tables:
            raise LookupError(f"no field {name}")
        return owner.tables[name]

    monkeypatch.setattr(allocation, "locked_table", find)
    return tables


def test_the_default_profile_counts_and_others_are_told_apart(tables: dict[str, Table]) -> None:
    reader = DemandReader(Spark(Seq([Pair(0, 3), Pair(2, 5)]), tables))
    assert reader.read() == ExecutorDemand("app-1", 3, others=5)


def test_executors_that_spark_removes_are_named_but_not_those_that_are_cordoned_or_do_not_work(
    tables: dict[str, Table],
) -> None:
    reader = DemandReader(Spark(Seq([Pair(0, 1)]), tables))
    tables["executorsPendingDecommission"] |= {"1": "idle", "2": "its node is blocked"}
    tables["executorsPendingToRemove"] |= {"3": True, "4": False}
    demand = reader.read({"2"})
    assert demand.decommissioned == frozenset({"1"})
    assert demand.killed == frozenset({"3"})


def test_settings_have_sparks_defaults(tables: dict[str, Table]) -> None:
    switch = {"spark.dynamicAllocation.enabled": "true"}
    found = dynamic_allocation(Spark(Seq([Pair(0, 2)]), tables, switch))
    assert found == allocation.DynamicAllocation(initial=2, minimum=0, maximum=None, idle_seconds=60.0)
    chosen = {"minExecutors": "1", "maxExecutors": "4", "executorIdleTimeout": "5s"}
    conf = switch | {f"spark.dynamicAllocation.{key}": value for key, value in chosen.items()}
    found = dynamic_allocation(Spark(Seq([Pair(0, 1)]), tables, conf))
    assert found == allocation.DynamicAllocation(initial=1, minimum=1, maximum=4, idle_seconds=5.0)
    assert dynamic_allocation(Spark(Seq(), tables)) is None


def test_another_spark_is_refused_at_the_start_and_a_stopped_one_just_does_not_answer(
    tables: dict[str, Table],
) -> None:
    spark = Spark(Seq([Pair(0, 1)]), tables, {"spark.dynamicAllocation.enabled": "true"})
    del tables["executorsPendingToRemove"]
    with pytest.raises(SparkInternalsMissing, match="executorsPendingToRemove"):
        dynamic_allocation(spark)

    stopped = Spark(Seq(), tables)
    stopped._jsc = None
    with pytest.raises(SparkUnavailable):
        DemandReader(stopped)
