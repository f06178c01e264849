"""Where the members of a cluster run: on the loopback interface, unless ``hosts`` gives each a host of its own."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

LOOPBACK_ADDRESS = "127.0.0.1"


class Places(Protocol):
    """Where the members of a cluster run, by their names."""

    def address(self, name: str) -> str:
        """Return the address at which others reach a member."""
        ...

    def inside(self, name: str) -> AbstractContextManager[None]:
        """Let processes that this thread starts run there. Nothing may be awaited in the context."""
        ...


class Loopback:
    """All members on this machine, without a network that could fail."""

    def address(self, name: str) -> str:
        return LOOPBACK_ADDRESS

    def inside(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()
