"""Decide which executor should run each partition of a query's state: one on the node with the newest copy (LOC-11).

Spark decides where tasks run, but takes a hint about where the state stores are. It forgets the hint when a query
starts. When an executor is lost, Spark keeps waiting for that executor's node.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping

import msgspec

from emberkeep.base.ids import ExecutorId, TaskManagerId
from emberkeep.local_state.model import Holding, StatePath

DEFAULT_STORE = "default"  # name of a partition's only store
_COMPLETE = 2  # a copy with at least half of the bytes of the largest one lacks nothing that a start needs


class Partition(msgspec.Struct, frozen=True, order=True):
    """One task's share of a stateful operator. The same task uses all its stores."""

    operator: int
    number: int


class ExecutorPlace(msgspec.Struct, frozen=True, kw_only=True):
    """An executor, and the task manager whose disk it reads from."""

    executor_id: ExecutorId
    host: str  # as Spark names it
    task_manager: TaskManagerId


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """The state that a job's nodes hold, and the job's executors.

    ``wanted``: number of executors when the job has all of them. ``executors``: those that have a slot. ``holdings``:
    without the nodes that did not answer, whose state is not known.
    """

    wanted: int
    executors: tuple[ExecutorPlace, ...]
    holdings: Mapping[TaskManagerId, tuple[Holding, ...]]


class HeldPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition's state on the nodes. ``nodes``: best first. ``equal``: how many of the first ones are as good."""

    stores: frozenset[str]
    nodes: tuple[TaskManagerId, ...]
    equal: int = 1

    @property
    def best(self) -> tuple[TaskManagerId, ...]:
        """The nodes from which the state can be read equally well."""
        return self.nodes[: self.equal]


def held_partitions(survey: Survey, checkpoint: StatePath) -> dict[Partition, HeldPartition]:
    """Return the partitions of the query with this checkpoint of which some node holds a part."""
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
    return {partition: _held(frozenset(stores[partition]), by_node) for partition, by_node in scores.items()}


def _held(stores: frozenset[str], by_node: Mapping[TaskManagerId, tuple[int, int]]) -> HeldPartition:
    """``by_node``: the newest version on each node, and the bytes that it holds.

    The newest version is on the node that last ran the partition, and on that of a reserved standby, which copies what
    a start needs and nothing older. A node with much less than another one would have to fetch files.
    """
    nodes = tuple(sorted(by_node, key=lambda node: (*(-number for number in by_node[node]), node)))
    newest, most = by_node[nodes[0]]
    equal = sum(version == newest and _COMPLETE * size >= most for version, size in by_node.values())
    return HeldPartition(stores=stores, nodes=nodes, equal=equal)


class Awaited(enum.Enum):
    """Executors that may come soon and would suit some partition better than those that Spark can use now."""

    NEAR = enum.auto()  # an executor on the best node of a partition, the job's first executor, or a node's answer
    OTHERS = enum.auto()  # each best node has an executor; missing ones may come from nodes not in the survey
    NONE = enum.auto()


def awaited(survey: Survey, partitions: Iterable[HeldPartition], registered: Collection[ExecutorId]) -> Awaited:
    """Return which executors to wait for. ``registered``: executors that Spark can use.

    An executor that registered after the survey began is ignored, because its node was not asked.
    """
    if any(place.task_manager not in survey.holdings for place in survey.executors):
        return Awaited.NEAR
    surveyed = [place for place in survey.executors if place.executor_id in registered]
    if len(surveyed) >= survey.wanted:
        return Awaited.NONE
    served = {place.task_manager for place in surveyed}
    if any(served.isdisjoint(held.best) for held in partitions):
        return Awaited.NEAR
    if len(survey.executors) >= survey.wanted:
        return Awaited.NONE
    return Awaited.OTHERS if surveyed else Awaited.NEAR


class Patience:
    """How long the start of a query waits for executors.

    It waits at most ``near`` seconds in all. Once only executors of the kind OTHERS are missing, it waits at most
    ``others`` seconds more.
    """

    def __init__(self, now: float, *, near: float, others: float) -> None:
        self._until = now + near
        self._others = others
        self._served_at: float | None = None  # time since which each best node has had an executor

    def lasts(self, who: Awaited, now: float) -> bool:
        """True if the query's start should keep waiting. Call at regular intervals."""
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
    """Return the executor to name for each partition, without partitions that are placed well already.

    ``executors``: those that Spark can use. ``settled``: where Spark assumes the partitions to be. A partition on a
    usable executor stays, because its state is in that executor's memory. If no usable executor is on a node that holds
    the partition, a partition that Spark knows of is assigned to the least used executor, because Spark would otherwise
    wait for a node that is gone. Spark itself places the others.
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
        for nodes in (held.best, *((node,) for node in held.nodes[held.equal :])):
            near = [one for one in usable.values() if one.task_manager in nodes]
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
    """Return the partition and the store's name; None if the holding belongs to another query."""
    prefix = f"{checkpoint.name}/state/" if checkpoint.name else "state/"
    if holding.root != checkpoint.root or not holding.name.startswith(prefix):
        return None
    operator, _, rest = holding.name.removeprefix(prefix).partition("/")
    number, _, store = rest.partition("/")
    if not (operator.isdecimal() and number.isdecimal()) or store.startswith("_"):  # _metadata is the driver's
        return None
    return Partition(int(operator), int(number)), store or DEFAULT_STORE
