"""Texts in a message are bounded wherever they are, and what is short is not copied."""

from __future__ import annotations

import msgspec

from emberkeep.protocol.encoding.short_texts import with_short_texts


class Inner(msgspec.Struct, frozen=True):
    text: str
    number: int = 7


class Outer(msgspec.Struct, frozen=True):
    name: str
    inner: Inner | None = None
    many: tuple[Inner, ...] = ()
    texts: tuple[str, ...] = ()
    by_name: dict[str, Inner] = {}
    data: bytes = b"0123456789"


def test_a_long_text_is_cut_at_any_depth() -> None:
    long, short, cut = "0123456789", "01234", "0123…"
    before = Outer(long, Inner(long), (Inner(short), Inner(long)), (long, short), {"a": Inner(long), "b": Inner(short)})
    assert with_short_texts(before, 5) == Outer(
        cut, Inner(cut), (Inner(short), Inner(cut)), (cut, short), {"a": Inner(cut), "b": Inner(short)}
    )


def test_what_is_short_is_the_same_object() -> None:
    before = Outer("a", Inner("b"), (Inner("c"),), ("d",), {"e": Inner("f")})
    assert with_short_texts(before, 5) is before
