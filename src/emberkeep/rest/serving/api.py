"""What the handlers work with: the JobManager's gateway and the ports beside it, in one value."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from emberkeep.base.configuration.values import Configuration
from emberkeep.base.system import System
from emberkeep.jobmanager.views.blobs import BlobServerGateway
from emberkeep.jobmanager.views.cluster import JobManagerGateway
from emberkeep.rest.metrics.exposition import Metrics
from emberkeep.rest.ports import RemoteLogs, Savepoints, Storage
from emberkeep.rest.serving.blob_peers import Peers
from emberkeep.rest.serving.log_reader import LogReader
from emberkeep.rest.serving.operations import Operations
from emberkeep.rest.serving.transfers import Places
from emberkeep.rest.serving.waiting import WaitingRoom

# At once. A download holds a socket and a file, an upload a few MiB besides.
_DOWNLOADS = 256
_UPLOADS = 64


@dataclass(frozen=True)
class Api:
    """Everything that handlers may touch. ``shut_down`` asks the process to end; it returns at once.

    ``problem``: what it cannot do at present though it leads, "" mostly.
    ``poll_interval``: seconds between two looks at a job or log that a client waits for. ``closing`` is set when the
    server stops, so that waiting requests end. ``uploads``, ``downloads``: how many BLOBs may be under way at once.
    """

    gateway: JobManagerGateway
    configuration: Configuration
    system: System
    blobs: BlobServerGateway
    own_logs: LogReader
    remote_logs: RemoteLogs
    savepoints: Savepoints
    storage: Storage
    shut_down: Callable[[], None]
    metrics: Metrics
    problem: Callable[[], str] = str
    poll_interval: float = 0.5
    waiting: WaitingRoom = field(default_factory=WaitingRoom)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    uploads: Places = field(default_factory=lambda: Places(_UPLOADS))
    downloads: Places = field(default_factory=lambda: Places(_DOWNLOADS))
    verifications: Places = field(default_factory=lambda: Places(1, line=0))
    manifest_reads: Places = field(default_factory=lambda: Places(4))
    disposals: Operations = field(default_factory=Operations)

    @cached_property
    def peers(self) -> Peers:
        """Caches that downloads are sent on to."""
        return Peers(self.gateway, self.blobs, self.system.clock)

    def now_ms(self) -> int:
        return self.system.clock.now_ms()

    async def pause(self, seconds: float) -> bool:
        """Wait; True when the server is stopping, which ends the wait."""
        try:
            async with asyncio.timeout(seconds):
                await self.closing.wait()
        except TimeoutError:
            return False
        return True
