"""The blocklist as its owner changes it: add, merge, remove, expire, and take reports of JobMasters."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from emberkeep.blocklist.errors import AlreadyBlocked, BlocklistFull, NotBlocked
from emberkeep.blocklist.merge import covers, merged
from emberkeep.blocklist.model import (
    BlockAction,
    Blocked,
    BlockedNode,
    Blocklist,
    Place,
    PlaceKind,
    Removal,
    Report,
    is_of_platform,
)

REMOVALS_KEPT = 200
LIST_BYTES = 512 * 1024  # largest list as JSON: a ZooKeeper node holds 1 MiB


class BlocklistTracker:
    """The current list. Each change increments the revision by one. Times are Unix milliseconds, passed in."""

    def __init__(self, blocklist: Blocklist) -> None:
        self._revision = blocklist.revision
        self._entries: dict[Place, Blocked] = {entry.place: entry for entry in blocklist.entries}
        self._removals: dict[Place, Removal] = {removal.place: removal for removal in blocklist.removals}
        self._floor = blocklist.floor

    @property
    def blocklist(self) -> Blocklist:
        """The current list."""
        return Blocklist(
            revision=self._revision,
            entries=tuple(self._entries.values()),
            removals=tuple(self._removals.values()),
            floor=self._floor,
        )

    def blocked_nodes(self) -> tuple[BlockedNode, ...]:
        """Return the entries about nodes."""
        return tuple(entry for entry in self._entries.values() if isinstance(entry, BlockedNode))

    def put(self, entry: Blocked, *, merge: bool, keep_drivers: bool = False) -> tuple[Blocked, bool]:
        """Add an entry, or with ``merge`` merge it into an existing one.

        ``keep_drivers``: the caller did not say what happens to drivers, so an existing entry that evacuates keeps its
        own setting. Returns the resulting entry, and True if there was one before. Raises AlreadyBlocked,
        BlocklistFull.
        """
        known = self._entries.get(entry.place)
        if known is not None and not merge:
            raise AlreadyBlocked(
                f"{entry.place} is blocked already: {known.cause}", hint="merge into that entry, or unblock it first"
            )
        if keep_drivers and known is not None and known.action is BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS:
            entry = msgspec.structs.replace(entry, drivers=known.drivers)
        new = entry if known is None else merged(known, entry)
        if new != known:
            self._set(new)
        return new, known is not None

    def report(self, report: Report, now_ms: int) -> bool:
        """Take an entry that a JobMaster asks for. Return True if the list has changed.

        A repeated or late report changes nothing: the list has its entry, or the entry was removed after the report was
        made. Raises BlocklistFull.
        """
        entry, place = report.entry, report.entry.place
        removal = self._removals.get(place)
        if is_overtaken(report, removal.revision if removal else 0, self._floor):
            return False
        known = self._entries.get(place)
        if known is not None:
            if covers(known, entry):
                return False
            self._set(merged(known, entry))
        elif entry.end_ms <= now_ms:
            self._note_removal(place, now_ms, by_hand=False)  # so that the JobMaster learns that the entry has ended
        else:
            self._set(entry)
        return True

    def remove(self, place: Place, now_ms: int) -> Blocked:
        """Remove the entry about a place for an operator, and return the entry. Raises NotBlocked."""
        known = self._entries.pop(place, None)
        if known is None:
            what = "nodes" if place.kind is PlaceKind.NODE else "task managers"
            raise NotBlocked(f"{place} is not blocked", hint=f"GET /v1/blocklist lists the blocked {what}")
        self._note_removal(place, now_ms, by_hand=True)
        return known

    def withdraw(self, place: Place, now_ms: int) -> None:
        """Remove the platform's entry about a place. An entry to which another cause was added stays."""
        known = self._entries.get(place)
        if known is not None and is_of_platform(known):
            del self._entries[place]
            self._note_removal(place, now_ms, by_hand=False)

    def expire(self, over: Iterable[Blocked], now_ms: int) -> None:
        """Remove the entries whose time is ``over``."""
        for entry in over:
            del self._entries[entry.place]
            self._note_removal(entry.place, now_ms, by_hand=False)

    def _set(self, entry: Blocked) -> None:
        before = dict(self._entries)
        self._entries[entry.place] = entry
        self._revision += 1
        if len(msgspec.json.encode(self.blocklist)) > LIST_BYTES:
            self._entries, self._revision = before, self._revision - 1
            raise BlocklistFull(
                f"the blocklist is full: {len(before)} entries need {LIST_BYTES // 1024} KiB",
                hint="unblock nodes that need not be blocked any longer",
            )

    def _note_removal(self, place: Place, now_ms: int, *, by_hand: bool) -> None:
        self._revision += 1
        self._removals.pop(place, None)  # keeps the newest last
        self._removals[place] = Removal(place=place, revision=self._revision, by_hand=by_hand, at_ms=now_ms)
        while len(self._removals) > REMOVALS_KEPT:
            oldest = next(iter(self._removals))
            self._floor = self._removals.pop(oldest).revision


def is_overtaken(report: Report, removed: int, floor: int) -> bool:
    """True if the place was removed from the list by a change that the reporter did not know of.

    ``removed``: revision of the place's newest removal; 0 for none. ``floor``: revision of the newest forgotten
    removal. If a forgotten removal may concern the place, the place counts as removed. The reporting JobMaster may
    report it again.
    """
    return report.known < max(removed, floor)
