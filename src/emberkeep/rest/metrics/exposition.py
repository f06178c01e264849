"""Metrics for Prometheus. Names begin with ``emberkeep_`` and carry base units. Labels have few values: their number
grows with the task managers, and with jobs and streaming queries up to a limit, never with requests.

Each scrape reads the counts of jobs and slots from the gateway, so they cannot drift from its state.
"""

from __future__ import annotations

import asyncio
import math
import platform
import time
from collections import Counter as Tally
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import prometheus_client as prometheus
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

import emberkeep
from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import JobId
from emberkeep.blocklist.model import BlockedNode
from emberkeep.jobmanager.views.blobs import BlobServerGateway
from emberkeep.jobmanager.views.cluster import JobManagerGateway, JobView
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.messages.requests import REQUESTS
from emberkeep.rest.metrics.blobs import BlobMetrics
from emberkeep.rest.metrics.connections import ConnectionMetrics
from emberkeep.rest.metrics.jobs import JobMetrics, SeriesLimits
from emberkeep.rest.metrics.pushes import PushMetrics
from emberkeep.rest.metrics.recoveries import RecoveryMetrics
from emberkeep.rest.metrics.state_gateway import StateGatewayMetrics
from emberkeep.rest.metrics.task_managers import TaskManagerMetrics
from emberkeep.rest.metrics.webhook import WebhookMetrics
from emberkeep.rest.ports import Deliveries, PortConnections, Pushes, Storage

RPC_PREFIX = "/rpc/v1/"
_LAG_INTERVAL = 0.5  # seconds between two measurements of the event loop
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True)
class OwnCondition:
    """What a JobManager knows about its own condition.

    ``certificate_expires_ms`` returns when its certificate expires; None if it has none. ``audit_lost`` returns how
    many entries of the audit log could not be written. ``in_doubt``: True while the job store does not confirm that it
    is the leader. ``storage_unreadable``: True while it cannot read the shared storage. ``storage_free`` returns the
    bytes that are free there; None if that is not known. ``webhook``: what became of the
    events that were sent; None without a webhook.
    """

    certificate_expires_ms: Callable[[], int | None] = lambda: None
    audit_lost: Callable[[], int] = lambda: 0
    in_doubt: Callable[[], bool] = lambda: False
    storage_unreadable: Callable[[], bool] = lambda: False
    storage_free: Callable[[], int | None] = lambda: None
    webhook: Deliveries | None = None


