"""A driver's eye on its task manager: who has been without one for too long is an orphan.

Nobody restarts, cleans up after or can cancel what no task manager looks after. The process is looked at itself, not
the network: one that is cut off or busy is no reason to end.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog

from emberkeep.base.clock import Clock
from emberkeep.base.errors import NewerFormat, Unavailable
from emberkeep.base.process_identity import is_alive
from emberkeep.daemons.records.agent_files import read_agent_life

log = structlog.get_logger(__name__)

LOOKS = 10  # in the time that it may be away
LONGEST_PAUSE = 5.0  # seconds between two looks


class AgentWatch:
    """``record``: where each life of the task manager says which process it is. ``timeout``: seconds."""

    def __init__(self, record: Path, timeout: float, clock: Clock) -> None:
        self._record = record
        self._timeout = timeout
        self._clock = clock
        self._away_since: float | None = None

    @property
    def is_away(self) -> bool:
        """As of the last look."""
        return self._away_since is not None

    async def orphaned(self) -> float:
        """Return once no task manager has lived for longer than the timeout: for how many seconds."""
        while True:
            away = self.look(await asyncio.to_thread(self.lives))
            if away > self._timeout:
                return away
            await asyncio.sleep(min(self._timeout / LOOKS, LONGEST_PAUSE))

    def lives(self) -> bool:
        """Whether somebody looks after this node now. Blocks."""
        try:
            life = read_agent_life(self._record)
        except NewerFormat:  # the node was upgraded beneath this driver: somebody is there, and may well live
            return True
        except Unavailable:  # says nothing about anybody
            return True
        return life is not None and is_alive(life.process)

    def look(self, lives: bool) -> float:
        """For how many seconds it has been away at this look; 0: it lives."""
        now = self._clock.monotonic()
        if lives:
            if self._away_since is not None:
                log.info("the task manager is back")
            self._away_since = None
            return 0.0
        if self._away_since is None:
            log.warning("the task manager is away; going on without it", at_most_seconds=self._timeout)
            self._away_since = now
        return now - self._away_since
