"""Cluster-wide resources: overview, configuration, shutdown, probes."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime

import msgspec

from emberkeep.base.configuration.options.security import ENCRYPTION
from emberkeep.base.configuration.values import options
from emberkeep.base.errors import RetryLater
from emberkeep.base.identity import Role
from emberkeep.base.redaction import HIDDEN
from emberkeep.protocol.rest import Empty
from emberkeep.protocol.rest_cluster import ClusterOverview, ConfigurationEntry, DashboardConfiguration, Features, Probe
from emberkeep.rest.cluster.shapes import FLINK_VERSION, JobManagerCondition, cluster_overview
from emberkeep.rest.serving.routing import CheckedRequest, Route

REFRESH_INTERVAL_MS = 3000
_READY_WITHIN = 2.0  # seconds


async def overview(call: CheckedRequest) -> msgspec.Struct:
    gateway = call.api.gateway
    blocklist, storage = await gateway.blocklist_problem(), call.api.storage.condition()
    jobs, task_managers = await call.briefs(), await gateway.task_managers()
    own = JobManagerCondition(
        problem=call.api.problem(),
        encryption=call.api.configuration[ENCRYPTION],
        certificate_expires_ms=call.api.certificate_expires_ms(),
    )
    return cluster_overview(gateway, jobs, task_managers, blocklist, storage, own)


async def config(call: CheckedRequest) -> msgspec.Struct:
    offset = datetime.now().astimezone().utcoffset()
    return DashboardConfiguration(
        refresh_interval=REFRESH_INTERVAL_MS,
        timezone_name=time.tzname[0],
        timezone_offset=0 if offset is None else int(offset.total_seconds() * 1000),
        flink_version=FLINK_VERSION,
        flink_revision="",
        features=Features(web_submit=False, web_cancel=True),
    )


async def job_manager_config(call: CheckedRequest) -> list[ConfigurationEntry]:
    configuration = call.api.configuration
    return [
        ConfigurationEntry(
            key=option.key,
            value=HIDDEN if option.secret else str(configuration[option]),
            origin=configuration.origin(option),
        )
        for option in options()
    ]


async def shut_down(call: CheckedRequest) -> msgspec.Struct:
    call.api.shut_down()
    return Empty()


async def leader(call: CheckedRequest) -> msgspec.Struct:
    epoch = call.api.gateway.epoch()
    if epoch <= 0:
        raise RetryLater("this JobManager is not the leader", hint="ask the other JobManagers")
    return Probe(status="leader", epoch=epoch)


async def liveness(call: CheckedRequest) -> msgspec.Struct:
    return Probe(status="alive", epoch=call.api.gateway.epoch())


async def readiness(call: CheckedRequest) -> msgspec.Struct:
    try:
        async with asyncio.timeout(_READY_WITHIN):
            await call.api.gateway.task_managers()
    except TimeoutError:
        raise RetryLater(f"the JobManager did not answer within {_READY_WITHIN:g} s") from None
    return Probe(status="ready", epoch=call.api.gateway.epoch(), problem=call.api.problem())


ROUTES = (
    Route(
        "GET",
        "/overview",
        overview,
        "Counts of jobs, task managers and slots",
        "Cluster",
        role=Role.VIEWER,
        shared=True,
        reply=ClusterOverview,
    ),
    Route(
        "GET",
        "/config",
        config,
        "Settings that dashboards need",
        "Cluster",
        role=Role.VIEWER,
        shared=True,
        reply=DashboardConfiguration,
    ),
    Route(
        "GET",
        "/jobmanager/config",
        job_manager_config,
        "The JobManager's configuration, and where each value was set",
        "Cluster",
        role=Role.VIEWER,
        reply=list[ConfigurationEntry],
    ),
    Route(
        "DELETE",
        "/cluster",
        shut_down,
        "Shut the JobManager down",
        "Cluster",
        role=Role.ADMIN,
        reply=Empty,
        doc="Drivers and executors continue; the next JobManager attaches to them.",
    ),
    Route(
        "GET",
        "/leader",
        leader,
        "200 if this JobManager is the leader, else 503",
        "Probes",
        role=Role.METRICS,
        shared=True,
        reply=Probe,
        problems=(503,),
    ),
    Route(
        "GET",
        "/liveness",
        liveness,
        "200 while the process answers",
        "Probes",
        role=Role.METRICS,
        shared=True,
        reply=Probe,
    ),
    Route(
        "GET",
        "/readiness",
        readiness,
        "200 when requests can be served",
        "Probes",
        role=Role.METRICS,
        shared=True,
        reply=Probe,
        problems=(503,),
    ),
)
