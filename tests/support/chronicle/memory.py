"""A chronicle in memory, whose streams outlive the leaders that write them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from emberkeep.chronicle.lines import decode_line, encode_line, in_order
from emberkeep.chronicle.occurrence import Occurrence, occurrence_id
from emberkeep.chronicle.selection import Page, Selection, page_of

Streams = dict[str, list[bytes]]  # lines by job


class MemoryChronicle:
    """Implements Chronicle. ``streams`` stands for the shared storage."""

    def __init__(self, streams: Streams, now_ms: Callable[[], int]) -> None:
        self.lost = 0
        self._streams = streams
        self._now_ms = now_ms
        self._epoch = self._number = 0
        self._newest: dict[str, str] = {}

    def begin(self, epoch: int, lineage: str) -> None:
        assert lineage
        self._epoch = epoch

    def note(self, occurrence: Occurrence) -> None:
        self._number += 1
        noted = msgspec.structs.replace(occurrence, id=occurrence_id(self._epoch, self._number), time_ms=self._now_ms())
        self._newest[noted.job_id] = noted.id
        self._streams.setdefault(noted.job_id, []).append(encode_line(noted))

    def newest(self, job_id: str) -> str:
        return self._newest.get(job_id, "")

    async def read(self, job_id: str, selection: Selection) -> Page:
        return page_of(self.stream(job_id), selection)

    async def flush(self) -> None:
        """Do nothing: what is noted is stored."""

    def forget(self, job_ids: Iterable[str]) -> None:
        for job_id in job_ids:
            self._streams.pop(job_id, None)

    def stream(self, job_id: str = "") -> list[Occurrence]:
        """Return a stream, in order."""
        lines = map(decode_line, self._streams.get(job_id, []))
        return in_order(each for each in lines if each is not None)
