"""What executors keep that others may need, and which executors can take it over: asked while some of them leave."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from emberkeep.spark.scheduler_control import call

LOOKED_AT = 1000  # map outputs at one look: each takes three calls into the JVM, some 0.1 ms each


@dataclass(frozen=True)
class BlocksLeft:
    """``shuffle``: map outputs, ``cached``: RDD blocks that lie on one executor, as the driver knows it.
    ``at_least``: there are more map outputs than were looked at."""

    shuffle: int
    cached: int
    at_least: bool


def block_takers(context: Any) -> frozenset[str]:
    """Executors that take blocks over from others: Spark's peers, those that leave themselves excepted. One that has
    just registered is not among them at first. Raises SparkUnavailable."""

    def ask() -> frozenset[str]:
        manager = context._jsc.sc().env().blockManager()
        peers = manager.master().getPeers(manager.blockManagerId())
        return frozenset(str(peers.apply(index).executorId()) for index in range(peers.size()))

    return frozenset(call("executors that take blocks", ask))


def blocks_left(context: Any, executor_ids: Collection[str]) -> dict[str, BlocksLeft]:
    """What lies on each of these executors, unknown ones excepted. Raises SparkUnavailable."""

    def ask() -> dict[str, BlocksLeft]:
        shuffle = dict.fromkeys(executor_ids, 0)
        looked_at = 0
        for status in _map_statuses(context):
            looked_at += 1
            if looked_at > LOOKED_AT:
                break
            holder = "" if status is None else str(status.location().executorId())
            if holder in shuffle:
                shuffle[holder] += 1
        cached = _cached(context)
        return {
            executor_id: BlocksLeft(count, cached[executor_id], looked_at > LOOKED_AT)
            for executor_id, count in shuffle.items()
            if executor_id in cached
        }

    return dict(call("blocks of leaving executors", ask)) if executor_ids else {}


def _map_statuses(context: Any) -> Iterator[Any]:
    """Of each map output of each shuffle, None for one that is not there."""
    shuffles = context._jsc.sc().env().mapOutputTracker().shuffleStatuses().values().toSeq()
    for index in range(shuffles.size()):
        yield from shuffles.apply(index).mapStatuses()


def _cached(context: Any) -> dict[str, int]:
    """RDD blocks by executor."""
    summaries = context._jsc.sc().statusStore().executorList(True)
    found = (summaries.apply(index) for index in range(summaries.size()))
    return {str(summary.id()): int(summary.rddBlocks()) for summary in found}
