"""Wires the copies of a task manager's job logs in the shared storage."""

from __future__ import annotations

from collections.abc import Callable

from emberkeep.adapters.kept_logs.segments import compress, digest_of
from emberkeep.base.configuration.options.job_managers import RPC_TIMEOUT
from emberkeep.base.configuration.options.logs import LOGS_KEEP_INTERVAL, LOGS_KEPT_RETENTION
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.system import System
from emberkeep.protocol.transport import RpcClient
from emberkeep.rest.logs.shipping import LogShipping, ShippingSettings
from emberkeep.rest.serving.log_catalogue import TaskManagerLogs
from emberkeep.taskmanager.job_manager_link import JobManagerLink


def log_shipping(
    system: System,
    configuration: Configuration,
    link: JobManagerLink,
    rpc: RpcClient,
    catalogue: TaskManagerLogs,
    live: Callable[[], frozenset[str]],
) -> LogShipping | None:
    """Return what copies the logs in ``catalogue``; None if logs are kept by task managers only.

    ``live``: names the processes that run now.
    """
    if not configuration[LOGS_KEEP_INTERVAL]:
        return None
    settings = ShippingSettings(
        interval=configuration[LOGS_KEEP_INTERVAL],
        timeout=configuration[RPC_TIMEOUT],
        keep=configuration[LOGS_KEPT_RETENTION],
    )
    return LogShipping(
        (link.info.id, link.info.instance),
        catalogue,
        rpc,
        link,
        settings,
        system.clock,
        live=live,
        compress=compress,
        digest=digest_of,
    )
