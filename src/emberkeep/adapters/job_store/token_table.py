"""The named tokens in the embedded store's file: at most one row."""

from __future__ import annotations

from emberkeep.adapters.job_store.fenced_file import FencedFile
from emberkeep.adapters.job_store.records import decode_tokens, encode_tokens
from emberkeep.identities.model import NamedTokens


class TokenTable:
    """Table of the tokens. Its methods are those of TokenStore."""

    def __init__(self, file: FencedFile) -> None:
        self._file = file

    def read(self) -> NamedTokens:
        data = self._stored()
        return NamedTokens() if data is None else self._decode(data)

    def record(self, tokens: NamedTokens) -> None:
        with self._file.leading() as connection:
            before = self._stored()
            if before is not None:
                self._decode(before)
            connection.execute("INSERT OR REPLACE INTO tokens VALUES (1, ?)", (encode_tokens(tokens, before),))

    def _stored(self) -> bytes | None:
        rows: list[tuple[bytes]] = self._file.read("SELECT list FROM tokens")
        return rows[0][0] if rows else None

    def _decode(self, data: bytes) -> NamedTokens:
        return decode_tokens(data, where=f"{self._file.path}, tokens")
