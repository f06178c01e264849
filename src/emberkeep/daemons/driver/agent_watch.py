"""A driver's watch on its task manager: a driver that has had no task manager for too long is an orphan.

An orphan cannot be restarted, cleaned up or cancelled. The watch checks the task manager's process, not the network: a
task manager that is cut off or busy is not a reason to end.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog

from emberkeep.base.clock import Clock
from emberkeep.base.errors import NewerFormat, Unavailable
from emberkeep.base.processes.process_identity import may_be_alive
from emberkeep.daemons.records.agent_files import read_agent_life

log = structlog.get_logger(__name__)

LOOKS = 10  # checks within the timeout
LONGEST_PAUSE = 5.0  # seconds between checks


class AgentWatch:
    """Watches the task manager of a driver.

    ``record``: the file in which each task manager process names itself. ``timeout``: seconds without a
    task manager after which the driver is an orphan.
    """

    def __init__(self, record: Path, timeout: float, clock: Clock) -> None:
        self._record = record
        self._timeout = timeout
        self._clock = clock
        self._away_since: float | None = None

    @property
    def is_away(self) -> bool:
        """True if the task manager was away at the last check."""
        return self._away_since is not None

    async def orphaned(self) -> float:
        """Wait until the driver is an orphan. Return for how many seconds there has been no task manager process."""
        while True:
            away = self.look(await asyncio.to_thread(self.lives))
            if away > self._timeout:
                return away
            await asyncio.sleep(min(self._timeout / LOOKS, LONGEST_PAUSE))

    def lives(self) -> bool:
        """True unless this node's task manager process has certainly ended. Blocks."""
        try:
            life = read_agent_life(self._record)
        except NewerFormat:  # the node was upgraded while this driver ran: assume that its task manager is alive
            return True
        except Unavailable:  # no evidence that the task manager has ended
            return True
        return life is not None and may_be_alive(life.process)

    def look(self, lives: bool) -> float:
        """Record the result of a check. Return the seconds since the task manager was last alive; 0 if it is alive."""
        now = self._clock.monotonic()
        if lives:
            if self._away_since is not None:
                log.info("the task manager is back")
            self._away_since = None
            return 0.0
        if self._away_since is None:
            log.warning("the task manager is away; the driver continues without it", at_most_seconds=self._timeout)
            self._away_since = now
        return now - self._away_since
