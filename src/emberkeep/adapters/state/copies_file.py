"""The file of a local copy: the state file's bytes, then its snapshot record.

```
bytes | record header, payload (JSON) | length of the record, 8 hex digits and a line feed
```

Only the last record counts: a copy that is renamed gets a new record at its end. A file that does not end in a
sound record is not a copy, whether it was torn, altered or cut off. Each block is checked when it is read.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import google_crc32c
import msgspec

from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Fatal, Unavailable
from emberkeep.base.files.durable import decode_record, encode_record
from emberkeep.local_state.errors import DamagedCopy
from emberkeep.local_state.model import CopyRecord

BLOCK_BYTES = 256 * 1024
_KIND = "local-copy"
_VERSION = 1
_FOOTER_BYTES = 9
_GUESS_BYTES = 4096  # read from the end at first: enough for the footer and the record of most files


def encode_end(record: CopyRecord) -> bytes:
    """Return the record and footer to append to a file's bytes, which makes the file a copy."""
    encoded = encode_record(_KIND, _VERSION, msgspec.json.encode(record))
    return encoded + b"%08x\n" % len(encoded)


def read_end(file: int, where: str) -> CopyRecord:
    """Return the snapshot record of an open file. Raises DamagedCopy, OSError."""
    size = os.fstat(file).st_size
    end = os.pread(file, min(size, _GUESS_BYTES), max(0, size - _GUESS_BYTES))
    try:
        length = _record_length(end[-_FOOTER_BYTES:], size)
        if len(end) < min(size, length + _FOOTER_BYTES):
            end = os.pread(file, length + _FOOTER_BYTES, size - length - _FOOTER_BYTES)
        payload = decode_record(end[-_FOOTER_BYTES - length : -_FOOTER_BYTES], _KIND, _VERSION, where=where)
        record = from_json(payload, CopyRecord)
    except (ValueError, Fatal, msgspec.MsgspecError) as error:
        reason = error.message if isinstance(error, Fatal) else f"{where}: {error}"
        raise DamagedCopy(f"no valid snapshot record: {reason}") from None
    if record.length > size - length - _FOOTER_BYTES or not _blocks_fit(record):
        raise DamagedCopy(f"{where}: its snapshot record describes other bytes")
    return record


def _record_length(footer: bytes, size: int) -> int:
    """Return the length of the record before the footer of a file of ``size`` bytes. Raises ValueError."""
    length = int(footer, 16)
    if not 0 <= length <= size - _FOOTER_BYTES:
        raise ValueError(f"a record of {length} bytes does not fit into the file")
    return length


def _blocks_fit(record: CopyRecord) -> bool:
    return (
        record.block_size > 0 and record.length >= 0 and len(record.checksums) == -(-record.length // record.block_size)
    )


def verified_pieces(file: int, record: CopyRecord, offset: int, length: int | None, where: str) -> Generator[bytes]:
    """Yield b"" first, then the bytes asked for, from blocks whose checksums are right. Closes ``file`` at the end.

    Raises DamagedCopy, Unavailable.
    """
    try:
        yield b""
        end = record.length if length is None else min(record.length, offset + length)
        while offset < end:
            number = offset // record.block_size
            begin = number * record.block_size
            block = _block(file, begin, min(record.block_size, record.length - begin), where)
            if google_crc32c.value(block) != record.checksums[number]:
                raise DamagedCopy(f"{where}: the checksum of the block at byte {begin} differs")
            piece = block[offset - begin : end - begin]
            offset += len(piece)
            yield piece
    finally:
        os.close(file)


def _block(file: int, begin: int, size: int, where: str) -> bytes:
    try:
        block = os.pread(file, size, begin)
    except OSError as error:
        raise Unavailable(
            f"{where}: cannot be read now at byte {begin}: {error.strerror or error}", hint="check that disk"
        ) from error
    if len(block) != size:
        raise DamagedCopy(f"{where}: ends within the block at byte {begin}")
    return block


class BlockChecksums:
    """Compute the CRC-32C of each block while bytes arrive in pieces of any size."""

    def __init__(self) -> None:
        self.length = 0
        self._complete: list[int] = []
        self._current = 0
        self._room = BLOCK_BYTES  # bytes left in the current block

    def add(self, data: bytes) -> None:
        self.length += len(data)
        while len(data) >= self._room:
            block, data = data[: self._room], data[self._room :]
            self._complete.append(google_crc32c.extend(self._current, block))
            self._current, self._room = 0, BLOCK_BYTES
        if data:
            self._current = google_crc32c.extend(self._current, data)
            self._room -= len(data)

    def values(self) -> tuple[int, ...]:
        return (*self._complete, self._current) if self._room < BLOCK_BYTES else tuple(self._complete)
