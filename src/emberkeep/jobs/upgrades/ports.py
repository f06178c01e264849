"""The port through which upgrades are stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

import msgspec

from emberkeep.jobs.upgrades.model import Upgrade

UPGRADE_BYTES: Final = 512 * 1024  # of one record as JSON, so that it fits into a node of ZooKeeper


def record_size(upgrade: Upgrade) -> int:
    """Return the number of bytes of a record as JSON."""
    return len(msgspec.json.encode(upgrade))


class UpgradeStore(Protocol):
    """The records of upgrades. Each write raises Conflict once a newer leader has opened the store."""

    async def record_upgrade(self, upgrade: Upgrade) -> None:
        """Write the record, replacing the previous one of this upgrade. Idempotent."""

    async def upgrades(self) -> list[Upgrade]:
        """Return all upgrades, the oldest first. Damaged records are left out, and stay. Raises NewerFormat."""

    async def remove_upgrades(self, upgrade_ids: Iterable[str]) -> None:
        """Remove these records, if they exist."""
