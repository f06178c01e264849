"""Compressed content of records, which is read up to a bound. Pure."""

from __future__ import annotations

import zlib

from emberkeep.base.errors import Damaged

_MIB = 1024**2


def decompress(payload: bytes, most_bytes: int, *, where: str) -> bytes:
    """Return the content of ``payload``, which zlib has compressed. Raises Damaged, which names ``where``.

    ``most_bytes``: of the content, because a few bytes can be compressed from any number.
    """
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(payload, most_bytes)
    except zlib.error as error:
        raise Damaged(f"{where}: it cannot be decompressed: {error}") from error
    if not unpacking.eof:
        raise Damaged(f"{where}: it has more than {most_bytes // _MIB} MiB, or ends too early")
    return content
