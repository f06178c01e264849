"""The parts of a JobManager while it leads: job store, BLOB server, actors, and the application for its port."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from aiohttp import web
from prometheus_client.core import Metric

from emberkeep.adapters.blobs.files import BlobFiles
from emberkeep.adapters.blobs.ha_store import open_blob_storage
from emberkeep.adapters.blobs.watched import WatchedBlobs
from emberkeep.adapters.chronicle.stored import StoredChronicle
from emberkeep.adapters.ha_blobs.owned import OwnedBlobs
from emberkeep.adapters.http.continued_sessions import ContinuedSessions
from emberkeep.adapters.http.driver_access import CalledDrivers
from emberkeep.adapters.http.offload import Offload
from emberkeep.adapters.http.rpc import HttpRpcClient
from emberkeep.adapters.http.rpc_server import rpc_routes
from emberkeep.adapters.http.sessions import WebAccess, WebSessions
from emberkeep.adapters.http.web_login import WebLoginLinks, login_routes
from emberkeep.adapters.kept_logs.files import KeepLimits
from emberkeep.adapters.kept_logs.store import KeptLogStore
from emberkeep.adapters.leader_news.inquiry import TellsLeader
from emberkeep.adapters.otlp.pusher import OtlpPusher
from emberkeep.adapters.shared_storage.watch import StorageWatch
from emberkeep.adapters.webhooks.webhook import Webhook
from emberkeep.base.configuration.options import (
    BLOB_DIRECTORY,
    LOGS_KEEP_INTERVAL,
    LOGS_KEPT_MAX_SIZE,
    LOGS_KEPT_RETENTION,
    METRICS_MAX_JOBS,
    METRICS_MAX_QUERIES,
    OFFLOAD_MIN_SIZE,
    RESOURCE_MANAGER_TYPE,
    RPC_TIMEOUT,
)
from emberkeep.blobs.ports import BlobStorage
from emberkeep.chronicle.ports import Chronicle
from emberkeep.daemons.jobmanager.audit_events import into_chronicle
from emberkeep.daemons.jobmanager.callers import Callers
from emberkeep.daemons.jobmanager.common_settings import common_settings
from emberkeep.daemons.jobmanager.local_processes import LocalProcesses
from emberkeep.daemons.jobmanager.metrics_push import open_pusher
from emberkeep.daemons.jobmanager.process_settings import JobManagerSettings
from emberkeep.daemons.jobmanager.progress_histories import StoredProgressHistories
from emberkeep.daemons.jobmanager.remote_logs import BlobRemoteLogs
from emberkeep.daemons.jobmanager.savepoint_store import SavepointStore
from emberkeep.daemons.jobmanager.spark_history import SparkHistory
from emberkeep.daemons.jobmanager.spark_ui import AttemptSparkUis
from emberkeep.daemons.jobmanager.storage_cleanup import StorageKeeper, StoreOfStorage
from emberkeep.daemons.jobmanager.stored_logs import StoredLogs
from emberkeep.daemons.message_blobs import ServerMessageBlobs
from emberkeep.daemons.process_main import Services
from emberkeep.identities.attempts import AttemptCredentials
from emberkeep.identities.ports import TokenStore
from emberkeep.identities.session_passes import SessionPasses
from emberkeep.jobmanager.blobs.server import BlobServer
from emberkeep.jobmanager.named_tokens import TokenRegistry
from emberkeep.jobmanager.service import JobManagerService
from emberkeep.jobmanager.surroundings import Surroundings
from emberkeep.jobmanager.views.election import ElectionView
from emberkeep.jobs.job_secrets import JobSecrets
from emberkeep.jobs.ports import JobStore
from emberkeep.kept_logs.ports import NoLogStore
from emberkeep.leadership.ports import LeaderLocator
from emberkeep.notifications.ports import SilentNotifier
from emberkeep.protocol.transport import RpcClient
from emberkeep.rest.application import build_application
from emberkeep.rest.metrics.exposition import Metrics, OwnCondition
from emberkeep.rest.metrics.jobs import SeriesLimits
from emberkeep.rest.ports import LogKind
from emberkeep.rest.serving.api import Api
from emberkeep.rest.serving.log_catalogue import ProcessLogs
from emberkeep.rest.serving.log_reader import LogReader
from emberkeep.rest.serving.spark_ui_links import SparkUiLinks
from emberkeep.rest.serving.spark_ui_reading import read_spark_ui, shown_attempt
from emberkeep.rest.serving.waiting import MAX_WAITING
from emberkeep.rest.spark_proxy.application import build_spark_proxy
from emberkeep.rest.table import least_roles
from emberkeep.slots.resource_driver import ResourceManagerDriver
from emberkeep.spark.distribution import spark_version
from emberkeep.web.pages import WebSources, web_routes
from emberkeep.web.session_routes import session_routes


def _resource_driver(settings: JobManagerSettings) -> ResourceManagerDriver | None:
    """Return the driver that starts task managers; None if operators start them. Raises InvalidInput, Fatal."""
    if settings.configuration[RESOURCE_MANAGER_TYPE] == "standalone":
        return None
    return LocalProcesses(settings.configuration, settings.layout, settings.address)


def _surroundings(
    settings: JobManagerSettings,
    rpc: RpcClient,
    chronicle: Chronicle,
    webhook: Webhook | None,
    savepoints: SavepointStore,
    logs: KeptLogStore,
) -> Surroundings:
    return Surroundings(
        rpc=rpc,
        address=settings.address,
        checkpoint_root=str(settings.layout.checkpoints),
        savepoint_root=str(settings.layout.savepoints),
        storage=settings.storage,
        savepoints=savepoints,
        chronicle=chronicle,
        settings=common_settings(settings.configuration),
        checkpoints_recorded=lambda: settings.owned_storage.has_recorded_checkpoints,
        resource_driver=_resource_driver(settings),
        notifier=webhook or SilentNotifier(),
        logs=logs if settings.configuration[LOGS_KEEP_INTERVAL] else NoLogStore(),
    )


def _metrics(settings: JobManagerSettings, service: JobManagerService, webhook: Webhook | None) -> Metrics:
    own = OwnCondition(
        certificate_expires_ms=settings.certificate_expires_ms,
        audit_lost=lambda: settings.audit.lost,
        in_doubt=lambda: service.in_doubt,
        storage_unreadable=lambda: bool(settings.storage.problem),
        webhook=webhook,
    )
    configuration = settings.configuration
    limits = SeriesLimits(configuration[METRICS_MAX_JOBS], configuration[METRICS_MAX_QUERIES])
    return Metrics(settings.port.connections, own, limits)


def _pusher(settings: JobManagerSettings, api: Api) -> OtlpPusher | None:
    """Return what pushes the metrics; None if no endpoint is configured."""
    if settings.otlp is None:
        return None

    async def families() -> Sequence[Metric]:
        return await api.metrics.families(api.gateway, api.blobs, api.storage, api.now_ms())

    pusher = open_pusher(settings.otlp, settings.address, families, settings.system.clock)
    api.metrics.pushes = pusher
    return pusher


def _job_managers(known: LeaderLocator | None) -> Callable[[], Sequence[str]]:
    """Return what returns the addresses of all known JobManagers; of none without high availability."""
    return tuple if known is None else lambda: known.news().job_managers


def _kept_logs(settings: JobManagerSettings) -> KeptLogStore:
    configuration = settings.configuration
    limits = KeepLimits(
        most_bytes=configuration[LOGS_KEPT_MAX_SIZE], keep_ms=int(configuration[LOGS_KEPT_RETENTION] * 1000)
    )
    return KeptLogStore(settings.layout.kept_logs, limits, settings.system.clock.now_ms, settings.owned_storage.problem)


def _open_ha_blobs(settings: JobManagerSettings) -> BlobStorage:
    """Open the HA store, which is not used while its place is unavailable or another cluster's. Raises Fatal."""
    storage, place = open_blob_storage(settings.layout.ha_blobs), settings.owned_storage.blobs
    return OwnedBlobs(storage, place) if place.location else WatchedBlobs(storage, lambda: settings.storage.problem)


