"""The page of leaders: who led when, why each term ended, how long nobody led, and who stands by. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from emberkeep.chronicle.terms import UNKNOWN_END, LeaderTerm, StoreDoubt
from emberkeep.jobmanager.views.election import ElectionView, ZooKeeperConnection
from emberkeep.web.formats import moment, span
from emberkeep.web.paging import page_count

PER_PAGE: Final = 50
BAR_WIDTH: Final = 1000.0
DOUBTS_SHOWN: Final = 20
_NARROWEST: Final = 2.0  # so that a short term or gap can be seen
_COLOURS: Final = 8  # --plot-1 to --plot-8

CONNECTIONS: Final = {
    ZooKeeperConnection.CONNECTED: ("running", "connected"),
    ZooKeeperConnection.SUSPENDED: (
        "waiting",
        "the connection broke: this JobManager decides nothing until it is back",
    ),
    ZooKeeperConnection.LOST: ("failed", "the session is lost: another JobManager may lead by now"),
}


class TermLine(msgspec.Struct, frozen=True, kw_only=True):
    """One JobManager's time as the leader. ``colour``: 1 to 8, by address.

    ``ended_ms``: None while it leads, or if unknown; ``lasted_ms``: None if unknown. If it recorded no end
    (``end_is_known``), both reach to the next term. ``unled_ms``: how long nobody led after it; None if it leads, or if
    it recorded no end, so that nobody knows.
    """

    epoch: int
    address: str
    name: str
    colour: int
    began_ms: int
    ended_ms: int | None
    leads: bool
    lasted_ms: int | None
    end_is_known: bool
    why_ended: str
    unled_ms: int | None


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the bar, in units of ``BAR_WIDTH``. ``colour``: 0 while nobody led."""

    x: float
    width: float
    colour: int
    label: str


