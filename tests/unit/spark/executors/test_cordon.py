"""Executors that take no new task, where Spark is being stopped meanwhile; tests/integration/spark has the real one."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from emberkeep.spark.errors import SparkUnavailable
from emberkeep.spark.executors.cordon import Cordon


class Stopped:
    """A SparkContext that the script has stopped since it was looked up."""

    _jsc = None

    @property
    def applicationId(self) -> str:  # noqa: N802 - PySpark's name
        return str(self._jsc.sc().applicationId())  # type: ignore[attr-defined]


@pytest.mark.parametrize("executors", [(), ("1",)])
def test_a_context_that_is_stopped_meanwhile_does_not_answer(executors: tuple[str, ...]) -> None:
    with pytest.raises(SparkUnavailable):
        Cordon().change(Stopped(), executors)


class Scheduler:
    """Spark's, as CoarseGrainedSchedulerBackend has it: of executors that it takes to be decommissioned it says nothing
    when it is told so again. ``fails``: the next such call, once, before or after it has had its effect."""

    applicationId = "application"  # noqa: N815 - PySpark's name

    def __init__(self, *executors: str) -> None:
        self.executors = frozenset(executors)
        self.pending: set[str] = set()
        self.fails = ""

    def close(self, executor_ids: Collection[str]) -> frozenset[str]:
        self._may_fail("before close")
        done = (frozenset(executor_ids) & self.executors) - self.pending
        self.pending |= done
        self._may_fail("after close")
        return done

    def open(self, executor_ids: Collection[str]) -> None:
        self._may_fail("before open")
        self.pending -= set(executor_ids)
        self._may_fail("after open")

    def closed(self, executor_ids: Collection[str]) -> frozenset[str]:
        return frozenset(executor_ids) & self.pending

    def _may_fail(self, where: str) -> None:
        if self.fails == where:
            self.fails = ""
            raise SparkUnavailable("the answer was lost")


@pytest.mark.req("BLK-2")
@pytest.mark.parametrize("where", ["before close", "after close", "before open", "after open"])
def test_a_call_whose_answer_is_lost_is_made_up_for_and_nothing_stays_cordoned(where: str) -> None:
    spark = Scheduler("1", "2")
    cordon = Cordon(lambda scheduler: scheduler)
    assert cordon.change(spark, ["1"]) == {"1"}
    spark.fails = where
    with pytest.raises(SparkUnavailable):
        cordon.change(spark, ["2"])
    assert cordon.change(spark, ["2"]) == {"2"}
    assert spark.pending == {"2"}
    assert cordon.change(spark, []) == frozenset()
    assert spark.pending == set()


@pytest.mark.req("BLK-2")
@pytest.mark.parametrize("where", ["before close", "after close"])
def test_one_that_is_not_wanted_any_more_after_a_call_that_failed_is_opened(where: str) -> None:
    spark = Scheduler("1")
    cordon = Cordon(lambda scheduler: scheduler)
    spark.fails = where
    with pytest.raises(SparkUnavailable):
        cordon.change(spark, ["1"])
    assert cordon.change(spark, []) == frozenset()
    assert spark.pending == set()


@pytest.mark.req("BLK-2")
def test_an_executor_that_ends_by_itself_is_neither_counted_nor_opened() -> None:
    spark = Scheduler("1", "2")
    cordon = Cordon(lambda scheduler: scheduler)
    spark.pending.add("1")
    assert cordon.change(spark, ["1", "2", "unknown"]) == {"2"}
    assert cordon.change(spark, []) == frozenset()
    assert spark.pending == {"1"}
