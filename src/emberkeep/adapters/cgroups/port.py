"""What the supervisor needs of control groups, whatever version of them the kernel has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol


@dataclass(frozen=True)
class Share:
    """What a process gets, with all that it starts.

    ``cores``: its weight while processes compete; 0: the least. ``memory_mb``: the limit in MiB; None: no limit.
    """

    cores: int
    memory_mb: int | None


LEAST: Final = Share(cores=0, memory_mb=None)
"""The share of a standby process: it is warmed while nothing else needs the processors."""


class Group(Protocol):
    """The control group of one process. All methods block for a moment."""

    def limit(self, share: Share) -> None:
        """Give the group this share. Raises OSError."""

    def join(self, pid: int) -> None:
        """Move a process into the group; what it starts from then on is in the group, too. Raises OSError."""

    def memory_limit_mb(self) -> int | None:
        """Return the limit in MiB; None if there is none, or if it cannot be read."""

    def memory_kills(self) -> int:
        """Return how many processes the kernel has ended because of the limit; 0 if that cannot be read.

        The kernel also counts those that it has ended because a group above, or the machine, had no memory left. None
        count if the group itself has never been at its limit.
        """

    def remove(self) -> bool:
        """Remove the group. Return False if a process is still in it."""


class Place(Protocol):
    """Where the groups of one task manager are. All methods block for a moment."""

    @property
    def version(self) -> int:
        """The version of control groups: 1 or 2."""

    def make(self, name: str) -> Group:
        """Make a group without limits. Raises OSError."""

    def unused(self) -> Mapping[str, Group]:
        """Return the groups without processes that earlier task manager processes have left here, by name."""

    def close(self) -> None:
        """Remove the place, if no group is left in it."""
