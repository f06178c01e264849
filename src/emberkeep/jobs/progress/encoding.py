"""The written form of a job's progress history: compressed JSON, in a record with a checksum. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Damaged
from emberkeep.base.files.compressed import decompress
from emberkeep.base.files.durable import decode_record, encode_record
from emberkeep.jobs.progress.history import QueryHistory

KIND, VERSION = "progress-history", 1
MOST_BYTES = 64 * 1024**2  # uncompressed


class _Written(Compatible, frozen=True, kw_only=True):
    queries: tuple[QueryHistory, ...]


def encode_history(queries: Iterable[QueryHistory]) -> bytes:
    """Return the histories as a self-checking record."""
    return encode_record(KIND, VERSION, zlib.compress(msgspec.json.encode(_Written(queries=tuple(queries)))))


def decode_history(data: bytes, *, where: str) -> tuple[QueryHistory, ...]:
    """Return the histories in a record. Raises Damaged, NewerFormat, Fatal, each naming ``where``."""
    payload = decode_record(data, KIND, VERSION, where=where)
    text = decompress(payload, MOST_BYTES, where=where)
    try:
        written = from_json(text, _Written)
    except msgspec.DecodeError as error:
        raise Damaged(f"{where}: not a progress history: {error}") from error
    return tuple(query for query in written.queries if query.records)
