"""What happens in one history: a cluster, its jobs, and faults one after the other, drawn from a seed.

Faults are drawn for each history by itself. Clusters and queries are dealt: each seed has an order of its own, so that
few successive histories meet all of them.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

# How often each kind is drawn, and for how long what it stops stands still, or what it ends stays away, in seconds.
KINDS: Mapping[str, tuple[float, float, float]] = {
    "kill driver": (3.0, 0.0, 0.0),
    "kill driver's JVM": (1.5, 0.0, 0.0),
    "freeze driver": (2.0, 0.5, 12.0),
    "kill executor": (3.0, 0.0, 0.0),
    "freeze executor": (1.5, 0.5, 10.0),
    "kill leader": (2.0, 0.0, 2.0),
    "freeze leader": (1.5, 0.5, 9.0),
    "kill standby": (0.5, 0.0, 2.0),
    "kill zookeeper": (1.0, 0.0, 4.0),
    "freeze zookeeper": (1.0, 0.5, 7.0),
    "kill task manager": (2.0, 0.0, 3.0),
    "freeze task manager": (1.5, 0.5, 9.0),
    "lose node": (1.5, 0.0, 3.0),
    "freeze node": (1.5, 0.5, 12.0),
    "evacuate node": (1.5, 0.0, 1.0),
    "savepoint": (2.0, 0.0, 0.0),
    "kill driver in savepoint": (1.0, 0.0, 1.5),
    "suspend and restore": (1.5, 0.0, 0.0),
    "kill driver in suspend": (1.0, 0.0, 1.5),
}
ZOOKEEPER_KINDS = ("kill zookeeper", "freeze zookeeper", "kill standby")
FAULTS = 40  # so many that the start and the end of a cluster and its jobs are a small part of a history
SHARE_OF_KINDS = 0.7  # of the kinds in one history: frequent ones would hide what rare ones show
TOGETHER = 0.45  # share of the faults that are followed by the next one before they are recovered
# Seconds. After a recovery, so that not every fault comes right after a commit; and beside a fault that goes on.
LONGEST_PAUSE = 1.0
LONGEST_PAUSE_TOGETHER = 4.0

STREAM_KINDS = ("windows", "sessions", "joined", "distinct", "counted", "passed")
SINKS = ("files", "sqlite", "parquet", "rolling")
BATCH_KINDS = ("shuffled", "cached", "committed")
ROCKS_ONLY = ("counted",)  # transformWithState
# Standby processes are JVMs as well, and two cores carry seven of them: kinds of queries of each script.
SCRIPTS, SCRIPTS_WITH_STANDBYS = (3, 2), (3,)


class PlannedFault(msgspec.Struct, frozen=True):
    """A fault. ``number`` seeds its choices; ``seconds``: how long it lasts; ``pause``: before it.

    ``together``: the next fault does not wait until this one is recovered.
    """

    kind: str
    number: int
    seconds: float
    pause: float
    together: bool


class PlannedQuery(msgspec.Struct, frozen=True):
    """A streaming query. ``rocks``: its state is in RocksDB; ``changelog``: with changelog checkpoints."""

    kind: str
    sink: str
    rocks: bool
    changelog: bool

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.sink}"


class PlannedStream(msgspec.Struct, frozen=True):
    """A script with streaming queries over one input.

    ``empty_batches``: Spark runs batches without rows for the watermark's sake. ``hot``: with a reserved standby.
    ``planted``: a bug that the oracle must find.
    """

    queries: tuple[PlannedQuery, ...]
    files_per_batch: int
    empty_batches: bool
    hot: bool = False
    planted: str = ""


class PlannedBatch(msgspec.Struct, frozen=True):
    """A batch job that is submitted before a fault of this number."""

    kind: str
    before: int


class HistoryPlan(msgspec.Struct, frozen=True):
    """One history. ``job_managers`` and ``zookeepers``: 1 and 0 for a job store in SQLite.

    ``standbys``: each task manager keeps a warm driver and a warm executor. ``local_state``: state is kept on the
    nodes' disks too.
    """

    seed: str
    job_managers: int
    zookeepers: int
    standbys: bool
    local_state: bool
    streams: tuple[PlannedStream, ...]
    batches: tuple[PlannedBatch, ...]
    faults: tuple[PlannedFault, ...]


class _Cluster(NamedTuple):
    replicated: bool
    standbys: bool
    local_state: bool


CLUSTERS = tuple(itertools.starmap(_Cluster, itertools.product((False, True), repeat=3)))


def draw_plan(seed: str, number: int = 0, faults: int = FAULTS) -> HistoryPlan:
    """Draw the history with this number of a seed, with so many faults.

    Any eight successive histories have all eight kinds of clusters, and each kind of query with each sink.
    """
    chance = random.Random(f"{seed}-{number}")
    clusters, queries = _dealt_clusters(seed), _Queries(seed)
    cluster = clusters[number % len(clusters)]
    place = sum(sum(_scripts(each)) for each in _before(clusters, number))
    streams = []
    for size in _scripts(cluster):
        streams.append(_stream(chance, queries.some(place, size), hot=cluster.standbys and chance.random() < 0.5))
        place += size
    times = sorted(chance.sample(range(faults), min(faults, chance.randint(1, 3))))
    return HistoryPlan(
        seed=f"{seed}-{number}",
        job_managers=2 if cluster.replicated else 1,
        zookeepers=1 if cluster.replicated else 0,
        standbys=cluster.standbys,
        local_state=cluster.local_state,
        streams=tuple(streams),
        batches=tuple(
            PlannedBatch(BATCH_KINDS[(number + offset) % len(BATCH_KINDS)], before)
            for offset, before in enumerate(times)
        ),
        faults=_faults(chance, faults, cluster.replicated),
    )


def _dealt_clusters(seed: str) -> list[_Cluster]:
    """Return the order in which histories have the kinds of clusters."""
    return random.Random(f"{seed}/clusters").sample(CLUSTERS, len(CLUSTERS))


def _before(clusters: list[_Cluster], number: int) -> list[_Cluster]:
    """Return the clusters of the histories before one."""
    rounds, rest = divmod(number, len(clusters))
    return clusters * rounds + clusters[:rest]


def _scripts(cluster: _Cluster) -> tuple[int, ...]:
    return SCRIPTS_WITH_STANDBYS if cluster.standbys else SCRIPTS


class _Queries:
    """The order in which the queries of a seed have kinds and sinks.

    Any six successive queries have all kinds, any three different sinks, and any 24 all pairs.
    """

    def __init__(self, seed: str) -> None:
        chance = random.Random(f"{seed}/queries")
        self._kinds = chance.sample(STREAM_KINDS, len(STREAM_KINDS))
        self._sinks = chance.sample(SINKS, len(SINKS))

    def some(self, place: int, count: int) -> list[tuple[str, str]]:
        """Return so many pairs of kind and sink from a place of the order on."""
        return [self._pair(each) for each in range(place, place + count)]

    def _pair(self, place: int) -> tuple[str, str]:
        rounds, number = divmod(place, len(self._kinds))
        return self._kinds[number], self._sinks[(number - rounds) % len(self._sinks)]


def _stream(chance: random.Random, pairs: list[tuple[str, str]], *, hot: bool) -> PlannedStream:
    queries = tuple(
        PlannedQuery(kind, sink, kind in ROCKS_ONLY or chance.random() < 0.5, chance.random() < 0.5)
        for kind, sink in pairs
    )
    return PlannedStream(queries, chance.choice((1, 1, 2)), chance.random() < 0.3, hot)


def _faults(chance: random.Random, count: int, replicated: bool) -> tuple[PlannedFault, ...]:
    possible = [kind for kind in KINDS if replicated or kind not in ZOOKEEPER_KINDS]
    kinds = chance.sample(possible, round(SHARE_OF_KINDS * len(possible)))
    weights = [KINDS[kind][0] for kind in kinds]
    found: list[PlannedFault] = []
    for number in range(count):
        (kind,) = chance.choices(kinds, weights)
        _, shortest, longest = KINDS[kind]
        # Most are short; the long ones are longer than a session or a lease.
        seconds = shortest + (longest - shortest) * chance.random() ** 2
        beside = bool(found) and found[-1].together
        pause = chance.uniform(0.0, LONGEST_PAUSE_TOGETHER if beside else LONGEST_PAUSE)
        found.append(PlannedFault(kind, number, round(seconds, 3), round(pause, 3), chance.random() < TOGETHER))
    return tuple(found)
