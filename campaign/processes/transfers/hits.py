"""What a fault has struck, and which BLOB transfers were running there at that moment."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

# Where a fault has hit a transfer, for the figures.
RECEIVER = "receiving task manager"
SERVER = "serving JobManager"
PEER = "serving task manager"
NETWORK = "network between them"
ALL_TRANSFERS = "all"


@dataclass(frozen=True)
class Transfer:
    """A BLOB on its way to a task manager. Both are names of members."""

    sender: str
    receiver: str


@dataclass(frozen=True)
class Hit:
    """What a fault has struck. ``target``: for people; "" for nothing. ``at``: when, by the history's clock.

    ``transfers``: where it has hit running transfers.
    """

    target: str
    at: float
    transfers: tuple[str, ...] = ()


NO_HIT = Hit("", 0.0)


def hit_at(names: Collection[str], running: Iterable[Transfer]) -> tuple[str, ...]:
    """Return where a fault of members hits running transfers."""
    places = set()
    for transfer in running:
        if transfer.receiver in names:
            places.add(RECEIVER)
        if transfer.sender in names:
            places.add(SERVER if transfer.sender.startswith("jm-") else PEER)
    return tuple(sorted(places))


def hit_between(pairs: Collection[tuple[str, str]], running: Iterable[Transfer]) -> tuple[str, ...]:
    """Return NETWORK if a fault between pairs of members hits a running transfer.

    It does in either direction: a sender stops without confirmations.
    """
    ends = ((transfer.sender, transfer.receiver) for transfer in running)
    is_hit = any((sender, receiver) in pairs or (receiver, sender) in pairs for sender, receiver in ends)
    return (NETWORK,) if is_hit else ()
