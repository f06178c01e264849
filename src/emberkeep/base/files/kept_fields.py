"""Keeps what a newer release has written in a record that this release changes and writes again.

A field that this release does not know is gone once the record has been decoded. So whoever writes a record again
passes the payload that it was read from.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.errors import Fatal, NewerFormat
from emberkeep.base.files.durable import decode_record, encode_record


def encode_over(kind: str, version: int, value: Compatible, over: bytes | None) -> bytes:
    """The record of ``value``, with what a newer release had added to the record ``over``. Raises NewerFormat.

    A damaged record holds nothing to keep. Nor does one of an older version: no newer release has written it.
    """
    try:
        read = None if over is None else decode_record(over, kind, version, where="the record that is replaced")
        return encode_record(kind, version, encode_kept(value, read))
    except NewerFormat:
        raise
    except (Fatal, msgspec.MsgspecError):
        return encode_record(kind, version, msgspec.json.encode(value))


def encode_kept(value: Compatible, read: bytes | None, *, within: Container[str] = ()) -> bytes:
    """Encode ``value`` as JSON, together with the fields of ``read`` that its type does not know.

    ``read``: payload that the record had before; None when there was none. An object or a list's element inside keeps
    its unknown fields while everything known of it stays the same, and loses them when it changes: what they say may
    hold no more. Fields named in ``within`` hold one object that goes on when it changes, as the record itself does.
    Raises msgspec.MsgspecError when ``read`` is no record of that type.
    """
    encoded = msgspec.json.encode(value)
    if read is None:
        return encoded
    before = msgspec.json.decode(read)
    known = msgspec.json.decode(msgspec.json.encode(msgspec.json.decode(read, type=type(value))))
    if before == known:
        return encoded
    return msgspec.json.encode(_kept(before, known, msgspec.json.decode(encoded), within))


def _kept(before: dict[str, Any], known: dict[str, Any], new: dict[str, Any], within: Container[str]) -> dict[str, Any]:
    merged = dict(new)
    for name, value in before.items():
        if name not in known:
            merged.setdefault(name, value)
        elif name not in new:
            continue
        elif name in within and isinstance(value, dict):
            merged[name] = _kept(value, known[name], new[name], within)
        elif known[name] == new[name]:
            merged[name] = value
        elif isinstance(value, list) and isinstance(new[name], list):
            unchanged = list(zip(known[name], value, strict=True))
            merged[name] = [next((old for kept, old in unchanged if kept == each), each) for each in new[name]]
    return merged
