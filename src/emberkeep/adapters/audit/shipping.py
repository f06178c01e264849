"""Copies a JobManager's audit log to the shared storage, so that it outlives the machine.

Each JobManager appends to files of its own there. What was copied before is read back from these files, so nothing is
copied twice or left out after a restart.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import closing
from typing import Final

import structlog

from emberkeep.adapters.audit.files import AuditFiles
from emberkeep.audit.entry import decode

INTERVAL: Final = 10.0  # seconds between two copies
_AT_ONCE: Final = 5_000  # lines that are copied at once
_CLOSE_SECONDS: Final = 5.0  # the longest wait for the last copy

log = structlog.get_logger(__name__)


class AuditShipping:
    """Copies what ``source`` has to ``sink``, which is not used while ``is_usable`` returns False."""

    def __init__(self, source: AuditFiles, sink: AuditFiles, is_usable: Callable[[], bool]) -> None:
        self._source = source
        self._sink = sink
        self._is_usable = is_usable
        self._last: str | None = None  # id of the newest copied entry; None if it is to be read back
        self._problem = ""
        self._shipping = threading.Lock()  # a copy that was cancelled may still run

    async def run(self) -> None:
        """Copy new entries until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL)
            await self._ship()

    async def close(self) -> None:
        """Copy the last entries. Waits for _CLOSE_SECONDS at most."""
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._ship()
        except TimeoutError:
            log.warning("the newest entries of the audit log are not in the shared storage yet")
        else:
            self._sink.close()

    async def _ship(self) -> None:
        if not self._is_usable():
            return
        try:
            while await asyncio.to_thread(self.ship):
                pass
        except OSError as error:
            self._last = None
            problem = f"{error.strerror or error} ({error.filename or 'audit log'})"
            if problem != self._problem:
                log.warning("cannot copy the audit log to the shared storage, trying again", reason=problem)
            self._problem = problem
        else:
            self._problem = ""

    def ship(self) -> bool:
        """Copy the oldest lines that were not copied, and return True if there may be more. Blocks. Raises OSError."""
        with self._shipping:
            return self._ship_oldest()

    def _ship_oldest(self) -> bool:
        if self._last is None:
            self._sink.open()
            with closing(self._sink.lines()) as lines:
                newest = next(filter(None, map(decode, lines)), None)
            self._last = "" if newest is None else newest.id
        waiting: deque[tuple[str, bytes]] = deque(maxlen=_AT_ONCE)  # the oldest push out the newest
        with closing(self._source.lines()) as lines:
            for line in lines:
                entry = decode(line)
                if entry is None:
                    continue  # torn by a crash
                if entry.id <= self._last:
                    break
                waiting.append((entry.id, line))
        if waiting:
            self._sink.append(b"".join(line + b"\n" for _, line in reversed(waiting)))
            self._last = waiting[0][0]
        return len(waiting) == _AT_ONCE
