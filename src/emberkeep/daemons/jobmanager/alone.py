"""Wires a JobManager without high availability: it leads for as long as it runs, with its jobs in a local file."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from emberkeep.adapters.http.security import check_bind_address
from emberkeep.adapters.http.server import serve_http
from emberkeep.adapters.http.token_file import load_or_create_token
from emberkeep.adapters.job_store.embedded import EmbeddedJobStore
from emberkeep.adapters.job_store.unfinished_restore import require_finished
from emberkeep.adapters.shared_storage.cluster import ClusterStorage
from emberkeep.adapters.shared_storage.watch import StorageWatch
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.job_managers import REST_ADDRESS, REST_BIND_ADDRESS
from emberkeep.base.configuration.options.security import TOKEN_FILE
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.system import System
from emberkeep.daemons.encryption import check_unencrypted, open_tls
from emberkeep.daemons.jobmanager.leading import leadership
from emberkeep.daemons.jobmanager.metrics_push import otlp_settings
from emberkeep.daemons.jobmanager.notifying import webhook_settings
from emberkeep.daemons.jobmanager.process_settings import (
    JobManagerSettings,
    audit_log,
    bound_ports,
    names,
    shipped_audit,
)
from emberkeep.daemons.process_main import Services
from emberkeep.jobmanager.service import JobManagerService


@dataclass(frozen=True)
class JobManagerProcess:
    """A JobManager that serves at ``url``, which is ``address`` ("host:port") with its scheme."""

    address: str
    url: str
    service: JobManagerService


@contextlib.asynccontextmanager
async def job_manager_process(
    system: System, configuration: Configuration, layout: StateLayout, services: Services, stop: asyncio.Event
) -> AsyncIterator[JobManagerProcess]:
    """Start a JobManager and wait until it leads and has recovered its jobs. On exit, close its port and stores.

    Running jobs continue without the JobManager. After an orderly end, unused BLOBs are deleted (BLOB-16); a JobManager
    that has lost its leadership deletes nothing. Raises Fatal (port in use, storage not writable), Conflict (another
    JobManager leads), RetryLater (a restore from a backup has not ended).
    """
    bind = configuration[REST_BIND_ADDRESS]
    check_bind_address(bind, bool(configuration[TOKEN_FILE]))
    # Before this process makes a token, a CA or a cluster id: a restore that was interrupted has to write these.
    await asyncio.to_thread(require_finished, layout.job_manager)
    token = load_or_create_token(layout.token_file)
    webhook = webhook_settings(configuration)
    otlp = otlp_settings(configuration, layout)
    owned = ClusterStorage(layout, system.clock.now_ms)
    check_unencrypted(configuration, configuration[REST_ADDRESS], bind)
    tls = await asyncio.to_thread(open_tls, configuration, layout, *names(configuration), founds=True)
    store = EmbeddedJobStore(layout.job_manager / "jobs.sqlite", layout.graphs, owned)
    async with contextlib.AsyncExitStack() as stack:
        port, ui_port = stack.enter_context(bound_ports(configuration))
        storage = StorageWatch(layout, owned, now_ms=system.clock.now_ms)
        audit = await stack.enter_async_context(audit_log(system, configuration, layout, services))
        settings = JobManagerSettings(
            system, configuration, layout, token, port, ui_port, stop, storage, owned, audit, tls, webhook, otlp
        )
        services.start("storage watch", storage.run(lambda _: None))
        await stack.enter_async_context(shipped_audit(settings, services))
        present = await stack.enter_async_context(leadership(settings, store))
        await present.start(services)
        if tls is not None:
            services.start("certificate", tls.keep())
        server = await serve_http(present.app, port, settings.server_tls)
        stack.push_async_callback(server.close)
        spark_uis = await serve_http(present.spark_uis, ui_port, settings.server_tls)
        stack.push_async_callback(spark_uis.close)
        yield JobManagerProcess(settings.address, settings.url, present.service)
        present.service.retire()
        await present.push_last_metrics()
        await present.blobs.close()
