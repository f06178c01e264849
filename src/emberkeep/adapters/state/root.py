"""A durable root as it appears in messages: the full names of its files, and the errors about them."""

from __future__ import annotations

from dataclasses import dataclass

from emberkeep.base.errors import Absent
from emberkeep.local_state.errors import Exists, IsADirectory


@dataclass(frozen=True)
class StateRoot:
    """A durable root. ``location``: what messages call the root; it contains no secrets."""

    location: str

    def at(self, name: str) -> str:
        return f"{self.location}/{name}".rstrip("/")

    def absent(self, name: str) -> Absent:
        return Absent(f"{self.at(name)} does not exist")

    def exists(self, name: str) -> Exists:
        return Exists(f"{self.at(name)} exists")

    def is_a_directory(self, name: str) -> IsADirectory:
        return IsADirectory(f"{self.at(name)} is a directory")
