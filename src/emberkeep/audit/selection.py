"""Which entries of the audit log a reader asks for, and the interface to read them."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from emberkeep.audit.entry import Entry, moment_of
from emberkeep.base.clock import MOST_MS

MOST_ENTRIES: Final = 1000  # in one page


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Entries by time (Unix milliseconds, both ends included), identity, job and outcome; "" selects all.

    ``before``: only entries with a lower id than this, for the next page. ``limit``: the largest number of entries.
    """

    since_ms: int = 0
    until_ms: int = MOST_MS
    identity: str = ""
    job: str = ""
    outcome: str = ""
    before: str = ""
    limit: int = 100

    def is_older(self, entry: Entry) -> bool:
        """True if this entry, and with it all older ones, is from before the time that was asked for."""
        return moment_of(entry.id) < self.since_ms

    def matches(self, entry: Entry) -> bool:
        return (
            not self.is_older(entry)
            and moment_of(entry.id) <= self.until_ms
            and self.identity in ("", entry.identity)
            and self.job in ("", entry.target.get("jobid"))
            and self.outcome in ("", entry.outcome)
            and (not self.before or entry.id < self.before)
        )


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Entries, newest first. ``next``: the ``before`` of the next page; "" if there are no older entries."""

    entries: tuple[Entry, ...] = ()
    next: str = ""


class AuditTrail(Protocol):
    """The audit log of this JobManager."""

    @property
    def lost(self) -> int:
        """Number of entries that could not be written since the process started."""

    async def read(self, selection: Selection) -> Page:
        """Return the newest selected entries. Raises Unavailable if the files cannot be read."""
