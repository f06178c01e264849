"""What executors keep, counted through objects that look like Spark's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from emberkeep.spark import executor_blocks
from emberkeep.spark.errors import SparkUnavailable
from emberkeep.spark.executor_blocks import BlocksLeft, block_takers, blocks_left


class Fake:
    """Each attribute is a method without arguments that returns this."""

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
    """``shuffles``: the executor of each map output, None: it is not there. ``cached``: RDD blocks by executor."""

    def __init__(self, shuffles: Sequence[Sequence[str | None]], cached: dict[str, int], peers: Sequence[str]) -> None:
        statuses = [
            Fake(mapStatuses=[None if at is None else Fake(location=Fake(executorId=at)) for at in shuffle])
            for shuffle in shuffles
        ]
        manager = Fake(
            blockManagerId="driver", master=Fake(getPeers=ScalaSeq([Fake(executorId=peer) for peer in peers]))
        )
        tracker = Fake(shuffleStatuses=Fake(values=ScalaSeq(statuses)))
        summaries = ScalaSeq([Fake(id=key, rddBlocks=count) for key, count in cached.items()])
        internals = Fake(
            env=Fake(blockManager=manager, mapOutputTracker=tracker), statusStore=Fake(executorList=summaries)
        )
        self._jsc = Fake(sc=internals)


SHUFFLES: list[list[str | None]] = [["1", "2", None, "1"], ["1"]]


@pytest.mark.req("BLK-18")
def test_map_outputs_and_cached_blocks_are_counted_by_executor() -> None:
    context = FakeContext(SHUFFLES, {"1": 4, "2": 0, "driver": 1}, ["2"])
    assert blocks_left(context, {"1", "2"}) == {"1": BlocksLeft(3, 4, False), "2": BlocksLeft(1, 0, False)}
    assert blocks_left(context, {"1", "gone"}) == {"1": BlocksLeft(3, 4, False)}
    assert blocks_left(context, set()) == {}
    assert block_takers(context) == {"2"}


@pytest.mark.req("BLK-18")
def test_of_too_many_map_outputs_some_are_counted_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_blocks, "LOOKED_AT", 3)
    assert blocks_left(FakeContext(SHUFFLES, {"1": 0}, []), {"1"}) == {"1": BlocksLeft(1, 0, True)}
    monkeypatch.setattr(executor_blocks, "LOOKED_AT", 5)
    assert blocks_left(FakeContext(SHUFFLES, {"1": 0}, []), {"1"}) == {"1": BlocksLeft(3, 0, False)}


def test_a_jvm_that_is_gone_is_told() -> None:
    with pytest.raises(SparkUnavailable, match="blocks of leaving executors"):
        blocks_left(Fake(), {"1"})
    with pytest.raises(SparkUnavailable, match="executors that take blocks"):
        block_takers(Fake())
