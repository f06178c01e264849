"""What happens in one history: a cluster, its jobs, and faults one after the other, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping

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
FAULTS = 25
SHARE_OF_KINDS = 0.7  # of the kinds in one history: frequent ones would hide what rare ones show
TOGETHER = 0.2  # share of the faults that are followed by the next one at once
LONGEST_PAUSE = 2.5  # seconds between the recovery and the next fault

STREAM_KINDS = ("windows", "sessions", "joined", "distinct", "counted", "passed")
SINKS = ("files", "sqlite", "parquet", "rolling")
BATCH_KINDS = ("shuffled", "cached", "committed")
ROCKS_ONLY = ("counted",)  # transformWithState


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


def draw_plan(seed: str, faults: int = FAULTS) -> HistoryPlan:
    """Draw a history of so many faults."""
    chance = random.Random(seed)
    replicated = chance.random() < 0.6
    standbys = chance.random() < 0.3
    kinds = list(STREAM_KINDS)
    chance.shuffle(kinds)
    # Standby processes are JVMs as well, and two cores carry seven of them.
    shares = [kinds[:3]] if standbys else [kinds[:3], kinds[3:5]]
    streams = tuple(_stream(chance, share, hot=standbys and chance.random() < 0.5) for share in shares)
    batches = tuple(
        PlannedBatch(chance.choice(BATCH_KINDS), before)
        for before in sorted(chance.sample(range(faults), min(faults, chance.randint(1, 3))))
    )
    return HistoryPlan(
        seed=seed,
        job_managers=2 if replicated else 1,
        zookeepers=1 if replicated else 0,
        standbys=standbys,
        local_state=chance.random() < 0.4,
        streams=streams,
        batches=batches,
        faults=_faults(chance, faults, replicated),
    )


def _stream(chance: random.Random, kinds: list[str], *, hot: bool) -> PlannedStream:
    sinks = chance.sample(SINKS, len(kinds))
    queries = tuple(
        PlannedQuery(kind, sink, kind in ROCKS_ONLY or chance.random() < 0.5, chance.random() < 0.5)
        for kind, sink in zip(kinds, sinks, strict=True)
    )
    return PlannedStream(queries, chance.choice((1, 1, 2)), chance.random() < 0.3, hot)


def _faults(chance: random.Random, count: int, replicated: bool) -> tuple[PlannedFault, ...]:
    possible = [kind for kind in KINDS if replicated or kind not in ZOOKEEPER_KINDS]
    kinds = chance.sample(possible, round(SHARE_OF_KINDS * len(possible)))
    weights = [KINDS[kind][0] for kind in kinds]
    found = []
    for number in range(count):
        (kind,) = chance.choices(kinds, weights)
        _, shortest, longest = KINDS[kind]
        # Most are short; the long ones are longer than a session or a lease.
        seconds = shortest + (longest - shortest) * chance.random() ** 2
        pause = chance.uniform(0.0, LONGEST_PAUSE)
        found.append(PlannedFault(kind, number, round(seconds, 3), round(pause, 3), chance.random() < TOGETHER))
    return tuple(found)
