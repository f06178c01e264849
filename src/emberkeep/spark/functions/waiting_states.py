"""States of functions on executors that have no instance now. Each state waits for its function's next instance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

_SEPARATOR = "@"  # between a function's name and the number of its state


class WaitingStates:
    """The waiting states of a job's functions. Not thread-safe.

    ``restored``: returns the states that the job begins with. It is called when a state is first taken, kept or listed.
    """

    def __init__(self, restored: Callable[[], Mapping[str, bytes]]) -> None:
        self._restored = restored
        self._kept: dict[str, list[bytes]] | None = None  # None: not read yet

    def names(self) -> set[str]:
        """Return the names of functions that have a waiting state; empty until the restored states have been read."""
        return {name for name, states in (self._kept or {}).items() if states}

    def all(self) -> dict[str, list[bytes]]:
        """Return a copy of all states, by function."""
        return {name: list(states) for name, states in self._states().items()}

    def take(self, name: str) -> list[bytes]:
        """Remove and return all states of a function, for a new instance."""
        return self._states().pop(name, [])

    def keep(self, name: str, states: Iterable[bytes]) -> None:
        """Keep states that an instance has left behind."""
        self._states().setdefault(name, []).extend(states)

    def _states(self) -> dict[str, list[bytes]]:
        if self._kept is None:
            kept: dict[str, list[bytes]] = {}
            for key, state in sorted(self._restored().items()):
                if is_of_executors(key):
                    kept.setdefault(key.rpartition(_SEPARATOR)[0], []).append(state)
            self._kept = kept  # only now: what cannot be read yet is read again, and must not look as if it were empty
        return self._kept


def is_of_executors(key: str) -> bool:
    """True if a state with this name in a savepoint belongs to an instance on executors, not to one in the driver."""
    _, separator, number = key.rpartition(_SEPARATOR)
    return bool(separator) and number.isdecimal()


def numbered(states: Mapping[str, list[bytes]]) -> dict[str, bytes]:
    """Return the states under their names in a savepoint: the name of the function, and a number."""
    return {f"{name}{_SEPARATOR}{n}": state for name, found in states.items() for n, state in enumerate(found)}
