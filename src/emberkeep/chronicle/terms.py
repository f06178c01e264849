"""The leaders of a cluster, one after the other, and why each of them stopped. Made from the cluster's stream."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from emberkeep.chronicle.occurrence import Occurrence, What, epoch_of

UNKNOWN_END: Final = "it recorded no end: it was killed or cut off, or its machine failed"


class LeaderTerm(msgspec.Struct, frozen=True, kw_only=True):
    """One JobManager's time as the leader.

    ``ended_ms``: None for the current leader; if the leader did not record its end, the start of the next term.
    ``why_ended``: "" for the current leader.
    """

    epoch: int
    address: str
    name: str
    began_ms: int
    ended_ms: int | None = None
    why_ended: str = ""


def leader_terms(stream: Iterable[Occurrence]) -> tuple[LeaderTerm, ...]:
    """Return the terms that ``stream``, which is in order, shows; the newest first."""
    began: dict[int, Occurrence] = {}
    ended: dict[int, Occurrence] = {}
    for each in stream:
        if each.what == What.LEADER_STARTED:
            began.setdefault(epoch_of(each.id), each)
        elif each.what == What.LEADER_ENDED:
            ended[epoch_of(each.id)] = each
    return tuple(reversed(tuple(_terms(began, ended))))


def _terms(began: dict[int, Occurrence], ended: dict[int, Occurrence]) -> Iterator[LeaderTerm]:
    epochs = sorted(began)
    for epoch, following in itertools.zip_longest(epochs, epochs[1:]):
        first, last = began[epoch], ended.get(epoch)
        if last is not None:
            end, why = last.time_ms, last.details.get("reason", "")
        elif following is not None:
            end, why = began[following].time_ms, UNKNOWN_END
        else:
            end, why = None, ""
        yield LeaderTerm(
            epoch=epoch,
            address=first.details.get("address", ""),
            name=first.details.get("name", ""),
            began_ms=first.time_ms,
            ended_ms=end,
            why_ended=why,
        )
