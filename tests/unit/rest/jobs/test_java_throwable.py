"""A failure in Java's serialization format; tests/integration/client/test_flink_client.py shows that Flink reads it."""

from __future__ import annotations

import struct

import pytest

from emberkeep.rest.jobs.java_throwable import MOST_CHARACTERS, serialized_throwable


def strings(data: bytes) -> list[str]:
    """The texts at its end, which are the object's own: what it shows, and its class."""
    found = []
    for _ in range(2):
        tag, length = struct.unpack(">cH", data[:3])
        assert tag == b"\x74"
        units = data[3 : 3 + length].replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        found.append(units.encode("utf-16-be", "surrogatepass").decode("utf-16-be"))
        data = data[3 + length :]
    assert data == b"\x70", "no original exception"
    return found


@pytest.mark.parametrize("text", ["", "no space", "two\nlines", "ä€", "\U0001f525", "a\0b"])
def test_the_text_is_whole(text: str) -> None:
    data = serialized_throwable("Timeout", text)
    assert data.startswith(b"\xac\xed\x00\x05\x73\x72\x00\x29org.apache.flink.util.SerializedThrowable")
    _, _, own = data.partition(b"\x70\x70\x78")  # the end of what Throwable has
    assert strings(own) == [text, "Timeout"]


@pytest.mark.parametrize("letter", ["x", "€", "\U0001f525"])
def test_a_long_text_is_cut(letter: str) -> None:
    _, _, own = serialized_throwable("Timeout", letter * 100_000).partition(b"\x70\x70\x78")
    assert strings(own) == [letter * MOST_CHARACTERS, "Timeout"]