class DoubtLine(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which the job store did not confirm the leader. ``lasted_ms``: None if it recorded no end."""

    epoch: int
    began_ms: int
    ended_ms: int | None
    lasted_ms: int | None
    goes_on: bool
    reason: str


class JobManagerLine(msgspec.Struct, frozen=True, kw_only=True):
    """A JobManager that is known. ``tone`` and ``state``: a badge; ``text``: what the state means, or ""."""

    address: str
    colour: int
    tone: str
    state: str
    text: str


class Leaders(msgspec.Struct, frozen=True, kw_only=True):
    """``terms``: one page of them, newest first. ``bar``: the same, oldest first.

    ``doubts``: those in the time of the bar, newest first, and ``doubts_in_bar``, oldest first.
    """

    terms: tuple[TermLine, ...]
    bar: tuple[Segment, ...]
    doubts: tuple[DoubtLine, ...]
    doubts_in_bar: tuple[Segment, ...]
    bar_from_ms: int
    bar_to_ms: int
    total: int
    number: int
    pages: int


def leaders(
    terms: Sequence[LeaderTerm], epoch: int, now_ms: int, number: int, doubts: Sequence[StoreDoubt] = ()
) -> Leaders:
    """Return what the page shows of ``terms`` and ``doubts``, which are newest first.

    ``epoch``: the present leader's. ``number``: of the page; one that is too large is the last one.
    """
    colours = colours_of(term.address for term in terms)
    lines = [
        _line(term, None if index == 0 else terms[index - 1], colours[term.address], epoch, now_ms)
        for index, term in enumerate(terms)
    ]
    pages = page_count(len(lines), PER_PAGE)
    number = min(number, pages)
    first = (number - 1) * PER_PAGE
    shown = tuple(lines[first : first + PER_PAGE])
    until = now_ms if first == 0 else lines[first - 1].began_ms
    began = min((line.began_ms for line in shown), default=until)
    lines_of_doubts = [_doubt(each, epoch, now_ms) for each in doubts if began <= each.began_ms <= until]
    return Leaders(
        terms=shown,
        doubts=tuple(lines_of_doubts[:DOUBTS_SHOWN]),
        doubts_in_bar=tuple(
            _segment(
                each.began_ms, each.began_ms + (each.lasted_ms or 0), began, until, 0, f"in doubt, {_span_of(each)}"
            )
            for each in lines_of_doubts[::-1]
            if until > began
        ),
        bar=_bar(shown[::-1], began, until),
        bar_from_ms=began,
        bar_to_ms=until,
        total=len(lines),
        number=number,
        pages=pages,
    )


def _doubt(doubt: StoreDoubt, epoch: int, now_ms: int) -> DoubtLine:
    goes_on = doubt.ended_ms is None and doubt.epoch == epoch
    ended = now_ms if goes_on else doubt.ended_ms
    return DoubtLine(
        epoch=doubt.epoch,
        began_ms=doubt.began_ms,
        ended_ms=doubt.ended_ms,
        lasted_ms=None if ended is None else max(0, ended - doubt.began_ms),
        goes_on=goes_on,
        reason=doubt.reason,
    )


def _span_of(line: DoubtLine) -> str:
    lasted = "" if line.lasted_ms is None else f"for {span(line.lasted_ms)} "
    return f"{lasted}from {moment(line.began_ms)}"


def colours_of(addresses: Iterable[str]) -> dict[str, int]:
    """Return a colour for each JobManager. The colours start again after the eighth."""
    return {address: index % _COLOURS + 1 for index, address in enumerate(sorted(set(addresses)))}


def job_managers(election: ElectionView, leader: str, terms: Iterable[LeaderTerm]) -> list[JobManagerLine]:
    """Return the known JobManagers, the leader first, then those that stand by. ``leader``: the leader's address."""
    colours = colours_of(term.address for term in terms)
    addresses = dict.fromkeys((leader, *election.queue, *election.known))
    lines = [_job_manager(address, election, leader, colours.get(address, 0)) for address in addresses]
    return sorted(lines, key=lambda line: (line.address != leader, line.address not in election.queue, line.address))


def who(term: TermLine) -> str:
    """Return the name and address of a leader."""
    return f"{term.name} at {term.address}" if term.name else term.address or "an unknown JobManager"


def _job_manager(address: str, election: ElectionView, leader: str, colour: int) -> JobManagerLine:
    tone, state, text = "cancelled", "AWAY", "its process has ended, or it has lost contact with ZooKeeper"
    if address == leader:
        tone, state, text = "running", "LEADS", ""
    elif address in election.queue:
        tone, state, text = "finished", "STANDS BY", ""
        if election.connection is not ZooKeeperConnection.CONNECTED:
            tone, text = "waiting", "as ZooKeeper last said"
    return JobManagerLine(address=address, colour=colour, tone=tone, state=state, text=text)


def _line(term: LeaderTerm, following: LeaderTerm | None, colour: int, epoch: int, now_ms: int) -> TermLine:
    known = term.ended_ms is not None and term.why_ended != UNKNOWN_END
    unled = None
    if known and term.ended_ms is not None:
        unled = max(0, (now_ms if following is None else following.began_ms) - term.ended_ms)
    leads = term.epoch == epoch
    ended = now_ms if leads else term.ended_ms
    return TermLine(
        epoch=term.epoch,
        address=term.address,
        name=term.name,
        colour=colour,
        began_ms=term.began_ms,
        ended_ms=None if leads else ended,
        leads=leads,
        lasted_ms=None if ended is None else max(0, ended - term.began_ms),
        end_is_known=known,
        why_ended=term.why_ended if leads or ended is not None else UNKNOWN_END,
        unled_ms=unled,
    )


def _bar(terms: Sequence[TermLine], began_ms: int, until_ms: int) -> tuple[Segment, ...]:
    """Return the bar of ``terms``, which are oldest first. Clocks of machines differ: parts may overlap a little."""
    if until_ms <= began_ms:
        return ()
    segments = []
    for term in terms:
        if term.lasted_ms is None:
            continue
        end = term.began_ms + term.lasted_ms
        most = "" if term.leads or term.end_is_known else "at most "
        label = f"epoch {term.epoch}: {who(term)}, for {most}{span(term.lasted_ms)} from {moment(term.began_ms)}"
        segments.append(_segment(term.began_ms, end, began_ms, until_ms, term.colour, label))
        if term.unled_ms:
            text = f"nobody led for {span(term.unled_ms)} from {moment(end)}"
            segments.append(_segment(end, end + term.unled_ms, began_ms, until_ms, 0, text))
    return tuple(segments)


def _segment(start_ms: int, end_ms: int, began_ms: int, until_ms: int, colour: int, label: str) -> Segment:
    scale = BAR_WIDTH / (until_ms - began_ms)
    width = max(_NARROWEST, (min(end_ms, until_ms) - start_ms) * scale)
    x = min((start_ms - began_ms) * scale, BAR_WIDTH - width)
    return Segment(x=round(max(0.0, x), 2), width=round(width, 2), colour=colour, label=label)
