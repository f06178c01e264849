"""Decode bytes that another process has sent or stored.

Such bytes may have been made to do harm. msgspec raises a DecodeError for most malformed input, but a
UnicodeDecodeError for text that is not UTF-8 and a RecursionError for nesting that is too deep. Callers that handle
DecodeError alone would fail with the other two, so everything that is received or read is decoded here.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


def from_json(data: bytes | bytearray | str, kind: type[T]) -> T:
    """Decode JSON as ``kind``. Raises msgspec.DecodeError, and nothing else, if the data is not such a value."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (UnicodeDecodeError, RecursionError) as error:
        raise _malformed(error) from None


def from_msgpack(data: bytes, kind: type[T]) -> T:
    """Decode MessagePack as ``kind``. Raises msgspec.DecodeError, and nothing else, if the data is not such a value."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (UnicodeDecodeError, RecursionError) as error:
        raise _malformed(error) from None


def _malformed(error: UnicodeDecodeError | RecursionError) -> msgspec.DecodeError:
    if isinstance(error, RecursionError):
        return msgspec.DecodeError("it is nested too deeply")
    return msgspec.DecodeError("it contains text that is not UTF-8")
