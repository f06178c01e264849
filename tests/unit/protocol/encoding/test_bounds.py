"""Texts, lists and keys in a message are bounded wherever they are, and what is within the bounds is not copied."""

from __future__ import annotations

import msgspec

from emberkeep.protocol.encoding.bounds import Bounds

BOUNDS = Bounds(text=5, items=3, total=1000, own={"many": 4, "inner.numbers": 1})


class Inner(msgspec.Struct, frozen=True):
    text: str
    number: int = 7
    numbers: tuple[int, ...] = ()


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
    assert BOUNDS.applied(before)[0] == Outer(
        cut, Inner(cut), (Inner(short), Inner(cut)), (cut, short), {"a": Inner(cut), "b": Inner(short)}
    )


def test_what_is_within_the_bounds_is_the_same_object() -> None:
    before = Outer("a", Inner("b", numbers=(1,)), (Inner("c"),) * 4, ("d",) * 3, {"e": Inner("f")})
    after, dropped = BOUNDS.applied(before)
    assert after is before
    assert dropped == {}


def test_items_beyond_the_bound_of_their_place_are_dropped_and_named() -> None:
    keys = {key: Inner(key) for key in ("a", "too long", "b", "c", "d")}
    before = Outer("a", Inner("b", numbers=(1, 2)), (Inner("c", numbers=(1, 2, 3, 4)),) * 6, ("d",) * 4, keys)
    after, dropped = BOUNDS.applied(before)
    assert after == Outer(
        "a",
        Inner("b", numbers=(1,)),
        (Inner("c", numbers=(1, 2, 3)),) * 4,
        ("d",) * 3,
        {key: Inner(key) for key in ("a", "b", "c")},
    )
    assert dropped == {"inner.numbers": 1, "many.numbers": 4, "many": 2, "texts": 1, "by_name": 2}


def test_all_of_it_together_is_bounded() -> None:
    before = Outer("name", texts=("0123456789",) * 1000, by_name={"a": Inner("b")})
    after, dropped = Bounds(text=10, items=1000, total=204).applied(before)
    assert (after.texts, after.by_name) == (before.texts[:20], {})
    assert dropped == {"texts": 980, "by_name": 1}
