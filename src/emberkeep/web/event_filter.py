"""Which events a list shows, and the links that change that: all of it is in the page's address."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode

from emberkeep.base.clock import MOST_MS
from emberkeep.base.errors import InvalidInput
from emberkeep.chronicle.selection import Selection

_CURSOR: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")
_MOST_TEXT: Final = 200
_MINUTE_MS: Final = 60_000


@dataclass(frozen=True)
class EventFilter:
    """What selects events; "" and no types select all. ``since`` and ``until``: ISO 8601 in UTC, as the form has them.

    ``path``: of the list. ``before``: the id of an event, for the pages after the first one.
    """

    path: str
    types: tuple[str, ...] = ()
    by: str = ""
    text: str = ""
    since: str = ""
    until: str = ""
    before: str = ""

    def address(self) -> str:
        """Return the address of the page with these events."""
        given = [("type", each) for each in self.types]
        given += [(name, getattr(self, name)) for name in ("by", "text", "since", "until", "before")]
        query = urlencode([(name, value) for name, value in given if value])
        return f"{self.path}?{query}" if query else self.path

    def toggled(self, one: str) -> EventFilter:
        """Return the filter with a type added, or removed if it was selected; from the newest event on."""
        types = tuple(each for each in self.types if each != one) if one in self.types else (*self.types, one)
        return replace(self, types=types, before="")

    def of_all_types(self) -> EventFilter:
        return replace(self, types=(), before="")

    def from_event(self, before: str) -> EventFilter:
        return replace(self, before=before)

    def selection(self, limit: int) -> Selection:
        """Return the same for the chronicle. Raises InvalidInput for what is no time."""
        return Selection(
            types=frozenset(self.types),
            by=self.by.strip(),
            text=self.text.strip(),
            since_ms=first_ms(self.since),
            until_ms=last_ms(self.until),
            before=self.before,
            limit=limit,
        )


def parse_event_filter(path: str, query: Mapping[str, str], types: Sequence[str], known: Iterable[str]) -> EventFilter:
    """Return the filter in an address. ``types``: those it names; ``known``: that there are. Raises InvalidInput."""
    listed = set(known)
    for each in types:
        if each not in listed:
            raise InvalidInput(f"{each[:40]!r} is not the type of an event here", field="type")
    before = query.get("before", "")
    if before and _CURSOR.fullmatch(before) is None:
        raise InvalidInput(f"{before[:40]!r} is not the id of an event", field="before")
    by, text, since, until = (query.get(name, "")[:_MOST_TEXT] for name in ("by", "text", "since", "until"))
    return EventFilter(path, tuple(dict.fromkeys(types)), by, text, since, until, before)


def first_ms(since: str) -> int:
    """Return from when on a form asks for something; 0 for "". Raises InvalidInput for what is no time."""
    return _time_ms(since, "since") or 0


def last_ms(until: str) -> int:
    """Return the end of the minute or the second until which a form asks for something. Raises InvalidInput."""
    time_ms = _time_ms(until, "until")
    return MOST_MS if time_ms is None else time_ms + (_MINUTE_MS - 1 if time_ms % _MINUTE_MS == 0 else 999)


def _time_ms(text: str, field: str) -> int | None:
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"{text[:40]!r} is not a time, such as 2026-01-31T18:00", field=field) from None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
