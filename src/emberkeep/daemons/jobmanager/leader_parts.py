"""What is built together for one term of leadership: stores and connections, logins, and Spark UIs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from emberkeep.adapters.blobs.files import BlobFiles
from emberkeep.adapters.blobs.ha_store import open_blob_storage
from emberkeep.adapters.blobs.watched import WatchedBlobs
from emberkeep.adapters.chronicle.stored import StoredChronicle
from emberkeep.adapters.ha_blobs.owned import OwnedBlobs
from emberkeep.adapters.http.continued_sessions import ContinuedSessions
from emberkeep.adapters.http.driver_access import CalledDrivers
from emberkeep.adapters.http.offload import Offload
from emberkeep.adapters.http.rpc import HttpRpcClient
from emberkeep.adapters.http.sessions import WebSessions
from emberkeep.adapters.kept_logs.files import KeepLimits
from emberkeep.adapters.kept_logs.store import KeptLogStore
from emberkeep.adapters.shared_storage.notice_files import NoticeFiles
from emberkeep.adapters.tunnels.leader_side import DriverTunnels
from emberkeep.adapters.webhooks.webhook import Webhook, WebhookSettings
from emberkeep.base.configuration.options.blobs import BLOB_DIRECTORY, OFFLOAD_MIN_SIZE
from emberkeep.base.configuration.options.logs import LOGS_KEPT_MAX_SIZE, LOGS_KEPT_RETENTION
from emberkeep.blobs.ports import BlobStorage
from emberkeep.daemons.jobmanager.callers import Callers
from emberkeep.daemons.jobmanager.process_settings import JobManagerSettings
from emberkeep.daemons.jobmanager.savepoint_store import SavepointStore
from emberkeep.daemons.jobmanager.spark_history import SparkHistory
from emberkeep.daemons.jobmanager.spark_ui import AttemptSparkUis
from emberkeep.daemons.jobmanager.storage_cleanup import StoreOfStorage
from emberkeep.daemons.message_blobs import ServerMessageBlobs
from emberkeep.identities.attempts import AttemptCredentials
from emberkeep.identities.ports import TokenStore
from emberkeep.identities.session_passes import SessionPasses
from emberkeep.jobmanager.blobs.server import BlobServer
from emberkeep.jobmanager.named_tokens import TokenRegistry
from emberkeep.jobs.ports import JobStore
from emberkeep.leadership.ports import LeaderLocator
from emberkeep.protocol.transport import RpcClient
from emberkeep.rest.serving.spark_ui_links import SparkUiLinks
from emberkeep.rest.serving.waiting import MAX_WAITING
from emberkeep.spark.distribution import spark_version


class DurableStore(JobStore, StoreOfStorage, Protocol):
    """A job store that records which storage belongs to it, and the named tokens."""

    @property
    def tokens(self) -> TokenStore:
        """The named tokens, which become known once the store is open."""


@dataclass(frozen=True)
class Resources:
    """Where a term keeps things besides the job store, and how it reaches others.

    ``rpc``: calls other processes. ``log_rpc``: reads their logs. ``tunnels``:
    to the Spark Connect servers of drivers. ``webhook``: None if none is configured.
    """

    blobs: BlobServer
    chronicle: StoredChronicle
    logs: KeptLogStore
    savepoints: SavepointStore
    offload: Offload
    rpc: HttpRpcClient
    log_rpc: HttpRpcClient
    tunnels: DriverTunnels
    webhook: Webhook | None


def open_resources(
    settings: JobManagerSettings, store: DurableStore, closing: contextlib.AsyncExitStack, *, overtook: bool
) -> Resources:
    """Open a term's resources. ``closing`` closes them, the one opened last first. ``overtook``: see BlobServer.

    Raises Fatal (storage).
    """
    system, configuration, layout = settings.system, settings.configuration, settings.layout
    ha = _open_ha_blobs(settings)
    closing.push_async_callback(ha.close)
    local = BlobFiles(Path(configuration[BLOB_DIRECTORY] or layout.job_manager / "blobs"))
    blobs = BlobServer(configuration, local, ha, confirm=store.confirm, overtook=overtook)
    offload = Offload(ServerMessageBlobs(blobs), system, minimum=configuration[OFFLOAD_MIN_SIZE])
    drivers = None if settings.tls is None else CalledDrivers(AttemptCredentials(settings.token))
    rpc = HttpRpcClient(settings.token, offload, tls=settings.client_tls, drivers=drivers)
    closing.push_async_callback(rpc.close)
    # Readers that follow logs wait long and must not use up the connections of other requests.
    log_rpc = HttpRpcClient(settings.token, offload, tls=settings.client_tls, connections_per_peer=MAX_WAITING)
    closing.push_async_callback(log_rpc.close)
    tunnels = DriverTunnels(settings.token, tls=settings.client_tls, drivers=drivers)
    closing.push_async_callback(tunnels.close)
    return Resources(
        blobs=blobs,
        chronicle=StoredChronicle(layout.events, system.clock.now_ms, lambda: settings.owned_storage.problem() is None),
        logs=_kept_logs(settings),
        savepoints=SavepointStore(spark_version()),
        offload=offload,
        rpc=rpc,
        log_rpc=log_rpc,
        tunnels=tunnels,
        webhook=None if settings.webhook is None else _webhook(settings.webhook, settings),
    )


def _webhook(webhook: WebhookSettings, settings: JobManagerSettings) -> Webhook:
    waiting = NoticeFiles(settings.layout.events, settings.owned_storage.problem)
    return Webhook(webhook, settings.system.clock, settings.system.rng, waiting)


def _open_ha_blobs(settings: JobManagerSettings) -> BlobStorage:
    """Open the HA store, which is not used while its place is unavailable or another cluster's. Raises Fatal."""
    storage, place = open_blob_storage(settings.layout.ha_blobs), settings.owned_storage.blobs
    return OwnedBlobs(storage, place) if place.location else WatchedBlobs(storage, lambda: settings.storage.problem)


