"""Bound on the requests that wait at once (event streams, followed logs), so that others find a free connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from emberkeep.base.errors import RetryLater

MAX_WAITING = 256


class WaitingRoom:
    """A bounded number of places for waiting requests."""

    def __init__(self, places: int = MAX_WAITING) -> None:
        self._places = places
        self._taken = 0

    @property
    def taken(self) -> int:
        """Number of requests that wait now."""
        return self._taken

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place. Raises RetryLater if all places are taken."""
        if self._taken >= self._places:
            raise RetryLater(
                f"{self._taken} requests wait already", hint="close live views, or send the request without `wait`"
            )
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1
