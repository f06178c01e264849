"""The written form of a job's progress: compressed JSON, in a record with a checksum. Pure."""

from __future__ import annotations

import zlib

import msgspec

from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Damaged
from emberkeep.base.files.compressed import decompress
from emberkeep.base.files.durable import decode_record, encode_record
from emberkeep.jobs.progress.kept_progress import KeptProgress

KIND, VERSION = "progress-history", 1
MOST_BYTES = 64 * 1024**2  # uncompressed


def encode_progress(kept: KeptProgress) -> bytes:
    """Return what is kept as a self-checking record."""
    return encode_record(KIND, VERSION, zlib.compress(msgspec.json.encode(kept)))


def decode_progress(data: bytes, *, where: str) -> KeptProgress:
    """Return what a record keeps. Raises Damaged, NewerFormat, Fatal, each naming ``where``."""
    payload = decode_record(data, KIND, VERSION, where=where)
    text = decompress(payload, MOST_BYTES, where=where)
    try:
        written = from_json(text, KeptProgress)
    except msgspec.DecodeError as error:
        raise Damaged(f"{where}: not a progress history: {error}") from error
    if written.course is not None and not written.course.is_well_formed:
        raise Damaged(f"{where}: not the course of a job")
    return msgspec.structs.replace(written, queries=tuple(query for query in written.queries if query.records))
