"""Byte ranges of a log as users write them: ``1000-1999``, ``1000-``, ``-1000``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from emberkeep.base.errors import InvalidInput

BYTE_RANGE = "^([0-9]{1,15}-[0-9]{0,15}|-[0-9]{1,15})?$"  # "" means that no range is given

_RANGE = re.compile(r"([0-9]{1,15})-([0-9]{0,15})|-([0-9]{1,15})")


@dataclass(frozen=True)
class ByteRange:
    """A range of bytes.

    ``offset``: the first byte; if negative, that many bytes before the end. ``count``: number of bytes; None: up to the
    end.
    """

    offset: int
    count: int | None


def parse_byte_range(text: str) -> ByteRange:
    """Parse a range: ``A-B`` (bytes A to B, both included), ``A-`` or ``-N`` (the last N bytes).

    Raises InvalidInput (field ``range``).
    """
    match = _RANGE.fullmatch(text)
    if match is None:
        raise _invalid(text)
    first, last, suffix = match.groups()
    if suffix is not None:
        if int(suffix) == 0:
            raise _invalid(text)
        return ByteRange(-int(suffix), int(suffix))
    if not last:
        return ByteRange(int(first), None)
    if int(last) < int(first):
        raise _invalid(text)
    return ByteRange(int(first), int(last) - int(first) + 1)


def _invalid(text: str) -> InvalidInput:
    return InvalidInput(
        f"{text[:64]!r} is not a byte range",
        field="range",
        hint="give the first and last byte, such as 1000-1999; 1000- for the rest; -1000 for the last 1000",
    )