def _kept_logs(settings: JobManagerSettings) -> KeptLogStore:
    configuration = settings.configuration
    limits = KeepLimits(
        most_bytes=configuration[LOGS_KEPT_MAX_SIZE], keep_ms=int(configuration[LOGS_KEPT_RETENTION] * 1000)
    )
    return KeptLogStore(settings.layout.kept_logs, limits, settings.system.clock, settings.owned_storage.problem)


@dataclass(frozen=True)
class Logins:
    """Who may call the leader, and the sessions of browsers."""

    tokens: TokenRegistry
    callers: Callers
    sessions: WebSessions
    continued: ContinuedSessions


def open_logins(
    settings: JobManagerSettings, store: TokenStore, epoch: Callable[[], int], known: LeaderLocator | None
) -> Logins:
    """Return a term's logins. ``epoch``, ``known``: the leader's epoch, and what knows the other JobManagers.

    Raises InvalidInput (settings).
    """
    clock = settings.system.clock
    tokens = TokenRegistry(store, settings.system)
    callers = Callers(settings.configuration, tokens, clock)
    sessions = WebSessions(is_valid=callers.is_current)
    passes = SessionPasses(settings.token)
    return Logins(
        tokens, callers, sessions, ContinuedSessions(passes, sessions, epoch, clock.now_ms, _job_managers(known))
    )


def _job_managers(known: LeaderLocator | None) -> Callable[[], Sequence[str]]:
    """Return what returns the addresses of all known JobManagers; of none without high availability."""
    return tuple if known is None else lambda: known.news().job_managers


@dataclass(frozen=True)
class SparkUiParts:
    """The Spark UIs of attempts. ``pages`` reads them, ``history`` those of ended attempts."""

    history: SparkHistory
    pages: AttemptSparkUis
    links: SparkUiLinks


def open_spark_uis(settings: JobManagerSettings, rpc: RpcClient) -> SparkUiParts:
    """Return a term's Spark UIs. Nothing starts before the history runs."""
    layout = settings.layout
    history = SparkHistory(layout.job_manager / "spark-history", layout.checkpoints)
    return SparkUiParts(history, AttemptSparkUis(rpc, history), SparkUiLinks(settings.spark_ui_port.port))
