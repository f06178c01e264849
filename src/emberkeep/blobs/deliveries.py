"""References of messages that nobody will end any more: sender or receiver end them, unless both have died. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobKey

MESSAGE_HOLDER = "message-"  # what the names of such references begin with
LONGEST_DELIVERY = 3600.0  # seconds; a sender that lives ends its references after a fraction of that

Reference = tuple[JobId, BlobKey, str]


class Deliveries:
    """Since when each of these references has been seen."""

    def __init__(self) -> None:
        self._seen: dict[Reference, float] = {}

    def overdue(self, present: Iterable[Reference], now: float) -> list[Reference]:
        """Those of the present references that have been there for too long at ``now`` (seconds)."""
        messages = (reference for reference in present if reference[2].startswith(MESSAGE_HOLDER))
        self._seen = {reference: self._seen.get(reference, now) for reference in messages}
        return [reference for reference, since in self._seen.items() if now - since >= LONGEST_DELIVERY]