class Metrics:
    """All metrics of a JobManager, in a registry of their own."""

    def __init__(
        self, port: PortConnections, own: OwnCondition | None = None, limits: SeriesLimits | None = None
    ) -> None:
        self._own = own or OwnCondition()
        self.registry = registry = CollectorRegistry()
        prometheus.ProcessCollector(registry=registry)
        prometheus.GCCollector(registry=registry)
        build = Info("emberkeep_build", "Release and runtime of this JobManager.", registry=registry)
        build.info({"version": emberkeep.__version__, "python": platform.python_version()})
        gauge, counter = partial(Gauge, registry=registry), partial(Counter, registry=registry)
        histogram = partial(Histogram, buckets=_SECONDS, registry=registry)
        self._epoch = gauge("emberkeep_leader_epoch", "Epoch of this JobManager as leader.")
        self._in_doubt = gauge(
            "emberkeep_leader_in_doubt",
            "1 while the job store (ZooKeeper, or a file) does not confirm that this JobManager is the leader.",
        )
        self._jobs = gauge("emberkeep_jobs", "Jobs by status.", ["status"])
        self._unreadable = gauge(
            "emberkeep_num_unreadable_jobs", "Jobs that wait because their job graphs cannot be read now."
        )
        self._restarts = _Restarts(
            counter("emberkeep_job_restarts_total", "Drivers restarted since this JobManager became the leader.")
        )
        self._recoveries = RecoveryMetrics(registry)
        self._single_jobs = JobMetrics(registry, limits or SeriesLimits())
        self._task_managers = TaskManagerMetrics(registry)
        # FLIP-224 calls it numBlockedNodes.
        self._blocked = gauge("emberkeep_num_blocked_nodes", "Nodes on the blocklist; NaN while it cannot be read.")
        self._storage_unreadable = gauge(
            "emberkeep_storage_unreadable", "1 while this JobManager cannot read the shared storage."
        )
        self._storage_free = gauge(
            "emberkeep_storage_free_bytes", "Bytes that are free in the shared storage; NaN while that is not known."
        )
        self._storage_unowned = gauge(
            "emberkeep_storage_unowned",
            "1 if the shared storage may belong to another cluster or job store, so nothing is deleted there.",
        )
        self._storage_unneeded = gauge(
            "emberkeep_storage_unneeded_data",
            "Checkpoints, BLOBs and graphs of jobs in the shared storage that no job needs.",
        )
        self._certificate = gauge(
            "emberkeep_certificate_expiry_timestamp_seconds",
            "When the JobManager's certificate ends; NaN without encryption.",
        )
        self._audit = gauge(
            "emberkeep_audit_entries_lost", "Entries of the audit log that this process could not write."
        )
        self._executors = gauge("emberkeep_executors", "Executors registered with Spark.")
        self._submissions = counter("emberkeep_submissions_total", "Submissions by outcome.", ["outcome"])
        for outcome in ("created", "repeated", "refused"):
            self._submissions.labels(outcome)
        self._http = histogram(
            "emberkeep_http_request_duration_seconds",
            "Time to answer a request, by route, including the waits of long polls and event streams.",
            ["method", "route", "status"],
        )
        self._rpc = histogram(
            "emberkeep_rpc_request_duration_seconds", "Time to answer an RPC, by message.", ["message", "status"]
        )
        self._blobs = BlobMetrics(registry)
        self._state_gateways = StateGatewayMetrics(registry)
        self._connections = ConnectionMetrics(registry, port)
        WebhookMetrics(registry, self._own.webhook)
        self.pushes: Pushes | None = None  # set by what pushes these metrics, if anything does
        PushMetrics(registry, lambda: self.pushes)
        self._lag = histogram("emberkeep_event_loop_lag_seconds", "Delay with which the event loop ran a timer.")

    def submitted(self, outcome: str) -> None:
        """Count a submission: created, repeated or refused."""
        self._submissions.labels(outcome).inc()

    async def exposition(
        self, gateway: JobManagerGateway, blobs: BlobServerGateway, storage: Storage, now_ms: int
    ) -> bytes:
        """Return the text that Prometheus reads, with the current state of the gateways."""
        await self._observe(gateway, blobs, storage, now_ms)
        return prometheus.generate_latest(self.registry)

    async def families(
        self, gateway: JobManagerGateway, blobs: BlobServerGateway, storage: Storage, now_ms: int
    ) -> Sequence[Metric]:
        """Return what ``exposition`` writes as text. The families do not change afterwards."""
        await self._observe(gateway, blobs, storage, now_ms)
        return list(self.registry.collect())

    async def _observe(
        self, gateway: JobManagerGateway, blobs: BlobServerGateway, storage: Storage, now_ms: int
    ) -> None:
        jobs = await gateway.jobs()
        self._show_jobs(jobs, gateway.started_ms())
        self._single_jobs.show(jobs, now_ms)
        task_managers = await gateway.task_managers()
        self._task_managers.observe(task_managers)
        self._blobs.show(blobs.statistics(), task_managers)
        try:
            self._blocked.set(sum(isinstance(entry, BlockedNode) for entry in (await gateway.blocklist()).entries))
        except RetryLater:
            self._blocked.set(math.nan)
        self._state_gateways.show(task_managers)
        self._connections.show(task_managers)
        self._epoch.set(gateway.epoch())
        self._in_doubt.set(self._own.in_doubt())
        condition = storage.condition()
        self._storage_unreadable.set(self._own.storage_unreadable())
        free = self._own.storage_free()
        self._storage_free.set(math.nan if free is None else free)
        self._storage_unowned.set(bool(condition.problem))
        self._storage_unneeded.set(condition.unneeded)
        expires = self._own.certificate_expires_ms()
        self._certificate.set(math.nan if expires is None else expires / 1000)
        self._audit.set(self._own.audit_lost())

    def _show_jobs(self, jobs: Sequence[JobView], started_ms: int) -> None:
        counts = Tally(job.status for job in jobs)
        for status in JobStatus:
            self._jobs.labels(status.value).set(counts[status])
        self._unreadable.set(sum(job.unreadable for job in jobs))
        reports = [report for job in jobs if (report := job.report) is not None]
        self._executors.set(sum(executor.registered for report in reports for executor in report.executors))
        self._restarts.observe(jobs, started_ms)
        self._recoveries.observe(jobs, started_ms)

    def observe_request(self, request: web.Request, status: int, seconds: float) -> None:
        """Record a request's time by route template, or by message for an RPC: ids must not become label values."""
        if request.path.startswith(RPC_PREFIX):
            message = request.path.removeprefix(RPC_PREFIX)
            self._rpc.labels(message if message in REQUESTS else "unknown", str(status)).observe(seconds)
            return
        resource = request.match_info.route.resource
        route = "unknown" if resource is None else resource.canonical
        method = request.method if request.method in _METHODS else "other"
        self._http.labels(method, route, str(status)).observe(seconds)

    def observe_lag(self, seconds: float) -> None:
        """Record how late a timer of the event loop ran."""
        self._lag.observe(seconds)


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class _Restarts:
    """Counts restarts by comparing successive views of all jobs. Restarts under earlier leaders do not count."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._attempts: dict[JobId, int] = {}
        self._first = True

    def observe(self, jobs: Sequence[JobView], started_ms: int) -> None:
        for job in jobs:
            recovered = self._first and job.submitted_ms < started_ms
            before = self._attempts.get(job.job_id, job.attempt if recovered else 1)
            self._counter.inc(max(0, job.attempt - max(before, 1)))
        self._attempts = {job.job_id: job.attempt for job in jobs}
        self._first = False


def measuring(metrics: Metrics) -> Middleware:
    """Return middleware that times every request. It must be outermost, where errors have become responses."""

    @web.middleware
    async def measure(request: web.Request, handler: Handler) -> web.StreamResponse:
        started = time.perf_counter()
        status = 499  # recorded if the client disconnects before the response
        try:
            response = await handler(request)
            status = response.status
        finally:
            metrics.observe_request(request, status, time.perf_counter() - started)
        return response

    return measure


@asynccontextmanager
async def loop_lag(metrics: Metrics) -> AsyncIterator[None]:
    """Measure how late the running event loop runs a timer, while the context is open."""
    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []

    def start() -> None:
        due = loop.time() + _LAG_INTERVAL
        timers[:] = [loop.call_at(due, tick, due)]

    def tick(due: float) -> None:
        metrics.observe_lag(max(0.0, loop.time() - due))
        start()

    start()
    try:
        yield
    finally:
        timers[0].cancel()


def metrics_route(
    metrics: Metrics,
    gateway: JobManagerGateway,
    blobs: BlobServerGateway,
    storage: Storage,
    now_ms: Callable[[], int],
) -> web.RouteDef:
    """Return the route ``GET /metrics``."""

    async def serve(request: web.Request) -> web.Response:
        text = await metrics.exposition(gateway, blobs, storage, now_ms())
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST, "Cache-Control": "no-store"})

    return web.get("/metrics", serve, allow_head=False)
