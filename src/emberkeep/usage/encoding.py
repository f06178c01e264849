"""The written form of all histories: compressed JSON, in a record with a checksum. Pure."""

from __future__ import annotations

import zlib

import msgspec

from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Damaged
from emberkeep.base.files.compressed import decompress
from emberkeep.base.files.durable import decode_record, encode_record
from emberkeep.usage.histories import KeptHistories
from emberkeep.usage.history import is_well_formed

KIND, VERSION = "usage-history", 1
MOST_BYTES = 64 * 1024**2  # uncompressed


def encode_usage(histories: KeptHistories) -> bytes:
    """Return the histories as a self-checking record."""
    return encode_record(KIND, VERSION, zlib.compress(msgspec.json.encode(histories), level=1))


def decode_usage(data: bytes, *, where: str) -> KeptHistories:
    """Return the histories in a record. Raises Damaged, NewerFormat, Fatal, each naming ``where``."""
    payload = decode_record(data, KIND, VERSION, where=where)
    text = decompress(payload, MOST_BYTES, where=where)
    try:
        written = from_json(text, KeptHistories)
    except msgspec.DecodeError as error:
        raise Damaged(f"{where}: not a history of task managers: {error}") from error
    histories = [*written.task_managers.values(), *filter(None, [written.cluster])]
    if not all(is_well_formed(samples) for one in histories for samples in (one.samples, one.earlier)):
        raise Damaged(f"{where}: samples are not in order")
    return written
