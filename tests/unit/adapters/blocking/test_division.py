"""Keys whose work hangs never take what a key that answers needs, whatever order they come in."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from emberkeep.adapters.blocking.division import Division
from tests.campaign import examples

_SIZES = st.tuples(st.integers(4, 160), st.integers(1, 160))


@settings(max_examples=examples(200), deadline=None)
@given(sizes=_SIZES, data=st.data())
def test_a_quarter_as_many_keys_as_there_are_parts_may_hang(sizes: tuple[int, int], data: st.DataObject) -> None:
    division = Division(*sizes)
    hanging = range(data.draw(st.integers(0, sizes[0] // 4), "keys that hang"))
    # Each takes all that it may before the next one comes, or they take turns.
    turns: list[list[int]] = [[key] for key in hanging] if data.draw(st.booleans(), "one by one") else [list(hanging)]
    held: Counter[int] = Counter()
    free = division.total
    for keys in turns:
        while takers := [key for key in keys if division.may_take(held[key], free)]:
            held[min(takers, key=lambda key: held[key])] += 1
            free -= 1
    assert free == division.total - held.total()
    assert all(count <= division.per_key for count in held.values())
    assert division.may_take(0, free), "nothing is left for a key that answers"


@given(
    held=st.dictionaries(st.integers(0, 9), st.integers(1, 20), max_size=8),
    waiting=st.lists(st.integers(0, 9), unique=True),
    free=st.integers(0, 128),
)
def test_a_key_that_holds_less_comes_first(held: dict[int, int], waiting: list[int], free: int) -> None:
    division = Division(128, 32)
    admitted = [key for key in waiting if division.may_take(held.get(key, 0), free)]
    chosen = division.next_key(waiting, held, free)
    if not admitted:
        assert chosen is None
    else:
        assert chosen is not None
        assert held.get(chosen, 0) == min(held.get(key, 0) for key in admitted)


def test_two_busy_keys_have_the_most_that_a_key_may_have() -> None:
    division, held, free = Division(128, 32), Counter[str](), 128
    for key in "ab":
        while division.may_take(held[key], free):
            held[key] += 1
            free -= 1
    assert held == {"a": 32, "b": 32}
