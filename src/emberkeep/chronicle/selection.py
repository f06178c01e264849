"""Which occurrences of a stream a reader asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from emberkeep.base.clock import MOST_MS
from emberkeep.chronicle.occurrence import Occurrence

MOST_LISTED: Final = 1000  # in one page


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Occurrences by type and time (Unix milliseconds, both ends included). No types: all of them.

    ``by``: who asked for it. ``text``: what its message, type, node or task manager contains. Both in any case; "" for
    all.

    ``before``: only older ones than this id, for the next page. ``after``: only newer ones than this id, to follow the
    stream; the page is then the oldest of these, oldest first. ``limit``: the largest number of occurrences.
    """

    types: frozenset[str] = frozenset()
    since_ms: int = 0
    until_ms: int = MOST_MS
    by: str = ""
    text: str = ""
    before: str = ""
    after: str | None = None
    limit: int = 100

    def matches(self, occurrence: Occurrence) -> bool:
        return (
            (not self.types or occurrence.what in self.types)
            and self.since_ms <= occurrence.time_ms <= self.until_ms
            and (not self.before or occurrence.id < self.before)
            and (self.after is None or occurrence.id > self.after)
            and self.by.lower() in ("", occurrence.by.lower())
            and (not self.text or self.text.lower() in _words(occurrence))
        )


def _words(occurrence: Occurrence) -> str:
    """Return what a reader may search for, in lower case."""
    return "\n".join((occurrence.message, occurrence.what, occurrence.node, occurrence.task_manager)).lower()


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Occurrences, newest first; with ``after``, oldest first.

    ``next``: the ``before`` of the next page, or "" if there are no older ones. With ``after``: the ``after`` of the
    next page, which exists even if nothing has happened yet.
    """

    occurrences: tuple[Occurrence, ...] = ()
    next: str = ""


def page_of(stream: Sequence[Occurrence], selection: Selection) -> Page:
    """Return the page of ``stream``, which is in order, that a reader asks for."""
    found = [each for each in stream if selection.matches(each)]
    if selection.after is not None:
        first = found[: selection.limit]
        # What was not selected need not be read again.
        last = first[-1].id if len(first) < len(found) else max((each.id for each in stream), default="")
        return Page(occurrences=tuple(first), next=max(last, selection.after))
    newest = found[::-1][: selection.limit]
    return Page(occurrences=tuple(newest), next=newest[-1].id if newest and len(newest) < len(found) else "")
