"""Which executor each partition of a query's state should run on: where its newest version lies on the disk (LOC-11).

Spark decides where tasks run; it can be told where state stores are. It forgets that at each start of a query, and when
an executor is lost it goes on to wait for the lost one's node.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping

import msgspec

from emberkeep.base.ids import ExecutorId, TaskManagerId
from emberkeep.local_state.model import Holding, StatePath

DEFAULT_STORE = "default"  # the name of a partition's store where it has only one


class Partition(msgspec.Struct, frozen=True, order=True):
    """One task's share of a stateful operator; all its stores are used by the same task."""

    operator: int
    number: int


class ExecutorPlace(msgspec.Struct, frozen=True, kw_only=True):
    """An executor, and the task manager whose disk it reads from."""

    executor_id: ExecutorId
    host: str  # as Spark knows it
    task_manager: TaskManagerId


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """What a job's nodes hold. ``wanted``: executors when all are there; ``executors``: those that have a slot."""

    wanted: int
    executors: tuple[ExecutorPlace, ...]
    holdings: Mapping[TaskManagerId, tuple[Holding, ...]]


class HeldPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition's state as it lies on the nodes. ``nodes``: best first."""

    stores: frozenset[str]
    nodes: tuple[TaskManagerId, ...]


def held_partitions(survey: Survey, checkpoint: StatePath) -> dict[Partition, HeldPartition]:
    """The partitions of the query with this checkpoint that some node holds a part of."""
    stores: dict[Partition, set[str]] = {}
    scores: dict[Partition, dict[TaskManagerId, tuple[int, int]]] = {}
    for node, holdings in survey.holdings.items():
        for holding in holdings:
            found = _store(holding, checkpoint)
            if found is None:
                continue
            partition, store = found
            stores.setdefault(partition, set()).add(store)
            version, size = scores.setdefault(partition, {}).get(node, (0, 0))
            scores[partition][node] = (max(version, holding.newest_version), size + holding.size)
    # The newest version says who ran it last; between equals the one that holds more needs to fetch less.
    return {
        partition: HeldPartition(
            stores=frozenset(stores[partition]),
            nodes=tuple(sorted(by_node, key=lambda node: (*(-number for number in by_node[node]), node))),
        )
        for partition, by_node in scores.items()
    }


class Awaited(enum.Enum):
    """Which executors there may be soon, that would be better ones for some partition than those that Spark can use."""

    NEAR = enum.auto()  # on the best node of a partition, or the first one of all
    OTHERS = enum.auto()  # each best node has one; slots that are missing may still come from nodes not in the survey
    NONE = enum.auto()


def awaited(survey: Survey, partitions: Iterable[HeldPartition], registered: Collection[ExecutorId]) -> Awaited:
    """Which executors to wait for. ``registered``: those that Spark can use."""
    if len(registered) >= survey.wanted:
        return Awaited.NONE
    served = {place.task_manager for place in survey.executors if place.executor_id in registered}
    if any(held.nodes[0] not in served for held in partitions):
        return Awaited.NEAR
    if len(survey.executors) >= survey.wanted:
        return Awaited.NONE
    return Awaited.OTHERS if registered else Awaited.NEAR


class Patience:
    """For how long a query's start waits: ``near`` seconds in all, ``others`` once only others are awaited."""

    def __init__(self, now: float, *, near: float, others: float) -> None:
        self._until = now + near
        self._others = others
        self._served_at: float | None = None  # since when each best node has an executor

    def lasts(self, who: Awaited, now: float) -> bool:
        """Whether to wait on. Ask at each look."""
        if who is Awaited.NEAR:
            self._served_at = None
        elif self._served_at is None:
            self._served_at = now
        if who is Awaited.NONE or now >= self._until:
            return False
        return self._served_at is None or now - self._served_at < self._others


def place(
    partitions: Mapping[Partition, HeldPartition],
    executors: Collection[ExecutorPlace],
    settled: Mapping[Partition, ExecutorId],
) -> dict[Partition, ExecutorPlace]:
    """Which executor to name for each partition; those whose place is right already are left out.

    ``executors``: that Spark can use. ``settled``: where Spark believes the partitions to be. One that is on a usable
    executor stays: it is in that one's memory. Without an executor on any node that holds it, a partition that Spark
    knows of goes to the least used executor, else Spark would wait for a node that is gone; others are up to Spark.
    """
    usable = {one.executor_id: one for one in executors}
    load = dict.fromkeys(usable, 0)
    for executor_id in settled.values():
        if executor_id in load:
            load[executor_id] += 1
    placed: dict[Partition, ExecutorPlace] = {}
    for partition, held in sorted(partitions.items(), key=lambda item: item[0]):
        if settled.get(partition) in usable:
            continue
        for node in held.nodes:
            near = [one for one in usable.values() if one.task_manager == node]
            if near:
                break
        else:
            near = list(usable.values()) if partition in settled else []
        if near:
            chosen = min(near, key=lambda one: (load[one.executor_id], one.executor_id))
            load[chosen.executor_id] += 1
            placed[partition] = chosen
    return placed


def _store(holding: Holding, checkpoint: StatePath) -> tuple[Partition, str] | None:
    """The partition and the store's name; None where it belongs to another query."""
    prefix = f"{checkpoint.name}/state/" if checkpoint.name else "state/"
    if holding.root != checkpoint.root or not holding.name.startswith(prefix):
        return None
    operator, _, rest = holding.name.removeprefix(prefix).partition("/")
    number, _, store = rest.partition("/")
    if not (operator.isdecimal() and number.isdecimal()) or store.startswith("_"):  # _metadata is the driver's
        return None
    return Partition(int(operator), int(number)), store or DEFAULT_STORE
