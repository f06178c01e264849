"""The parts of a JobManager while it leads: job store, BLOB server, actors, and the application for its port."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from aiohttp import web
from prometheus_client.core import Metric

from emberkeep.adapters.http.rpc_server import rpc_routes
from emberkeep.adapters.http.sessions import WebAccess
from emberkeep.adapters.http.web_login import WebLoginLinks, login_routes
from emberkeep.adapters.leader_news.inquiry import TellsLeader
from emberkeep.adapters.otlp.pusher import OtlpPusher
from emberkeep.adapters.shared_storage.usage_files import UsageFiles
from emberkeep.adapters.shared_storage.watch import StorageWatch
from emberkeep.adapters.webhooks.webhook import Webhook
from emberkeep.base.configuration.options.job_managers import RPC_TIMEOUT
from emberkeep.base.configuration.options.logs import LOGS_KEEP_INTERVAL
from emberkeep.base.configuration.options.monitoring import METRICS_MAX_JOBS, METRICS_MAX_QUERIES
from emberkeep.base.configuration.options.resource_drivers import (
    KUBERNETES_CONFIG,
    KUBERNETES_CONTEXT,
    KUBERNETES_NAMESPACE,
    RESOURCE_MANAGER_TYPE,
)
from emberkeep.base.errors import Fatal
from emberkeep.chronicle.ports import Chronicle
from emberkeep.daemons.jobmanager.audit_events import into_chronicle
from emberkeep.daemons.jobmanager.callers import Callers
from emberkeep.daemons.jobmanager.common_settings import common_settings
from emberkeep.daemons.jobmanager.leader_parts import (
    DurableStore,
    Logins,
    Resources,
    SparkUiParts,
    open_logins,
    open_resources,
    open_spark_uis,
)
from emberkeep.daemons.jobmanager.metrics_push import open_pusher
from emberkeep.daemons.jobmanager.process_settings import JobManagerSettings
from emberkeep.daemons.jobmanager.progress_histories import StoredProgressHistories
from emberkeep.daemons.jobmanager.remote_logs import BlobRemoteLogs
from emberkeep.daemons.jobmanager.resource_drivers.kubernetes_pods import KubernetesPods
from emberkeep.daemons.jobmanager.resource_drivers.local_processes import LocalProcesses
from emberkeep.daemons.jobmanager.resource_drivers.slurm_jobs import SlurmJobs
from emberkeep.daemons.jobmanager.spark_history import SparkHistory
from emberkeep.daemons.jobmanager.storage_cleanup import StorageKeeper
from emberkeep.daemons.jobmanager.stored_logs import StoredLogs
from emberkeep.daemons.process_main import Services
from emberkeep.jobmanager.blobs.server import BlobServer
from emberkeep.jobmanager.service import JobManagerService
from emberkeep.jobmanager.surroundings import Surroundings
from emberkeep.jobmanager.views.election import ElectionView
from emberkeep.jobs.job_secrets import JobSecrets
from emberkeep.kept_logs.ports import NoLogStore
from emberkeep.leadership.ports import LeaderLocator
from emberkeep.notifications.ports import SilentNotifier
from emberkeep.rest.application import build_application
from emberkeep.rest.metrics.exposition import Metrics, OwnCondition
from emberkeep.rest.metrics.jobs import SeriesLimits
from emberkeep.rest.ports import LogKind
from emberkeep.rest.serving.api import Api
from emberkeep.rest.serving.log_catalogue import ProcessLogs
from emberkeep.rest.serving.log_reader import LogReader
from emberkeep.rest.serving.spark_ui_reading import abandon_page, read_following, read_spark_ui, shown_attempt
from emberkeep.rest.spark_proxy.application import build_spark_proxy
from emberkeep.rest.table import least_roles
from emberkeep.slots.resource_driver import ResourceManagerDriver
from emberkeep.web.health import ProblemTimes
from emberkeep.web.pages import WebSources, web_routes
from emberkeep.web.session_routes import session_routes


def _resource_driver(settings: JobManagerSettings) -> ResourceManagerDriver | None:
    """Return the driver that starts task managers; None if operators start them. Blocks. Raises InvalidInput, Fatal."""
    kind = settings.configuration[RESOURCE_MANAGER_TYPE]
    if kind == "standalone":
        return None
    if kind == "slurm":
        return SlurmJobs(settings.configuration, settings.layout, settings.address)
    if kind == "kubernetes":
        return _kubernetes(settings)
    return LocalProcesses(settings.configuration, settings.layout, settings.address)


def _kubernetes(settings: JobManagerSettings) -> ResourceManagerDriver:
    """Return the driver that creates pods. Raises InvalidInput, Fatal (also if its client is not installed)."""
    try:
        from emberkeep.adapters.kubernetes.api import KubernetesApi
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in ("kubernetes", "urllib3"):
            raise
        raise Fatal(
            f"{RESOURCE_MANAGER_TYPE.key}: kubernetes needs the Kubernetes client, which is not installed",
            hint="pip install 'emberkeep[kubernetes]'",
        ) from None
    configuration = settings.configuration
    api = KubernetesApi(
        configuration[KUBERNETES_NAMESPACE], configuration[KUBERNETES_CONFIG], configuration[KUBERNETES_CONTEXT]
    )
    return KubernetesPods(configuration, settings.layout, settings.address, api)


def _surroundings(
    settings: JobManagerSettings, resources: Resources, resource_driver: ResourceManagerDriver | None
) -> Surroundings:
    return Surroundings(
        rpc=resources.rpc,
        address=settings.address,
        checkpoint_root=str(settings.layout.checkpoints),
        savepoint_root=str(settings.layout.savepoints),
        storage=settings.storage,
        savepoints=resources.savepoints,
        chronicle=resources.chronicle,
        settings=common_settings(settings.configuration),
        checkpoints_recorded=lambda: settings.owned_storage.has_recorded_checkpoints,
        resource_driver=resource_driver,
        notifier=resources.webhook or SilentNotifier(),
        logs=resources.logs if settings.configuration[LOGS_KEEP_INTERVAL] else NoLogStore(),
        usage=UsageFiles(settings.layout.events, settings.owned_storage.problem),
    )


def _problem_times(settings: JobManagerSettings, service: JobManagerService, keeper: StorageKeeper) -> ProblemTimes:
    storage = settings.storage
    return ProblemTimes(
        problem=service.problem_since_ms,
        storage=keeper.problem_since_ms,
        storage_low=storage.low_since_ms,
        storage_free=storage.free or 0,
        empty=service.empty_since_ms,
    )


def _metrics(settings: JobManagerSettings, service: JobManagerService, webhook: Webhook | None) -> Metrics:
    own = OwnCondition(
        certificate_expires_ms=settings.certificate_expires_ms,
        audit_lost=lambda: settings.audit.lost,
        in_doubt=lambda: service.in_doubt,
        storage_unreadable=lambda: bool(settings.storage.problem),
        storage_free=lambda: settings.storage.free,
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


def _api(
    settings: JobManagerSettings,
    service: JobManagerService,
    resources: Resources,
    keeper: StorageKeeper,
    logins: Logins,
    spark_uis: SparkUiParts,
) -> Api:
    configuration, layout, clock = settings.configuration, settings.layout, settings.system.clock
    return Api(
        gateway=service.gateway,
        configuration=configuration,
        system=settings.system,
        blobs=resources.blobs,
        own_logs=LogReader(ProcessLogs(layout.job_manager / "logs", LogKind.JOB_MANAGER), clock.monotonic),
        remote_logs=BlobRemoteLogs(resources.log_rpc, resources.blobs, timeout=configuration[RPC_TIMEOUT]),
        kept_logs=StoredLogs(resources.logs),
        spark_uis=spark_uis.pages,
        spark_ui_links=spark_uis.links,
        connect_tunnels=resources.tunnels,
        progress=StoredProgressHistories(resources.rpc, layout.checkpoints),
        savepoints=resources.savepoints,
        login_links=WebLoginLinks(logins.sessions),
        tokens=logins.tokens,
        job_secrets=JobSecrets(settings.token, os.urandom),
        storage=keeper,
        audit=settings.audit,
        chronicle=resources.chronicle,
        shut_down=settings.stop.set,
        problem=lambda: service.problem,
        metrics=_metrics(settings, service, resources.webhook),
        certificate_expires_ms=settings.certificate_expires_ms,
    )


def _application(
    settings: JobManagerSettings,
    api: Api,
    logins: Logins,
    pages: Sequence[web.AbstractRouteDef],
    rpc: Sequence[web.AbstractRouteDef],
    chronicle: Chronicle,
) -> web.Application:
    """Return the application for the JobManager's port. ``pages``, ``rpc``: routes besides the API and the logins."""
    roles = least_roles(pages)
    access = WebAccess(logins.sessions, session_routes(pages))
    policy = dataclasses.replace(settings.policy, web=access, roles=roles, tokens=logins.callers)
    app = build_application(
        api,
        secure=lambda application: settings.guard(application, policy, into_chronicle(chronicle)),
        roles=roles,
        routes=[
            *login_routes(settings.token, logins.sessions, logins.callers),
            *logins.continued.routes(),
            *rpc,
            *pages,
        ],
    )
    logins.continued.attach(app)
    return app


