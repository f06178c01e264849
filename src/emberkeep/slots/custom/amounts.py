"""Amounts of custom resources, as Spark names them: ``gpu``, ``fpga`` or any other name.

Amounts are a tuple, so that profiles that contain them are hashable. They are sorted by name, and contain no name with
the amount 0, so that equal amounts are equal tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from emberkeep.base.compatible import Compatible


class ResourceAmount(Compatible, frozen=True, kw_only=True):
    """How many addresses of one custom resource are needed or offered."""

    name: str
    amount: int


Amounts = tuple[ResourceAmount, ...]


def amounts(by_name: Mapping[str, int]) -> Amounts:
    """Return the amounts in ``by_name``."""
    return tuple(ResourceAmount(name=name, amount=by_name[name]) for name in sorted(by_name) if by_name[name])


def by_name(each: Amounts) -> dict[str, int]:
    """Return a map from names to amounts."""
    return {one.name: one.amount for one in each}


def plus(first: Amounts, second: Amounts) -> Amounts:
    return _combined(first, second, lambda one, other: one + other)


def minus(first: Amounts, second: Amounts) -> Amounts:
    """Return the difference. It has a negative amount where ``second`` is larger."""
    return _combined(first, second, lambda one, other: one - other)


def fit(needed: Amounts, offered: Amounts) -> bool:
    """True if every needed amount is offered."""
    if not needed:
        return True
    there = by_name(offered)
    return all(one.amount <= there.get(one.name, 0) for one in needed)


def times(needed: Amounts, offered: Amounts, most: int) -> int:
    """Return how often ``needed`` is offered, at most ``most`` times."""
    there = by_name(offered)
    return min([most, *(there.get(one.name, 0) // one.amount for one in needed)])


def total(of: Iterable[Amounts]) -> Amounts:
    """Return the sum of amounts."""
    added: Amounts = ()
    for each in of:
        if each:
            added = plus(added, each)
    return added


def grows(before: Amounts, after: Amounts) -> bool:
    """True if any amount is larger than before."""
    return before != after and any(one.amount > 0 for one in minus(after, before))


def said(each: Amounts) -> str:
    """Return a text such as "1 fpga and 2 gpu"; "" for no amounts."""
    texts = [f"{one.amount} {one.name}" for one in each]
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 2 else texts)


def _combined(first: Amounts, second: Amounts, combine: Callable[[int, int], int]) -> Amounts:
    if not second:
        return first
    left, right = by_name(first), by_name(second)
    return amounts({name: combine(left.get(name, 0), right.get(name, 0)) for name in left.keys() | right.keys()})
