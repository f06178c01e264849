"""Ports: how a leader writes the chronicle, and how the edges read it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from emberkeep.chronicle.occurrence import Occurrence
from emberkeep.chronicle.selection import Page, Selection


class ChronicleReader(Protocol):
    """The chronicle as the edges read it. ``job_id``: "" for the cluster's stream."""

    @property
    def lost(self) -> int:
        """Number of occurrences that could not be stored since the process became the leader."""

    def newest(self, job_id: str) -> str:
        """Return the id of the newest occurrence that this leader has noted in a stream; "" if there is none."""

    async def read(self, job_id: str, selection: Selection) -> Page:
        """Return the selected occurrences. Those that wait to be stored are included. Raises Unavailable."""


class Recorder(Protocol):
    """Where the leader's actors note what has happened."""

    def note(self, occurrence: Occurrence) -> None:
        """Add an occurrence to its stream. Returns at once and raises nothing: no decision waits for the chronicle."""


class Chronicle(Recorder, ChronicleReader, Protocol):
    """The streams of one cluster, each of them bounded. One leader writes; every later leader reads what it wrote."""

    def begin(self, epoch: int, lineage: str) -> None:
        """Number the occurrences that follow with the leader's epoch. ``lineage``: names the job store."""

    async def flush(self) -> None:
        """Store what was noted so far, with one try. Raises nothing."""

    def forget(self, job_ids: Iterable[str]) -> None:
        """Delete the streams of jobs whose results were deleted. Returns at once."""
