"""Errors of the blocklist."""

from __future__ import annotations

from emberkeep.base.errors import Absent, Conflict, RetryLater


class AlreadyBlocked(Conflict):
    """An entry for the place exists, and the caller did not ask to merge."""


class NotBlocked(Absent):
    """The blocklist has no entry for the place."""


class BlocklistFull(RetryLater):
    """The list would exceed what a store or a message can hold. Nothing has changed."""
