"""The blocklist as a sequential object: one entry, or none, for each node or task manager.

Operations: ``block`` (arguments ``action``, ``end``, ``cause``, ``merge``), ``unblock``, ``list``, ``expire``. Results
of ``block`` and ``list`` are entries as the REST API shows them; of an operation that was refused, the text REFUSED.

The model follows docs/blocklist.md and docs/rest.md, and uses no code of the product, whose wrong merge it would take
for right.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from campaign.linearizability.history import Operation

REFUSED = "refused"  # a block without merging where there is an entry, or the removal of none
CLOCK_MARGIN = 0.05  # seconds by which the clocks of end times and of the history may differ
PERMANENT = 2**63 - 1  # end of an entry that does not expire
MOST_CAUSES = 8  # of an entry: the first ones are kept
_WEAK_TO_STRONG = ("MARK_BLOCKED", "MARK_BLOCKED_AND_EVACUATE_TASKS")


class Entry(msgspec.Struct, frozen=True):
    """What the REST API shows of an entry that does not depend on when the request arrived."""

    action: str
    end: int
    cause: str


class Stored(msgspec.Struct, frozen=True):
    """An entry with all its causes, in the order in which they were given."""

    action: str
    end: int
    causes: tuple[str, ...]

    def merged(self, other: Stored) -> Stored:
        """Return the stronger action, the later end, and the causes of both without repeats."""
        new = tuple(cause for cause in other.causes if cause not in self.causes)
        return Stored(
            action=self.action if _strength(self.action) >= _strength(other.action) else other.action,
            end=self.end if self.end >= other.end else other.end,
            causes=(self.causes + new)[:MOST_CAUSES],
        )

    def as_shown(self) -> Entry:
        return Entry(self.action, self.end, "; ".join(self.causes))


def _strength(action: str) -> int:
    return _WEAK_TO_STRONG.index(action)


def shown(entry: Entry | None) -> Any:
    """Return the entry as an operation's result."""
    return None if entry is None else msgspec.to_builtins(entry)


class BlocklistModel:
    """A place's entry, with its causes. An entry may be removed at any time after its end."""

    def initial(self) -> Stored | None:
        return None

    def after(self, state: Stored | None, operation: Operation) -> Iterable[Stored | None]:
        if operation.kind == "list":
            return (state,) if _is(state, operation.result) else ()
        if operation.kind == "expire":
            return (None,) if state is not None and state.end == operation.arguments["end"] else ()
        if operation.kind == "unblock":
            return self._unblock(state, operation)
        return self._block(state, operation)

    def _unblock(self, state: Stored | None, operation: Operation) -> Iterable[None]:
        if operation.returned is None:
            return () if state is None else (None,)
        return (None,) if (state is None) == (operation.result == REFUSED) else ()

    def _block(self, state: Stored | None, operation: Operation) -> Iterable[Stored | None]:
        known, given = operation.returned is not None, operation.arguments
        if state is not None and not given["merge"]:
            return (state,) if known and operation.result == REFUSED else ()
        asked = Stored(given["action"], given["end"], (given["cause"],))
        entry = asked if state is None else state.merged(asked)
        return (entry,) if not known or _is(entry, operation.result) else ()


def _is(entry: Stored | None, result: Any) -> bool:
    return bool(result == shown(None if entry is None else entry.as_shown()))


def with_expiries(operations: Sequence[Operation], unix_minus_clock: float) -> list[Operation]:
    """Add what the leader does by itself: entries expire at some time after their end.

    ``unix_minus_clock``: the difference between Unix time and the history's clock, in seconds.
    """
    ends = dict.fromkeys(
        (each.key, each.arguments["end"])
        for each in operations
        if each.kind == "block" and each.arguments["end"] != PERMANENT
    )
    expiries = [
        Operation(
            client="leader",
            key=key,
            kind="expire",
            arguments={"end": end},
            invoked=end / 1000 - unix_minus_clock - CLOCK_MARGIN,
        )
        for key, end in ends
    ]
    return [*operations, *expiries]
