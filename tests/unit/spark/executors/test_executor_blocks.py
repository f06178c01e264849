"""What executors keep, counted through objects that look like Spark's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from emberkeep.spark.errors import SparkUnavailable
from emberkeep.spark.executors import blocks as executor_blocks
from emberkeep.spark.executors.blocks import ExecutorBlocks, block_takers, blocks_left


class Fake:
    """Each attribute is a method without arguments that returns this."""

    java: Fake
    lang: Fake
    Class: Fake

    def __init__(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self, name, lambda *_, value=value: value)


class ScalaSeq:
    def __init__(self, items: Sequence[Any]) -> None:
        self._items = items

    def toSeq(self) -> ScalaSeq:  # noqa: N802 - Scala's name
        return self

    def size(self) -> int:
        return len(self._items)

    def apply(self, index: int) -> Any:
        return self._items[index]


class FakeContext:
    """``shuffles``: the executor of each map output, None: it is not there. ``cached``: RDD blocks by executor.
    ``new``: executors whose block managers are not known yet."""

    def __init__(
        self, shuffles: Sequence[Sequence[str | None]], cached: dict[str, int], new: Sequence[str] = ()
    ) -> None:
        statuses = [
            Fake(mapStatuses=[None if at is None else Fake(location=Fake(executorId=at)) for at in shuffle])
            for shuffle in shuffles
        ]
        summaries = [
            Fake(id=key, rddBlocks=count, isActive=True, activeTasks=2, maxMemory=0 if key in new else 9)
            for key, count in cached.items()
        ]
        tracker = Fake(shuffleStatuses=Fake(values=ScalaSeq(statuses)))
        field = Fake(setAccessible=None, get=tracker)
        self._jvm = Fake()
        self._jvm.java = Fake()
        self._jvm.java.lang = Fake()
        self._jvm.java.lang.Class = Fake(forName=Fake(getDeclaredField=field))
        self._jsc = Fake(sc=Fake(env="env", statusStore=Fake(executorList=ScalaSeq(summaries))))


SHUFFLES: list[list[str | None]] = [["1", "2", None, "1"], ["1"]]


@pytest.mark.req("BLK-18")
def test_map_outputs_and_cached_blocks_are_counted_by_executor() -> None:
    context = FakeContext(SHUFFLES, {"1": 4, "2": 0, "3": 0, "driver": 1}, ["3"])
    assert blocks_left(context, {"1", "2"}) == {
        "1": ExecutorBlocks(3, 4, False, 2),
        "2": ExecutorBlocks(1, 0, False, 2),
    }
    assert blocks_left(context, {"1", "gone"}) == {"1": ExecutorBlocks(3, 4, False, 2)}
    assert blocks_left(context, set()) == {}
    assert block_takers(context) == {"1", "2"}


@pytest.mark.req("BLK-18")
def test_of_too_many_map_outputs_some_are_counted_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_blocks, "LOOKED_AT", 3)
    assert blocks_left(FakeContext(SHUFFLES, {"1": 0}), {"1"}) == {"1": ExecutorBlocks(1, 0, True, 2)}
    monkeypatch.setattr(executor_blocks, "LOOKED_AT", 5)
    assert blocks_left(FakeContext(SHUFFLES, {"1": 0}), {"1"}) == {"1": ExecutorBlocks(3, 0, False, 2)}


def test_a_jvm_that_is_gone_is_told() -> None:
    with pytest.raises(SparkUnavailable, match="blocks of leaving executors"):
        blocks_left(Fake(), {"1"})
    with pytest.raises(SparkUnavailable, match="executors that take blocks"):
        block_takers(Fake())
