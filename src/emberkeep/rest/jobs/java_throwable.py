"""A failure as Flink's client reads it: an object of its class ``SerializedThrowable`` in Java's serialization format.

The client reads nothing else from a ``failure-cause``, and polls forever if the object is missing. This module writes
the few bytes that mean "an exception with this text". It never reads such objects.
"""

from __future__ import annotations

import struct
from typing import Final

MOST_CHARACTERS: Final = 10_000  # per text: the format has 16 bits for the length in bytes

_MAGIC: Final = b"\xac\xed\x00\x05"
_NULL, _OBJECT, _CLASS, _STRING, _END = b"\x70", b"\x73", b"\x72", b"\x74", b"\x78"
_SERIALIZABLE, _WITH_DATA = 2, 3  # flags of a class that writes only its fields, and of one with its own writeObject
_TEXT: Final = "Ljava/lang/String;"
# Name, serialVersionUID, flags, and the fields in the format's order.
_CLASSES: Final = (
    (
        "org.apache.flink.util.SerializedThrowable",
        7284183123441947635,
        _SERIALIZABLE,
        (("fullStringifiedStackTrace", _TEXT), ("originalErrorClassName", _TEXT), ("serializedException", "[B")),
    ),
    ("java.lang.Exception", -3387516993124229948, _SERIALIZABLE, ()),
    (
        "java.lang.Throwable",
        -3042686055658047285,
        _WITH_DATA,
        (
            ("cause", "Ljava/lang/Throwable;"),
            ("detailMessage", _TEXT),
            ("stackTrace", "[Ljava/lang/StackTraceElement;"),
            ("suppressedExceptions", "Ljava/util/List;"),
        ),
    ),
)


def serialized_throwable(kind: str, text: str) -> bytes:
    """Return a serialized exception of original class ``kind`` that shows ``text``, both cut to MOST_CHARACTERS."""
    described = b"".join(_class(*each) for each in _CLASSES) + _NULL
    throwable = _NULL + _string(text) + _NULL + _NULL + _END
    own = _string(text) + _string(kind) + _NULL
    return _MAGIC + _OBJECT + described + throwable + own


def _class(name: str, version: int, flags: int, fields: tuple[tuple[str, str], ...]) -> bytes:
    described = b"".join(kind[:1].encode() + _utf(field) + _string(kind) for field, kind in fields)
    return _CLASS + _utf(name) + struct.pack(">qBH", version, flags, len(fields)) + described + _END


def _string(text: str) -> bytes:
    return _STRING + _utf(text[:MOST_CHARACTERS])


def _utf(text: str) -> bytes:
    """Return a length prefix and Java's modified UTF-8: surrogates are encoded one by one, NUL as two bytes."""
    halves = text.encode("utf-16-be", "surrogatepass")
    units = (chr(unit) for (unit,) in struct.iter_unpack(">H", halves))
    data = b"".join(b"\xc0\x80" if unit == "\0" else unit.encode("utf-8", "surrogatepass") for unit in units)
    return struct.pack(">H", len(data)) + data
