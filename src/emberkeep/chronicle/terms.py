"""The leaders of a cluster, one after the other, why each of them stopped, and when its job store was in doubt.

Made from the cluster's stream.
"""

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


class StoreDoubt(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which the job store did not confirm the leader of ``epoch``.

    ``ended_ms``: when it confirmed the leader again; None if it has not, or if the leader recorded no end.
    """

    epoch: int
    began_ms: int
    reason: str
    ended_ms: int | None = None


def store_doubts(stream: Iterable[Occurrence]) -> tuple[StoreDoubt, ...]:
    """Return the doubts that ``stream``, which is in order, shows; the newest first."""
    found: list[StoreDoubt] = []
    for each in stream:
        epoch = epoch_of(each.id)
        if each.what == What.STORE_IN_DOUBT:
            found.append(StoreDoubt(epoch=epoch, began_ms=each.time_ms, reason=each.details.get("reason", "")))
        elif each.what == What.STORE_BACK and found and found[-1].epoch == epoch and found[-1].ended_ms is None:
            found[-1] = msgspec.structs.replace(found[-1], ended_ms=max(found[-1].began_ms, each.time_ms))
    return tuple(reversed(found))


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
