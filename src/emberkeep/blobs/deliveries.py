"""Find references of messages that no process will release. Pure.

The sender or the receiver of a message releases its references, unless both processes have died.
"""

from __future__ import annotations

from collections.abc import Iterable

from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobKey

MESSAGE_HOLDER = "message-"  # prefix of the holder names of such references
LONGEST_DELIVERY = 3600.0  # seconds; a living sender releases its references after a fraction of that

Reference = tuple[JobId, BlobKey, str]


class Deliveries:
    """When each reference of a message was first seen."""

    def __init__(self) -> None:
        self._seen: dict[Reference, float] = {}

    def overdue(self, present: Iterable[Reference], now: float) -> list[Reference]:
        """Return those of the ``present`` message references that have existed for too long at ``now`` (seconds)."""
        messages = (reference for reference in present if reference[2].startswith(MESSAGE_HOLDER))
        self._seen = {reference: self._seen.get(reference, now) for reference in messages}
        return [reference for reference, since in self._seen.items() if now - since >= LONGEST_DELIVERY]
