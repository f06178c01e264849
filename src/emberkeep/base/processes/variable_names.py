"""Patterns for the names of environment variables."""

from __future__ import annotations

from collections.abc import Iterable

_ANY_END = "*"


def matches(name: str, patterns: Iterable[str]) -> bool:
    """True if a pattern is this name, or ends in ``*`` and the name begins with the rest of the pattern."""
    return any(
        name.startswith(pattern.removesuffix(_ANY_END)) if pattern.endswith(_ANY_END) else name == pattern
        for pattern in patterns
    )
