"""What happens to a cluster in one history: faults with their times, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping

import msgspec

# How often each kind is drawn, and for how long what it stops stands still, or what it ends stays away, in seconds.
KINDS: Mapping[str, tuple[float, float, float]] = {
    "freeze leader": (3.0, 0.3, 9.0),
    "freeze standby": (2.0, 0.3, 9.0),
    "kill leader": (1.5, 0.0, 2.0),
    "kill standby": (0.7, 0.0, 2.0),
    "freeze zookeeper": (2.0, 0.2, 6.0),
    "kill zookeeper": (0.7, 0.0, 2.0),
    # The server that leads the others, and two of three: no quorum is left for a while.
    "freeze zookeeper-leader": (1.0, 0.2, 6.0),
    "kill zookeeper-leader": (0.7, 0.0, 2.0),
    "freeze zookeeper-quorum": (0.7, 0.5, 8.0),
    "kill zookeeper-quorum": (0.5, 0.0, 3.0),
    "freeze task manager": (2.5, 0.3, 8.0),
    "kill task manager": (0.8, 0.0, 3.0),
    "freeze node": (3.0, 0.3, 15.0),
    "freeze driver": (4.0, 0.2, 9.0),
    "kill driver": (2.0, 0.0, 0.0),
    "stutter driver": (3.0, 0.5, 3.0),
    "stutter leader": (2.0, 0.5, 3.0),
    # The process of a state gateway, between a job's upload and its rename; the latter kind with the job's driver, for
    # longer than its lease mostly, so that a newer attempt has begun when the rename goes on.
    "kill gateway": (4.0, 0.0, 3.0),
    # The driver of a job that uses one: the next attempt begins while the gateway knows this one.
    "kill gateway-driver": (4.0, 0.0, 0.0),
    "freeze gateway": (4.0, 0.3, 9.0),
    "freeze gateway-node": (4.0, 9.0, 18.0),
    "break upload": (3.0, 0.0, 0.0),
    "break download": (2.0, 0.0, 0.0),
    "abandon request": (5.0, 0.0, 0.0),
}
# Between the host of a member and others, on hosts whose network can fail.
CUT, ONE_WAY, DELAY, LOSS = "cut", "cut one way", "delay", "loss"
NETWORK_KINDS: Mapping[str, tuple[float, float, float]] = {
    "cut: leader": (2.0, 0.3, 9.0),
    "cut: standby": (0.7, 0.3, 9.0),
    "cut: zookeeper": (1.5, 0.3, 8.0),
    "cut: zookeeper-leader": (0.7, 0.3, 8.0),
    "cut: task manager": (2.5, 0.3, 15.0),
    "cut one way: leader": (2.0, 0.3, 9.0),
    "cut one way: zookeeper": (1.5, 0.3, 8.0),
    "cut one way: task manager": (2.5, 0.3, 15.0),
    "delay: leader": (1.0, 0.5, 6.0),
    "delay: zookeeper": (1.0, 0.5, 6.0),
    "delay: task manager": (1.0, 0.5, 6.0),
    "loss: leader": (1.0, 0.5, 8.0),
    "loss: zookeeper": (1.0, 0.5, 8.0),
    "loss: task manager": (1.0, 0.5, 8.0),
}
# In the middle of a BLOB transfer between hosts: of the task manager that receives, of the JobManager or task manager
# that sends, and between the two.
TRANSFER_KINDS: Mapping[str, tuple[float, float, float]] = {
    "kill blob receiver": (1.2, 0.0, 3.0),
    "freeze blob receiver": (1.2, 0.3, 8.0),
    "kill blob sender": (0.8, 0.0, 3.0),
    "freeze blob sender": (0.8, 0.3, 9.0),
    "cut blob transfer": (1.2, 0.3, 9.0),
}
CUTS = (*NETWORK_KINDS, "cut blob transfer")  # after which an attempt need not know that a newer one has begun
SHARE_OF_KINDS = 0.6  # of the kinds in one history: frequent ones would hide what rare ones show
SHORTEST_PAUSE = 0.02


class PlannedFault(msgspec.Struct, frozen=True):
    """A fault ``at`` seconds after the beginning. ``number`` seeds its choices; ``seconds``: how long it lasts."""

    at: float
    kind: str
    number: int
    seconds: float


class HistoryPlan(msgspec.Struct, frozen=True):
    """One history. ``seed`` decides what its clients do as well, as far as the cluster's replies allow."""

    seed: str
    seconds: float
    faults: tuple[PlannedFault, ...]


def draw_plan(seed: str, seconds: float, faults_per_second: float, *, hosted: bool = False) -> HistoryPlan:
    """Draw a history of so many seconds. ``hosted``: each member has a host whose network can fail."""
    chance = random.Random(seed)
    possible = {**KINDS, **NETWORK_KINDS, **TRANSFER_KINDS} if hosted else KINDS
    kinds = chance.sample(list(possible), max(1, round(SHARE_OF_KINDS * len(possible))))
    weights = [possible[kind][0] * chance.choice((0.3, 1.0, 3.0)) for kind in kinds]
    faults: list[PlannedFault] = []
    at = 0.0
    while (at := at + max(SHORTEST_PAUSE, chance.expovariate(faults_per_second))) < seconds:
        (kind,) = chance.choices(kinds, weights)
        _, shortest, longest = possible[kind]
        # Most are short; the long ones are longer than a session or a lease.
        lasts = shortest + (longest - shortest) * chance.random() ** 2
        faults.append(PlannedFault(round(at, 3), kind, len(faults), round(lasts, 3)))
    return HistoryPlan(seed, seconds, tuple(faults))
