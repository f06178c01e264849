"""Patterns for the names of environment variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_ANY_END = "*"


def matches(name: str, patterns: Iterable[str]) -> bool:
    """True if a pattern is this name, or ends in ``*`` and the name begins with the rest of the pattern."""
    return any(
        name.startswith(pattern.removesuffix(_ANY_END)) if pattern.endswith(_ANY_END) else name == pattern
        for pattern in patterns
    )


def differing_variables(
    before: Mapping[str, str], after: Mapping[str, str], patterns: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the names of variables that match and have another value, or none, in one of the two environments."""
    names = {name for name in before.keys() | after.keys() if matches(name, patterns)}
    return tuple(sorted(name for name in names if before.get(name) != after.get(name)))
