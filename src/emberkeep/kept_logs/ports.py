"""Port: where a leader stores the pieces of logs that task managers send."""

from __future__ import annotations

from typing import Protocol

from emberkeep.base.errors import Conflict
from emberkeep.kept_logs.model import KeptLogKey, LogPiece, Position


class LogStore(Protocol):
    async def keep(self, epoch: int, key: KeptLogKey, piece: LogPiece) -> Position:
        """Store a piece durably, and return how far the log is stored then.

        ``epoch``: of the leader that stores it. A piece that begins before the end of what is stored changes nothing.
        Raises InvalidInput (a damaged piece), RetryLater (busy, or the storage cannot be used now), Fatal.
        """


class NoLogStore:
    """Keeps no logs."""

    async def keep(self, epoch: int, key: KeptLogKey, piece: LogPiece) -> Position:
        raise Conflict(
            "this cluster keeps no logs beyond those of its task managers", hint="set logs.keep.interval to more than 0"
        )
