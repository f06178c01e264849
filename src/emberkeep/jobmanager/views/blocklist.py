"""What the edges may ask of the cluster's blocklist."""

from __future__ import annotations

from typing import Protocol

import msgspec

from emberkeep.blocklist.model import Blocked, Blocklist, Place


class Blocking(msgspec.Struct, frozen=True, kw_only=True):
    """The entry as it is now. ``merged``: the place was listed before, and the new entry was merged into that one."""

    entry: Blocked
    merged: bool


class BlocklistGateway(Protocol):
    """The blocklist, as the edges use it. Implemented by the JobManager, faked in tests."""

    async def blocklist_problem(self) -> str:
        """Return a text that says why the list cannot be read now; "" if it can."""

    async def blocklist(self) -> Blocklist:
        """Return the whole list. Raises RetryLater if it cannot be read."""

    async def block(self, entry: Blocked, *, merge: bool, keep_drivers: bool = False) -> Blocking:
        """Add an entry durably. Once this returns, nothing new is decided for that place.

        ``keep_drivers``: if the existing entry evacuates, its rule for drivers stays. Raises AlreadyBlocked (the place
        is listed and ``merge`` is False), BlocklistFull, RetryLater, UnknownOutcome, Fatal.
        """

    async def unblock(self, place: Place) -> None:
        """Remove an entry durably. Raises NotBlocked, RetryLater, UnknownOutcome, Fatal."""
