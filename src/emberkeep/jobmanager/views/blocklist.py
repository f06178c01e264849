"""What the edges may ask of the cluster's blocklist."""

from __future__ import annotations

from typing import Protocol

import msgspec

from emberkeep.blocklist.model import Blocked, Blocklist, Place


class Blocking(msgspec.Struct, frozen=True, kw_only=True):
    """The entry as it is now. ``merged``: there was one before, which this was merged into."""

    entry: Blocked
    merged: bool


class BlocklistGateway(Protocol):
    """Implemented by the JobManager, faked in tests."""

    async def blocklist_problem(self) -> str:
        """Why the list is not known at present, in words; empty when it is."""

    async def blocklist(self) -> Blocklist:
        """The whole list. Raises RetryLater: it is not known."""

    async def block(self, entry: Blocked, *, merge: bool, keep_drivers: bool = False) -> Blocking:
        """Add an entry, durably; from its answer on nothing new is decided for that place. ``keep_drivers``: where it
        is merged into one that evacuates, that one says what becomes of drivers.

        Raises AlreadyBlocked (there is one, and ``merge`` is false), BlocklistFull, RetryLater, UnknownOutcome, Fatal.
        """

    async def unblock(self, place: Place) -> None:
        """Remove an entry, durably. Raises NotBlocked, RetryLater, UnknownOutcome, Fatal."""
