"""What a JobManager's process has for all its terms as leader: settings, ports, storage, and the audit log."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

from aiohttp import web

from emberkeep.adapters.audit.files import AuditFiles
from emberkeep.adapters.audit.log import AuditLog
from emberkeep.adapters.audit.shipping import AuditShipping
from emberkeep.adapters.http.auditing import auditing
from emberkeep.adapters.http.driver_access import DriverAccess
from emberkeep.adapters.http.limiting import limiting, slowing_guesses
from emberkeep.adapters.http.login_page import pages_about_problems
from emberkeep.adapters.http.node_access import RPC_ROUTE
from emberkeep.adapters.http.security import AccessPolicy, secure
from emberkeep.adapters.http.server import BoundPort, bind_port
from emberkeep.adapters.http.spark_ui_port import guard_spark_ui
from emberkeep.adapters.otlp.settings import OtlpSettings
from emberkeep.adapters.shared_storage.cluster import ClusterStorage
from emberkeep.adapters.shared_storage.watch import StorageWatch
from emberkeep.adapters.webhooks.webhook import WebhookSettings
from emberkeep.audit.entry import Entry
from emberkeep.base.configuration.hosts import join_host_port
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.access import (
    AUDIT_FILES,
    AUDIT_MAX_SIZE,
    AUDIT_SHIP,
    QUOTA_REQUESTS,
    QUOTA_UPLOADS,
)
from emberkeep.base.configuration.options.job_managers import (
    REST_ADDRESS,
    REST_BIND_ADDRESS,
    REST_BIND_PORT,
    REST_PORT,
    SPARK_UI_BIND_PORT,
    SPARK_UI_PORT,
)
from emberkeep.base.configuration.options.security import ALLOWED_HOSTS
from emberkeep.base.configuration.values import Configuration, Option
from emberkeep.base.system import System
from emberkeep.daemons.encryption import NodeTls
from emberkeep.daemons.process_main import Services
from emberkeep.identities.attempts import AttemptCredentials
from emberkeep.quotas.quotas import CallerLimits, Quotas
from emberkeep.rest.table import DRIVER_ROUTES

# Health probes of load balancers carry no token and get only a status. Static files reveal nothing about a cluster.
PUBLIC_ROUTES = frozenset({"/v1/liveness", "/v1/readiness", "/v1/leader", "/static/{name}"})


_SHIPPED_FILES = 100  # rotated files of the audit log that are kept in the shared storage


def names(configuration: Configuration) -> tuple[str, ...]:
    """Return the host names and addresses at which clients reach this JobManager."""
    extra = filter(None, configuration[ALLOWED_HOSTS].split(","))
    return (configuration[REST_ADDRESS], configuration[REST_BIND_ADDRESS], *extra)


@dataclass(frozen=True)
class JobManagerSettings:
    """Settings that are the same for all terms of leadership of a process.

    ``port``: where this process serves. ``spark_ui_port``: where it serves the Spark UIs of jobs, and nothing else.
    ``stop``: set when a client asks the process to end. ``storage``: tells whether the shared storage is readable.
    ``owned_storage``: tells who owns it. ``audit``: the audit log, which is open. ``webhook``: where events of jobs go;
    None if no webhook is configured. ``otlp``: where metrics are pushed; None if no endpoint is configured.
    """

    system: System
    configuration: Configuration
    layout: StateLayout
    token: str
    port: BoundPort
    spark_ui_port: BoundPort
    stop: asyncio.Event
    storage: StorageWatch
    owned_storage: ClusterStorage
    audit: AuditLog
    tls: NodeTls | None = None
    webhook: WebhookSettings | None = None
    otlp: OtlpSettings | None = None

    @property
    def address(self) -> str:
        """Return the address where other processes connect."""
        return join_host_port(self.configuration[REST_ADDRESS], self.port.port)

    @property
    def policy(self) -> AccessPolicy:
        hosts = frozenset(names(self.configuration))
        if self.tls is None:
            return AccessPolicy(self.token, hosts=hosts, public=PUBLIC_ROUTES)
        drivers, daemons = DriverAccess(AttemptCredentials(self.token), DRIVER_ROUTES), frozenset({RPC_ROUTE})
        return AccessPolicy(self.token, hosts=hosts, public=PUBLIC_ROUTES, drivers=drivers, daemons=daemons)

    def guard(self, app: web.Application, policy: AccessPolicy, note: Callable[[Entry], None] = lambda _: None) -> None:
        """Put the access checks and quotas before the routes of ``app``, and the audit log before these checks.

        ``note`` is called with each entry of the audit log.
        """

        def record(entry: Entry) -> None:
            self.audit.record(entry)
            note(entry)

        quotas = self._quotas
        if policy.web is not None:
            app.middlewares.append(pages_about_problems())
        app.middlewares.append(auditing(record))
        app.middlewares.append(slowing_guesses(quotas))
        secure(app, policy)
        app.middlewares.append(limiting(quotas))

    def guard_spark_ui(
        self, app: web.Application, may_pass: Callable[[web.Request], bool], refusal: Callable[[], web.Response]
    ) -> None:
        """Put the checks of the port of the Spark UIs before the routes of ``app``."""
        guard_spark_ui(app, frozenset(names(self.configuration)), self._quotas, may_pass, refusal)

    @functools.cached_property
    def _quotas(self) -> Quotas:
        """The quotas of callers, which both ports count for."""
        return Quotas(
            CallerLimits(
                requests_per_second=self.configuration[QUOTA_REQUESTS],
                upload_bytes_per_second=self.configuration[QUOTA_UPLOADS],
            )
        )

    @property
    def client_tls(self) -> ssl.SSLContext | None:
        return None if self.tls is None else self.tls.links.client

    @property
    def server_tls(self) -> ssl.SSLContext | None:
        return None if self.tls is None else self.tls.links.server

    def certificate_expires_ms(self) -> int | None:
        return None if self.tls is None else self.tls.expires_ms()

    @property
    def url(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://{self.address}"


@contextlib.contextmanager
def bound_ports(configuration: Configuration) -> Iterator[tuple[BoundPort, BoundPort]]:
    """Bind the port of the API and the console, and that of the Spark UIs. On exit, close both. Raises Fatal."""
    with contextlib.ExitStack() as stack:
        port = _bind(configuration, REST_PORT, REST_BIND_PORT)
        stack.callback(port.close)
        spark_ui_port = _bind(configuration, SPARK_UI_PORT, SPARK_UI_BIND_PORT)
        stack.callback(spark_ui_port.close)
        yield port, spark_ui_port


def _bind(configuration: Configuration, announced: Option[int], bound: Option[int]) -> BoundPort:
    host, port = configuration[REST_BIND_ADDRESS], configuration[announced]
    if not configuration[bound]:
        return bind_port(host, port, port_option=announced.key)
    return bind_port(host, configuration[bound], announced_port=port, port_option=bound.key)


@contextlib.asynccontextmanager
async def audit_log(
    system: System, configuration: Configuration, layout: StateLayout, services: Services
) -> AsyncIterator[AuditLog]:
    """Open this process's audit log. On exit, write what is queued. Raises Fatal."""
    audit = AuditLog(
        AuditFiles(layout.audit, configuration[AUDIT_MAX_SIZE], configuration[AUDIT_FILES]), system.clock.now_ms
    )
    await asyncio.to_thread(audit.open)
    services.start("audit log", audit.run())
    try:
        yield audit
    finally:
        await audit.close()


@contextlib.asynccontextmanager
async def shipped_audit(settings: JobManagerSettings, services: Services) -> AsyncIterator[None]:
    """Copy the audit log to the shared storage, if there is one. On exit, copy the newest entries."""
    configuration, directory = settings.configuration, settings.layout.shipped_audit
    if directory is None or not configuration[AUDIT_SHIP]:
        yield
        return
    sink = AuditFiles(directory, configuration[AUDIT_MAX_SIZE], _SHIPPED_FILES)
    shipping = AuditShipping(settings.audit.files, sink, lambda: not settings.storage.problem)
    services.start("audit log to the storage", shipping.run())
    try:
        yield
    finally:
        await shipping.close()
