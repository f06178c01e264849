"""The format of a segment: pieces of one log, one after the other. Each has a header and a checksum of its own.

So an index of the pieces is always part of them: it is read from the segments and cannot contradict them. A piece that
was not written completely, or that is damaged, is passed over; the pieces after it are found by their first bytes.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from typing import Final

import google_crc32c
import msgspec

from emberkeep.base.errors import Damaged, InvalidInput, NewerFormat
from emberkeep.kept_logs.model import MOST_STORED_BYTES, PIECE_BYTES, LogPiece, PieceHeader

MAGIC: Final = b"EKlp"
VERSION: Final = 1
_PREFIX: Final = struct.Struct(">4sHHI")  # first bytes, version, size of the header, size of the data
_CHECKSUM: Final = struct.Struct(">I")  # CRC-32C of the prefix, and of header and data, which follow
_MOST_HEADER: Final = 4096


class StoredPiece(msgspec.Struct, frozen=True):
    """A piece in a segment: its data are ``size`` bytes from ``at`` on."""

    header: PieceHeader
    at: int
    size: int


class Scanned(msgspec.Struct, frozen=True):
    """The readable pieces of a segment. ``end``: where the last one ends. ``damaged``: other bytes are there, too."""

    pieces: tuple[StoredPiece, ...]
    end: int
    damaged: bool


def compress(data: bytes) -> bytes:
    return zlib.compress(data, 6)


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def encode_piece(piece: LogPiece) -> bytes:
    header = msgspec.msgpack.encode(piece.header)
    prefix, body = _PREFIX.pack(MAGIC, VERSION, len(header), len(piece.data)), header + piece.data
    return prefix + _CHECKSUM.pack(google_crc32c.value(prefix + body)) + body


def scan_segment(content: bytes, where: str) -> Scanned:
    """Return the pieces in a segment. Raises NewerFormat if a newer release has written one of them."""
    pieces, end, at = [], 0, content.find(MAGIC)
    damaged = at > 0 or (at < 0 and bool(content))
    while at >= 0:
        piece = _piece_at(content, at, where)
        if piece is None:
            damaged = True
            at = content.find(MAGIC, at + 1)
            continue
        damaged = damaged or at != end
        pieces.append(piece)
        end = piece.at + piece.size
        at = content.find(MAGIC, end)
    return Scanned(tuple(pieces), end, damaged or end != len(content))


def _piece_at(content: bytes, at: int, where: str) -> StoredPiece | None:
    begin = at + _PREFIX.size + _CHECKSUM.size
    if begin > len(content):
        return None
    _, version, header_size, data_size = _PREFIX.unpack_from(content, at)
    (checksum,) = _CHECKSUM.unpack_from(content, at + _PREFIX.size)
    body = content[begin : begin + header_size + data_size]
    if header_size > _MOST_HEADER or data_size > MOST_STORED_BYTES or len(body) < header_size + data_size:
        return None
    if google_crc32c.value(content[at : at + _PREFIX.size] + body) != checksum:
        return None
    if version > VERSION:
        raise NewerFormat(
            f"{where}: a newer release has written pieces of this log (format {version})",
            hint="read it with that release",
        )
    try:
        header = msgspec.msgpack.decode(body[:header_size], type=PieceHeader)
    except msgspec.DecodeError:
        return None
    return StoredPiece(header, begin + header_size, data_size)


def decompress(data: bytes, header: PieceHeader, where: str) -> bytes:
    """Return a piece's bytes, checked. Raises Damaged."""
    if header.size > PIECE_BYTES:
        raise Damaged(f"{where}: a piece claims to have {header.size} bytes")
    try:
        plain = zlib.decompressobj().decompress(data, header.size + 1) if data else b""
    except zlib.error as error:
        raise Damaged(f"{where}: a piece of the log cannot be decompressed: {error}") from error
    if len(plain) != header.size or digest_of(plain) != header.digest:
        raise Damaged(f"{where}: a piece of the log is damaged")
    return plain


def check_piece(piece: LogPiece) -> None:
    """Raise InvalidInput unless the piece is whole."""
    piece.check()
    try:
        decompress(piece.data, piece.header, "the received piece")
    except Damaged as error:
        raise InvalidInput(error.message) from error
