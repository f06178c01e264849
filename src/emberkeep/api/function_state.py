"""The state of a user function as bytes that name their own kind; never pickle."""

from __future__ import annotations

from typing import Any

import msgspec

from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Fatal, InvalidInput

_BYTES, _JSON = b"b", b"j"


def encode_state(name: str, state: Any) -> bytes:
    """Encode a user function's state. Raises InvalidInput if it is neither bytes nor representable in JSON."""
    if isinstance(state, bytes | bytearray | memoryview):
        return _BYTES + bytes(state)
    try:
        return _JSON + msgspec.json.encode(state)
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
    raise Fatal(f"the state of {name} in the savepoint is of an unknown kind ({kind!r})")