class DurableStore(JobStore, StoreOfStorage, TokenStore, Protocol):
    """A job store that records which storage belongs to it, and the named tokens."""


@dataclass(frozen=True)
class Leadership:
    """One term of leadership. ``start`` its services, then serve ``app``, and ``spark_uis`` at a port of its own."""

    service: JobManagerService
    blobs: BlobServer
    app: web.Application
    spark_uis: web.Application
    _chronicle: StoredChronicle
    _offload: Offload
    _keeper: StorageKeeper
    _logs: KeptLogStore
    _callers: Callers
    _storage: StorageWatch
    _webhook: Webhook | None
    _history: SparkHistory
    _pusher: OtlpPusher | None

    async def start(self, services: Services, epoch: int | None = None) -> None:
        """Recover the jobs. Return when requests can be served.

        ``epoch``: the store's epoch, if the store is already open. If a service ends before requests can be served, its
        error is raised.
        """
        services.start("events", self._chronicle.run())
        services.start("job manager", self.service.run(epoch))
        await services.run_until_done(self.service.ready())
        # before a job is accepted, and after opening the job store, which records what must be in the storage
        await self._storage.look()
        services.start("acknowledgements", self._offload.run())
        services.start("storage clean-up", self._keeper.run())
        services.start("kept logs", self._logs.run())
        self._callers.start(services)
        services.start("Spark's History Server", self._history.run())
        if self._webhook is not None:
            services.start("webhook", self._webhook.run())
        if self._pusher is not None:
            services.start("metrics push", self._pusher.run())

    async def push_last_metrics(self) -> None:
        """Push the metrics for the last time, if they are pushed. It takes at most about 2 s."""
        if self._pusher is not None:
            await self._pusher.finish()


