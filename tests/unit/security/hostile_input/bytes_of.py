"""Hostile bytes for whatever decodes what another process has sent or stored."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, get_type_hints

import msgspec
from hypothesis import strategies as st

DEPTH = 2_000  # more than Python's stack allows

NESTED_JSON = (
    b"[" * DEPTH,
    b'{"a":' * DEPTH,
    b'{"unknown":' + b"[" * DEPTH + b"]" * DEPTH + b"}",
)
NESTED_MSGPACK = (
    b"\x91" * DEPTH,
    b"\x81\xa1a" * DEPTH,
    b"\x81\xa7unknown" + b"\x91" * DEPTH + b"\xc0",
)
LYING_MSGPACK = (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xc9\xff\xff\xff\xff\x01")
_JSON_TOKENS = (
    *(b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"null", b"true", b"-", b"0"),
    *(b"9" * 400, b"1e400", b"-1e999999999", b"NaN", b"Infinity", b"1.5", b"-1", b"18446744073709551616"),
    *(b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\u0000"', b'"\xff"', b'"\xed\xa0\x80"', b"\xef\xbb\xbf", b"\0", b"\xff"),
)
_MSGPACK_TOKENS = (
    *LYING_MSGPACK,
    *(b"\xc0", b"\xc1", b"\xc2", b"\x80", b"\x90", b"\xa0", b"\xa1\xff", b"\xa3\xed\xa0\x80", b"\xff", b"\x7f"),
    *(b"\xcb\x7f\xf8" + bytes(6), b"\xcb\x7f\xf0" + bytes(6), b"\xcf" + b"\xff" * 8, b"\xd3\x80" + bytes(7)),
    *(b"\xd6\xff" + bytes(4), b"\xc7\x0c\xff" + b"\xff" * 12, b"\xc4\x00", b"\x81\x81\x01\x02\x03", b"\x81\xc0\xc0"),
)

# Values that msgspec encodes, of which few fit a declared field.
_VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["\0", "..", "../../etc/passwd", "/", "a" * 5000, "\u202e", "p-" + "0" * 64, "0" * 32, "[::1]:1"])
    | st.binary(max_size=20)
)
_NESTED = st.recursive(
    _VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


def damaged(samples: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Sound encodings that were truncated, bit-flipped, extended, or mixed with another."""

    @st.composite
    def draw(draw: st.DrawFn) -> bytes:
        data = bytearray(draw(st.sampled_from(samples)))
        for _ in range(draw(st.integers(1, 4))):
            place = draw(st.integers(0, len(data)))
            match draw(st.sampled_from(["flip", "cut", "insert", "drop", "mix"])):
                case "flip" if place < len(data):
                    data[place] ^= 1 << draw(st.integers(0, 7))
                case "cut":
                    del data[place:]
                case "insert":
                    data[place:place] = draw(st.sampled_from(_JSON_TOKENS + _MSGPACK_TOKENS) | st.binary(max_size=9))
                case "drop":
                    del data[place : place + draw(st.integers(1, 20))]
                case _:
                    data[place:] = draw(st.sampled_from(samples))[place:]
        return bytes(data)

    return draw()


def json_bytes(samples: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Hostile JSON in place of the ``samples``."""
    made = st.lists(st.sampled_from(_JSON_TOKENS), max_size=12).map(b"".join)
    return damaged(samples) | made | st.sampled_from(NESTED_JSON) | st.binary(max_size=64)


def msgpack_bytes(samples: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Hostile MessagePack in place of the ``samples``."""
    made = st.lists(st.sampled_from(_MSGPACK_TOKENS), max_size=12).map(b"".join)
    return damaged(samples) | made | st.sampled_from(NESTED_MSGPACK) | st.binary(max_size=64)


@functools.cache
def fields_of(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Names of the fields as they are sent."""
    return tuple(field.encode_name for field in msgspec.structs.fields(kind))


def structured(kind: type[msgspec.Struct]) -> st.SearchStrategy[dict[str, Any]]:
    """A map with the fields of ``kind``, each either of its type or not, or missing, and unknown ones."""
    types = get_type_hints(kind, include_extras=True)
    fields = {field.encode_name: _of(types[field.name]) | _NESTED for field in msgspec.structs.fields(kind)}
    return st.fixed_dictionaries({}, optional={**fields, "unknown": _NESTED})


def _of(declared: Any) -> st.SearchStrategy[Any]:
    """Values of the simple declared types; anything for the others."""
    origin = getattr(declared, "__supertype__", declared)
    simple: dict[Any, st.SearchStrategy[Any]] = {
        int: st.sampled_from([-1, 0, 1, 2**31, 2**63 - 1, -(2**63)]),
        float: st.sampled_from([float("nan"), float("inf"), -1.0, 0.0, 1e308, 5e-324]),
        str: st.sampled_from(["", "\0", "..", "/", "0" * 32, "127.0.0.1:1", "a" * 3000, "\u202e"]),
        bool: st.booleans(),
        bytes: st.binary(max_size=20),
    }
    return simple.get(origin, _NESTED)
