"""The state of a user function as bytes that name their own kind; never pickle."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Fatal, InvalidInput

_BYTES, _JSON = b"b", b"j"
_WITH_INFINITIES = b"i"  # JSON that also has NaN, Infinity and -Infinity, which Python writes and reads


def encode_state(name: str, state: Any) -> bytes:
    """Encode a user function's state. Raises InvalidInput if it is neither bytes nor representable in JSON."""
    if isinstance(state, bytes | bytearray | memoryview):
        return _BYTES + bytes(state)
    try:
        data = msgspec.json.encode(state)
        if b"null" in data and _has_infinities(plain := msgspec.to_builtins(state, str_keys=True)):
            return _WITH_INFINITIES + json.dumps(plain).encode()
        return _JSON + data
    except (TypeError, UnicodeEncodeError, RecursionError, msgspec.EncodeError) as error:
        raise InvalidInput(
            f"snapshot_state of {name} returned a {type(state).__name__}: {error}",
            hint="return bytes or a value that JSON can represent",
        ) from error


def decode_state(name: str, state: bytes) -> Any:
    """Return what ``snapshot_state`` returned. Raises Fatal if the bytes are damaged or of an unknown kind."""
    kind, rest = state[:1], state[1:]
    if kind == _BYTES:
        return rest
    if kind == _JSON:
        try:
            return from_json(rest, Any)
        except msgspec.DecodeError as error:
            raise Fatal(f"the state of {name} in the savepoint is damaged: {error}") from None
    if kind == _WITH_INFINITIES:
        try:
            return json.loads(rest)
        except (ValueError, RecursionError) as error:
            raise Fatal(f"the state of {name} in the savepoint is damaged: {error}") from None
    raise Fatal(f"the state of {name} in the savepoint is of an unknown kind ({kind!r})")


def _has_infinities(plain: Any) -> bool:
    """True if a value has a float that msgspec writes as null. ``plain``: dictionaries, lists and simple values."""
    ahead = [plain]
    while ahead:
        value = ahead.pop()
        if isinstance(value, float) and not math.isfinite(value):
            return True
        if isinstance(value, dict):
            ahead += value.values()
        elif isinstance(value, list | tuple):
            ahead += value
    return False
