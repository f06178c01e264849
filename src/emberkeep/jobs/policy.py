"""The numbers that govern one job's life: the cluster's configuration, overridden by the job's own options."""

from __future__ import annotations

from dataclasses import dataclass

from emberkeep.base.configuration import options
from emberkeep.base.configuration.values import Configuration

REPEAT = 2.0  # seconds after which an order to a task manager that shows no effect yet is given again
LISTENED_BEATS = 2  # heartbeats in whose time task managers that can be heard have registered


@dataclass(frozen=True)
class JobPolicy:
    """All durations in seconds."""

    heartbeat_timeout: float
    lease: float
    start_timeout: float
    place_timeout: float  # 0: wait for ever
    grace: float
    restarts_script_failures: bool
    start_attempts: int = 0  # that fail in a row for one reason; 0: no limit
    script_timeout: float = 60.0  # that the script has left once the job is stopped
    repeat: float = REPEAT
    listening: float = 0.0  # to task managers, before a job that was read from the store is given a next attempt


def job_policy(configuration: Configuration) -> JobPolicy:
    return JobPolicy(
        heartbeat_timeout=configuration[options.HEARTBEAT_TIMEOUT],
        lease=configuration[options.DRIVER_LEASE],
        start_timeout=configuration[options.DRIVER_START_TIMEOUT],
        place_timeout=configuration[options.SLOT_REQUEST_TIMEOUT],
        grace=configuration[options.CANCELLATION_TIMEOUT],
        restarts_script_failures=configuration[options.RESTART_ON] == "any",
        start_attempts=configuration[options.DRIVER_START_ATTEMPTS],
        script_timeout=configuration[options.STOP_SCRIPT_TIMEOUT],
        listening=LISTENED_BEATS * configuration[options.HEARTBEAT_INTERVAL],
    )
