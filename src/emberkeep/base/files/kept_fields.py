"""Keep fields that a newer release has added to a record when this release changes the record and writes it again.

Decoding drops the fields that this release does not know. So a process that writes a record again passes the payload
that the record was read from.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Fatal, NewerFormat
from emberkeep.base.files.durable import decode_record, encode_record


def encode_over(kind: str, version: int, value: Compatible, over: bytes | None) -> bytes:
    """Return the record of ``value``, with the fields that a newer release added to the record ``over``.

    Neither a damaged record nor one of an older version has fields to keep: no newer release wrote it. Raises
    NewerFormat.
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

    ``read``: payload that the record had before; None if there was none. A nested object or list element keeps its
    unknown fields while its known fields stay the same. It loses them when it changes, because they may no longer be
    true. Fields named in ``within`` hold one object that keeps its unknown fields even when it changes, as the record
    itself does. Raises msgspec.MsgspecError if ``read`` is not a record of that type.
    """
    encoded = msgspec.json.encode(value)
    if read is None:
        return encoded
    before = from_json(read, dict[str, Any])
    known = msgspec.json.decode(msgspec.json.encode(from_json(read, type(value))))
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
