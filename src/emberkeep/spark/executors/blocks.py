"""Read from Spark which executors hold blocks and run tasks, can take over blocks, or are excluded."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from emberkeep.spark.executors.scheduler_control import call

DRIVER = "driver"  # the driver's executor id in Spark
LOOKED_AT = 1000  # maximum number of map outputs examined per call: each takes three calls into the JVM of about 0.1 ms


@dataclass(frozen=True)
class ExecutorBlocks:
    """Blocks and tasks of one executor, as the driver knows them.

    ``shuffle``: number of map outputs. ``cached``: number of RDD blocks. ``tasks``: number of running tasks.
    ``at_least``: true if not all map outputs were examined, so that ``shuffle`` may be too low.
    """

    shuffle: int
    cached: int
    at_least: bool
    tasks: int


def block_takers(context: Any) -> frozenset[str]:
    """Return the active executors whose block managers Spark knows, so that they can take over blocks.

    An executor that has just registered is not among them at first. Raises SparkUnavailable.
    """

    def ask() -> frozenset[str]:
        found = _summaries(context)
        return frozenset(str(one.id()) for one in found if one.isActive() and one.maxMemory() > 0) - {DRIVER}

    return frozenset(call("executors that take blocks", ask))


def excluded_executors(context: Any) -> frozenset[str]:
    """Return the executors to which Spark assigns no task, because tasks failed there repeatedly.

    See ``spark.excludeOnFailure.*``. Raises SparkUnavailable.
    """

    def ask() -> frozenset[str]:
        return frozenset(str(one.id()) for one in _summaries(context) if one.isExcluded()) - {DRIVER}

    return frozenset(call("executors that Spark excludes", ask))


def blocks_left(context: Any, executor_ids: Collection[str]) -> dict[str, ExecutorBlocks]:
    """Return the blocks and tasks of each of these executors; unknown ones are left out. Raises SparkUnavailable."""

    def ask() -> dict[str, ExecutorBlocks]:
        shuffle = dict.fromkeys(executor_ids, 0)
        looked_at = 0
        for status in _map_statuses(context):
            looked_at += 1
            if looked_at > LOOKED_AT:
                break
            holder = "" if status is None else str(status.location().executorId())
            if holder in shuffle:
                shuffle[holder] += 1
        summaries = {str(summary.id()): summary for summary in _summaries(context)}
        return {
            executor_id: _left(count, summaries[executor_id], looked_at)
            for executor_id, count in shuffle.items()
            if executor_id in summaries
        }

    return dict(call("blocks of leaving executors", ask)) if executor_ids else {}


def _map_statuses(context: Any) -> Iterator[Any]:
    """Yield the status of each map output of each shuffle; None for a missing one."""
    shuffles = _map_output_tracker(context).shuffleStatuses().values().toSeq()
    for index in range(shuffles.size()):
        yield from shuffles.apply(index).mapStatuses()


def _map_output_tracker(context: Any) -> Any:
    """Return the map output tracker, read from a private field of SparkEnv.

    Methods of SparkEnv cannot be called: py4j would resolve all of them, and one needs a class that is not in
    PySpark's jars.
    """
    field = context._jvm.java.lang.Class.forName("org.apache.spark.SparkEnv").getDeclaredField("mapOutputTracker")
    field.setAccessible(True)
    return field.get(context._jsc.sc().env())


def _left(shuffle: int, summary: Any, looked_at: int) -> ExecutorBlocks:
    return ExecutorBlocks(shuffle, int(summary.rddBlocks()), looked_at > LOOKED_AT, int(summary.activeTasks()))


def _summaries(context: Any) -> Iterator[Any]:
    """Return Spark's summary of each active executor and of the driver."""
    summaries = context._jsc.sc().statusStore().executorList(True)
    return (summaries.apply(index) for index in range(summaries.size()))
