"""Peer fetch, simulated: 1 to 1,000 caches want the same BLOB at once; how often the server itself has to send it.

The decisions are ``blobs.peers.Peers``', which the real server asks. Time passes in steps of one transfer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from bench.measure import Figure, Goal
from bench.plan import Plan
from emberkeep.base.configuration.options.blobs import BLOB_DIRECT_DOWNLOADS
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import permanent
from emberkeep.blobs.peers import Direct, Peers

_CACHES = (1, 10, 100, 1_000)
_OWNER, _KEY = JobId("1" * 32), permanent("0" * 64)


def measure(plan: Plan) -> list[Figure]:
    """Transfers by the server, and rounds until all have it; also where every tenth peer lets its children down."""
    figures = []
    for failing in (0.0, 0.1):
        who = "" if failing == 0 else ", every tenth peer fails"
        for caches in _CACHES:
            runs = [fetch(caches, failing, seed) for seed in range(plan.repetitions)]
            sent = tuple(float(run[0]) for run in runs)
            rounds = tuple(float(run[1]) for run in runs)
            goal = Goal(at_most=BLOB_DIRECT_DOWNLOADS.default) if failing == 0 else None
            figures.append(Figure(f"{caches:,} caches{who}: copies that the server sends", "", sent, goal))
            figures.append(Figure(f"{caches:,} caches{who}: until all have it", "transfers", rounds))
    return figures


def fetch(caches: int, failing: float, seed: int) -> tuple[int, int]:
    """How many copies the server sent, and after how many transfers' time the last cache was done."""
    rng = random.Random(seed)
    peers = Peers(BLOB_DIRECT_DOWNLOADS.default)
    waiting = [f"cache-{number}:1" for number in range(caches)]
    bad = {name for name in waiting if rng.random() < failing}
    sent = rounds = 0
    insisting: list[str] = []
    while waiting or insisting:
        rounds += 1
        direct, from_peers = _ask(peers, waiting, insisting)
        insisting = []
        sent += len(direct)
        rng.shuffle(from_peers)
        for name in direct:
            peers.served(_OWNER, _KEY, name, complete=True)
        done = set(direct)
        for name, peer in from_peers:
            if peer in bad:
                insisting.append(name)
            else:
                peers.ready(_OWNER, _KEY, name)
                done.add(name)
        waiting = [name for name in waiting if name not in done and name not in insisting]
    return sent, rounds


def _ask(peers: Peers, waiting: Sequence[str], insisting: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Who is served by the server in this round, and who by which peer; the others ask again."""
    direct = list(insisting)
    from_peers: list[tuple[str, str]] = []
    for name in insisting:
        peers.insist(_OWNER, _KEY, name)
    for name in waiting:
        answer = peers.ask(_OWNER, _KEY, name)
        if answer is Direct.SERVE:
            direct.append(name)
        elif isinstance(answer, str):
            from_peers.append((name, answer))
    return direct, from_peers
