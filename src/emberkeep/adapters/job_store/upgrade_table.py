"""The records of upgrades in the embedded store's file: one row each."""

from __future__ import annotations

import structlog

from emberkeep.adapters.job_store.fenced_file import FencedFile
from emberkeep.adapters.job_store.records import decode_upgrade, encode_upgrade
from emberkeep.base.errors import Fatal, NewerFormat
from emberkeep.jobs.upgrades.model import Upgrade

_log = structlog.get_logger(__name__)


class UpgradeTable:
    """Table of upgrades. Its methods are those of UpgradeStore."""

    def __init__(self, file: FencedFile) -> None:
        self._file = file

    def record(self, upgrade: Upgrade) -> None:
        with self._file.leading() as connection:
            rows = self._file.read("SELECT record FROM upgrades WHERE upgrade_id = ?", upgrade.upgrade_id)
            data = encode_upgrade(upgrade, rows[0][0] if rows else None)
            connection.execute(
                "INSERT INTO upgrades (upgrade_id, record) VALUES (?, ?) "
                "ON CONFLICT (upgrade_id) DO UPDATE SET record = excluded.record",
                (upgrade.upgrade_id, data),
            )

    def read(self) -> list[Upgrade]:
        found = []
        for upgrade_id, data in self._file.read("SELECT upgrade_id, record FROM upgrades"):
            try:
                found.append(decode_upgrade(data, where=self._file.where("upgrade", upgrade_id)))
            except NewerFormat:
                raise
            except Fatal as error:
                _log.error("upgrade_unreadable", upgrade=upgrade_id, reason=str(error))
        return sorted(found, key=lambda each: (each.began_ms, each.upgrade_id))

    def remove(self, upgrade_ids: tuple[str, ...]) -> None:
        with self._file.leading() as connection:
            connection.executemany("DELETE FROM upgrades WHERE upgrade_id = ?", [(each,) for each in upgrade_ids])