@dataclass(frozen=True)
class Leadership:
    """One term of leadership. ``start`` its services, then serve ``app``, and ``spark_uis`` at a port of its own."""

    service: JobManagerService
    app: web.Application
    spark_uis: web.Application
    _resources: Resources
    _keeper: StorageKeeper
    _callers: Callers
    _storage: StorageWatch
    _history: SparkHistory
    _pusher: OtlpPusher | None
    _store: DurableStore

    @property
    def blobs(self) -> BlobServer:
        return self._resources.blobs

    async def start(self, services: Services, epoch: int | None = None) -> None:
        """Recover the jobs. Return when requests can be served.

        ``epoch``: the store's epoch, if the store is already open. If a service ends before requests can be served, its
        error is raised.
        """
        services.start("events", self._resources.chronicle.run())
        services.start("job manager", self.service.run(epoch))
        await services.run_until_done(self.service.ready())
        # before a job is accepted, and after opening the job store, which records what must be in the storage
        await self._storage.look()
        services.start("acknowledgements", self._resources.offload.run())
        services.start("storage clean-up", self._keeper.run())
        services.start("kept logs", self._resources.logs.run())
        self._callers.start(services)
        services.start("Spark's History Server", self._history.run())
        if self._resources.webhook is not None:
            services.start("webhook", self._resources.webhook.run(self._store.lineage, self.service.gateway.epoch()))
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
    system, configuration = settings.system, settings.configuration
    async with contextlib.AsyncExitStack() as stack:
        resources = open_resources(settings, store, stack, overtook=overtook)
        blobs, chronicle = resources.blobs, resources.chronicle
        # In a thread: it reads and writes files, and a large client may have to be imported for it.
        resource_driver = await asyncio.to_thread(_resource_driver, settings)
        surroundings = _surroundings(settings, resources, resource_driver)
        service = JobManagerService(system, configuration, surroundings, store, blobs, steps_aside=steps_aside)
        gateway = service.gateway
        keeper = StorageKeeper(configuration, settings.owned_storage, store, gateway, blobs, system.clock.now_ms)
        logins = open_logins(settings, store.tokens, gateway.epoch, known)
        spark_uis = open_spark_uis(settings, resources.rpc)
        links, uis = spark_uis.links, spark_uis.pages
        api = _api(settings, service, resources, keeper, logins, spark_uis)
        pages = web_routes(
            WebSources(
                gateway=gateway,
                clock=system.clock,
                problem=api.problem,
                storage_problem=keeper.problem,
                audit=settings.audit,
                chronicle=chronicle,
                blobs=blobs,
                spark_ui_link=lambda request, job, attempt: links.new(request, shown_attempt(job, attempt)),
                verifications=api.verified_savepoints,
                election=election,
                times=partial(_problem_times, settings, service, keeper),
            )
        )
        rpc = rpc_routes(service if known is None else TellsLeader(known, service), resources.offload)
        yield Leadership(
            service=service,
            app=_application(settings, api, logins, pages, rpc, chronicle),
            spark_uis=build_spark_proxy(
                links,
                partial(read_spark_ui, gateway, uis, in_pieces=True),
                partial(read_following, gateway, uis),
                partial(abandon_page, gateway, uis),
                guard=settings.guard_spark_ui,
            ),
            _resources=resources,
            _keeper=keeper,
            _callers=logins.callers,
            _storage=settings.storage,
            _history=spark_uis.history,
            _pusher=_pusher(settings, api),
            _store=store,
        )
