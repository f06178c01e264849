"""What the blocklist refuses."""

from __future__ import annotations

from emberkeep.base.errors import Absent, Conflict, RetryLater


class AlreadyBlocked(Conflict):
    """There is an entry, and the caller did not ask to merge."""


class NotBlocked(Absent):
    """There is no such entry."""


class BlocklistFull(RetryLater):
    """The list would grow beyond what a store and a message are to carry. Nothing has changed."""
