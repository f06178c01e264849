"""The places that a task manager's gateway keeps closed to jobs, with symbolic links resolved when a root is opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from emberkeep.local_state.gateway_paths import durable_location
from emberkeep.local_state.reachable_roots import SYSTEM_PLACES, ReachableRoots, is_within

_OBJECT_STORES = ("s3://", "gs://", "az://")


class ReservedPlaces:
    """Places of the cluster and the system. Any thread may call it.

    ``checkpoints``: the directory with each job's own root. ``places``: directories, files, or locations in object
    stores.
    """

    def __init__(self, checkpoints: Path, places: Iterable[str]) -> None:
        self._checkpoints = str(checkpoints.absolute())
        self._places = (str(checkpoints), *map(_canonical, places), *SYSTEM_PLACES)

    def guard(self, location: str) -> Callable[[str], None]:
        """Return a check to call with the real path whenever the canonical ``location`` is opened.

        The check raises InvalidInput if a job may not open that path.
        """
        allowed: set[str] = set()

        def check(opened: str) -> None:
            if opened not in allowed:
                self._check(location, opened)
                allowed.clear()
                allowed.add(opened)

        return check

    def _check(self, location: str, opened: str) -> None:
        checkpoints = os.path.realpath(self._checkpoints)
        own = ""
        if location != self._checkpoints and is_within(location, self._checkpoints):
            job = location.removeprefix(self._checkpoints).lstrip("/").partition("/")[0]
            own = f"{checkpoints}/{job}"
        ReachableRoots(tuple(map(_real, self._places))).check(location, opened, own)


def _canonical(place: str) -> str:
    return durable_location(place) if ":" in place.partition("/")[0] else place


def _real(place: str) -> str:
    return place if place.startswith(_OBJECT_STORES) else os.path.realpath(place)
