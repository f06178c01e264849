"""Looks into the BLOB caches of task managers: only whole files have names of BLOBs, and those of ended jobs go."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from campaign.processes.cluster import RealCluster

RETENTION = 2.0  # seconds between two clean-ups of a task manager's cache, which delete what the one before has staged
# Within which the last reference of an ended job is released once all members work again, and two clean-ups follow.
BOUND = 2 * RETENTION + 30.0
_LOOKS = 0.25
_POLL = 0.5
_BLOB = re.compile(r"[pt]-(?P<sha256>[0-9a-f]{64})")


class CacheWatch:
    """``problems``: what was wrong in the caches."""

    def __init__(self, cluster: RealCluster) -> None:
        self.problems: list[str] = []
        self._cluster = cluster
        self._seen: set[tuple[str, int]] = set()  # path and number of each file that was read

    async def run(self) -> None:
        """Read each new file once, soon after it has its name, until cancelled."""
        while True:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(_LOOKS)

    def look(self) -> None:
        """Read the files that are new."""
        for name, _, path in self._files():
            match = _BLOB.fullmatch(path.name)
            try:
                known = (str(path), path.stat().st_ino)
                if match is None or known in self._seen:
                    continue
                with path.open("rb") as file:
                    sha256, size = hashlib.file_digest(file, "sha256").hexdigest(), file.tell()
            except FileNotFoundError:  # deleted
                continue
            self._seen.add(known)
            if sha256 != match["sha256"]:
                self.problems.append(
                    f"{name} had another content as {path.name} of job {path.parent.name}: {size} bytes"
                )

    async def ended(self, jobs: Collection[str]) -> None:
        """Wait until the caches have nothing of these jobs, which have ended, and nothing that is in transfer."""
        deadline = time.monotonic() + BOUND
        while True:
            await asyncio.to_thread(self.look)
            left = await asyncio.to_thread(self._left, jobs)
            if not left or time.monotonic() > deadline:
                break
            await asyncio.sleep(_POLL)
        self.problems += [f"{each}, {BOUND:g} s after all faults were over and all jobs had ended" for each in left]

    def _left(self, jobs: Collection[str]) -> list[str]:
        unfinished = [
            f"{member.name} has an unfinished file {path.name}"
            for member in self._cluster.task_managers
            for path in _entries(self._cluster.incoming(member))
        ]
        kept = [f"{name} has {path.name} of job {owner}" for name, owner, path in self._files() if owner in jobs]
        return unfinished + kept

    def _files(self) -> Iterator[tuple[str, str, Path]]:
        """Yield each file under its final name, with its task manager and its job."""
        for member in self._cluster.task_managers:
            incoming = self._cluster.incoming(member)
            for directory in _entries(incoming.parent):
                if directory != incoming:
                    for path in _entries(directory):
                        yield member.name, directory.name, path


def _entries(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
