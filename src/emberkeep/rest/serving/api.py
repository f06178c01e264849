"""The interfaces that REST handlers use, in one object: the JobManager's gateway and the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from emberkeep.audit.selection import AuditTrail
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.system import System
from emberkeep.chronicle.ports import ChronicleReader
from emberkeep.jobmanager.views.blobs import BlobServerGateway
from emberkeep.jobmanager.views.cluster import JobManagerGateway
from emberkeep.jobs.job_secrets import JobSecrets
from emberkeep.lifecycle.verifications import Verifications
from emberkeep.rest.metrics.exposition import Metrics
from emberkeep.rest.ports import (
    KeptLogs,
    LoginLinks,
    ProgressHistories,
    RemoteLogs,
    Savepoints,
    SparkUis,
    Storage,
    Tokens,
)
from emberkeep.rest.serving.blob_peers import BlobPeers
from emberkeep.rest.serving.connect_tunnels import ConnectTunnels
from emberkeep.rest.serving.log_reader import LogReader
from emberkeep.rest.serving.operations import Operations
from emberkeep.rest.serving.spark_ui_links import SparkUiLinks
from emberkeep.rest.serving.transfers import TransferPlaces
from emberkeep.rest.serving.waiting import WaitingRoom

# Concurrent transfers. A download holds a socket and a file; an upload also holds a few MiB.
_DOWNLOADS = 256
_UPLOADS = 64
_TUNNELS = 256


@dataclass(frozen=True)
class Api:
    """Everything that REST handlers may use.

    ``shut_down`` asks the process to end and returns at once. ``problem`` returns what this JobManager cannot do
    although it is the leader; "" in normal operation. ``certificate_expires_ms`` returns when its certificate expires;
    None if it has none. ``poll_interval``: seconds between two reads of a job that a client watches. ``closing`` is set
    when the server stops, so that waiting requests end. ``uploads`` and ``downloads`` bound the concurrent BLOB
    transfers, ``tunnels`` the concurrent connections to Spark Connect servers.
    """

    gateway: JobManagerGateway
    configuration: Configuration
    system: System
    blobs: BlobServerGateway
    own_logs: LogReader
    remote_logs: RemoteLogs
    kept_logs: KeptLogs
    spark_uis: SparkUis
    spark_ui_links: SparkUiLinks
    connect_tunnels: ConnectTunnels
    progress: ProgressHistories
    savepoints: Savepoints
    login_links: LoginLinks
    tokens: Tokens
    job_secrets: JobSecrets
    storage: Storage
    audit: AuditTrail
    chronicle: ChronicleReader
    shut_down: Callable[[], None]
    metrics: Metrics
    problem: Callable[[], str] = str
    certificate_expires_ms: Callable[[], int | None] = lambda: None
    poll_interval: float = 0.5
    waiting: WaitingRoom = field(default_factory=WaitingRoom)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    uploads: TransferPlaces = field(default_factory=lambda: TransferPlaces(_UPLOADS))
    downloads: TransferPlaces = field(default_factory=lambda: TransferPlaces(_DOWNLOADS))
    tunnels: TransferPlaces = field(default_factory=lambda: TransferPlaces(_TUNNELS, line=0))
    verifications: TransferPlaces = field(default_factory=lambda: TransferPlaces(1, line=0))
    manifest_reads: TransferPlaces = field(default_factory=lambda: TransferPlaces(4))
    disposals: Operations = field(default_factory=Operations)
    verified_savepoints: Verifications = field(default_factory=Verifications)

    @cached_property
    def peers(self) -> BlobPeers:
        """Caches to which downloads may be redirected."""
        return BlobPeers(self.gateway, self.blobs.redirects, self.system.clock)

    def now_ms(self) -> int:
        return self.system.clock.now_ms()

    async def pause(self, seconds: float) -> bool:
        """Wait for ``seconds``, or until the server stops. Return True if it stops."""
        try:
            async with asyncio.timeout(seconds):
                await self.closing.wait()
        except TimeoutError:
            return False
        return True
