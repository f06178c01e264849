"""The stored form of occurrences: one line each, with a version and a checksum.

A line that is torn, changed or written by a newer release is left out when it is read, and the others are still
readable. A stream that is shortened keeps its lines as they are, those of newer releases included.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import google_crc32c
import msgspec

from emberkeep.base.decoding import from_json
from emberkeep.chronicle.occurrence import MINOR, Occurrence

VERSION: Final = 1

_encoder = msgspec.json.Encoder()


def encode_line(occurrence: Occurrence) -> bytes:
    """Return the line of an occurrence, with its newline."""
    payload = _encoder.encode(occurrence)
    return b"%d %08x %s\n" % (VERSION, google_crc32c.value(payload), payload)


def decode_line(line: bytes) -> Occurrence | None:
    """Return the occurrence in a line; None if the line is damaged or of a newer version."""
    version, _, rest = line.rstrip(b"\n").partition(b" ")
    checksum, _, payload = rest.partition(b" ")
    if version != b"%d" % VERSION or checksum != b"%08x" % google_crc32c.value(payload):
        return None
    try:
        return from_json(payload, Occurrence)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def decode_lines(data: bytes) -> list[Occurrence]:
    """Return the readable occurrences of a file, in their order."""
    return [each for each in map(decode_line, data.split(b"\n")) if each is not None]


def kept_lines(lines: Sequence[bytes], most: int) -> list[bytes]:
    """Return the newest ``most`` lines, in their order. At most half of them are of the types in MINOR."""
    kept: list[bytes] = []
    minor = 0
    for line in reversed(lines):
        if len(kept) == most:
            break
        occurrence = decode_line(line)
        if occurrence is not None and occurrence.what in MINOR:
            minor += 1
            if minor > most // 2:
                continue
        kept.append(line)
    return kept[::-1]


def in_order(occurrences: Iterable[Occurrence]) -> list[Occurrence]:
    """Return the occurrences by id, each once."""
    found = {each.id: each for each in occurrences}
    return [found[key] for key in sorted(found)]
