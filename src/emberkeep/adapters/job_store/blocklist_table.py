"""The blocklist in the embedded store's file: at most one row."""

from __future__ import annotations

from emberkeep.adapters.job_store.fenced_file import FencedFile
from emberkeep.adapters.job_store.records import decode_blocklist, encode_blocklist
from emberkeep.base.errors import Fatal
from emberkeep.blocklist.model import Blocklist

BLOCKLIST_KEPT = "blocklist"  # instead of a job id: the row of ``damaged`` that keeps an unreadable blocklist


class BlocklistTable:
    """Table of the blocklist. ``read`` and ``record`` are ``blocklist`` and ``record_blocklist`` of JobStore."""

    def __init__(self, file: FencedFile) -> None:
        self._file = file

    def read(self) -> Blocklist:
        data = self._stored()
        return Blocklist() if data is None else decode_blocklist(data, where=f"{self._file.path}, blocklist")

    def record(self, blocklist: Blocklist) -> None:
        """Replace the blocklist. If the stored one cannot be read, keep a copy of it for inspection."""
        with self._file.leading() as connection:
            before = self._stored()
            if before is not None and not _is_readable(before):
                connection.execute("INSERT OR IGNORE INTO damaged VALUES (?, ?, ?)", (BLOCKLIST_KEPT, before, b""))
            data = encode_blocklist(blocklist, before)
            connection.execute("INSERT OR REPLACE INTO blocklist VALUES (1, ?)", (data,))

    def _stored(self) -> bytes | None:
        rows: list[tuple[bytes]] = self._file.read("SELECT list FROM blocklist")
        return rows[0][0] if rows else None


def _is_readable(blocklist: bytes) -> bool:
    try:
        decode_blocklist(blocklist, where="the blocklist")
    except Fatal:
        return False
    return True