@contextlib.asynccontextmanager
async def leadership(
    settings: JobManagerSettings,
    store: DurableStore,
    *,
    steps_aside: bool = False,
    known: LeaderLocator | None = None,
    overtook: bool = False,
    election: Callable[[], ElectionView | None] = lambda: None,
) -> AsyncIterator[Leadership]:
    """Build the parts of a leader without starting them. On exit, close its connections.

    ``steps_aside``: see JobManagerService. ``known``: finds the leader, for replies to processes that ask; None without
    high availability. ``overtook``: see BlobServer. ``election``: None without high availability. Raises Fatal
    (storage), InvalidInput (settings).
    """
    system, configuration, layout = settings.system, settings.configuration, settings.layout
    async with contextlib.AsyncExitStack() as stack:
        ha = _open_ha_blobs(settings)
        stack.push_async_callback(ha.close)
        local = BlobFiles(Path(configuration[BLOB_DIRECTORY] or layout.job_manager / "blobs"))
        blobs = BlobServer(configuration, local, ha, confirm=store.confirm, overtook=overtook)
        chronicle = StoredChronicle(
            layout.events, system.clock.now_ms, lambda: settings.owned_storage.problem() is None
        )
        offload = Offload(ServerMessageBlobs(blobs), system, minimum=configuration[OFFLOAD_MIN_SIZE])
        drivers = None if settings.tls is None else CalledDrivers(AttemptCredentials(settings.token))
        rpc = HttpRpcClient(settings.token, offload, tls=settings.client_tls, drivers=drivers)
        stack.push_async_callback(rpc.close)
        # Readers that follow logs wait long and must not use up the connections of other requests.
        log_rpc = HttpRpcClient(settings.token, offload, tls=settings.client_tls, connections_per_peer=MAX_WAITING)
        stack.push_async_callback(log_rpc.close)
        webhook = None if settings.webhook is None else Webhook(settings.webhook, system.clock, system.rng)
        savepoints = SavepointStore(spark_version())
        logs = _kept_logs(settings)
        surroundings = _surroundings(settings, rpc, chronicle, webhook, savepoints, logs)
        service = JobManagerService(system, configuration, surroundings, store, blobs, steps_aside=steps_aside)
        gateway = service.gateway
        keeper = StorageKeeper(configuration, settings.owned_storage, store, gateway, blobs, system.clock.now_ms)
        tokens = TokenRegistry(store, system)
        callers = Callers(configuration, tokens, system.clock)
        sessions = WebSessions(is_valid=callers.is_current)
        continued = ContinuedSessions(
            SessionPasses(settings.token), sessions, gateway.epoch, system.clock.now_ms, _job_managers(known)
        )
        history = SparkHistory(layout.job_manager / "spark-history", layout.checkpoints)
        spark_uis, links = AttemptSparkUis(rpc, history), SparkUiLinks(settings.spark_ui_port.port)
        api = Api(
            gateway=gateway,
            configuration=configuration,
            system=system,
            blobs=blobs,
            own_logs=LogReader(ProcessLogs(layout.job_manager / "logs", LogKind.JOB_MANAGER), system.clock.monotonic),
            remote_logs=BlobRemoteLogs(log_rpc, blobs, timeout=configuration[RPC_TIMEOUT]),
            kept_logs=StoredLogs(logs),
            spark_uis=spark_uis,
            spark_ui_links=links,
            progress=StoredProgressHistories(rpc, layout.checkpoints),
            savepoints=savepoints,
            login_links=WebLoginLinks(sessions),
            tokens=tokens,
            job_secrets=JobSecrets(settings.token, os.urandom),
            storage=keeper,
            audit=settings.audit,
            chronicle=chronicle,
            shut_down=settings.stop.set,
            problem=lambda: service.problem,
            metrics=_metrics(settings, service, webhook),
            certificate_expires_ms=settings.certificate_expires_ms,
        )
        pages = web_routes(
            WebSources(
                gateway=gateway,
                clock=system.clock,
                storage_problem=keeper.problem,
                audit=settings.audit,
                chronicle=chronicle,
                blobs=blobs,
                spark_ui_link=lambda request, job, attempt: links.new(request, shown_attempt(job, attempt)),
                election=election,
            )
        )
        access = WebAccess(sessions, session_routes(pages))
        roles = least_roles(pages)
        policy = dataclasses.replace(settings.policy, web=access, roles=roles, tokens=callers)
        answering = service if known is None else TellsLeader(known, service)
        app = build_application(
            api,
            secure=lambda application: settings.guard(application, policy, into_chronicle(chronicle)),
            roles=roles,
            routes=[
                *login_routes(settings.token, sessions, callers),
                *continued.routes(),
                *rpc_routes(answering, offload),
                *pages,
            ],
        )
        continued.attach(app)
        proxy = build_spark_proxy(links, partial(read_spark_ui, gateway, spark_uis), guard=settings.guard_spark_ui)
        pusher = _pusher(settings, api)
        yield Leadership(
            service,
            blobs,
            app,
            proxy,
            chronicle,
            offload,
            keeper,
            logs,
            callers,
            settings.storage,
            webhook,
            history,
            pusher,
        )
