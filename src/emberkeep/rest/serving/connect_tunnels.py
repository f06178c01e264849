"""The interface to the Spark Connect servers of drivers."""

from __future__ import annotations

from typing import Protocol

from emberkeep.base.ids import JobId
from emberkeep.base.tunnels import Pipe


class ConnectTunnels(Protocol):
    """Opens tunnels to drivers."""

    async def open(self, job_master: str, job_id: JobId, attempt: int) -> tuple[str, Pipe]:
        """Return the server's token, and a connection to the server.

        ``job_master``: address of the attempt's JobMaster. Raises Conflict (the job runs no Connect server), OverQuota,
        RetryLater.
        """
