"""The numbers that govern one job: the cluster's configuration, overridden by the job's own options."""

from __future__ import annotations

from dataclasses import dataclass

from emberkeep.base.configuration.options.job_managers import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT
from emberkeep.base.configuration.options.jobs import (
    CANCELLATION_TIMEOUT,
    DRIVER_LEASE,
    DRIVER_START_ATTEMPTS,
    DRIVER_START_TIMEOUT,
)
from emberkeep.base.configuration.options.restarts import RESTART_ON
from emberkeep.base.configuration.options.savepoints import STOP_SCRIPT_TIMEOUT
from emberkeep.base.configuration.options.slots import SLOT_REQUEST_TIMEOUT
from emberkeep.base.configuration.values import Configuration

REPEAT = 2.0  # seconds after which an order without visible effect is repeated
LISTENED_BEATS = 2  # heartbeat intervals within which all reachable task managers have registered


@dataclass(frozen=True)
class JobPolicy:
    """The numbers for one job. All durations are in seconds."""

    heartbeat_timeout: float
    lease: float
    start_timeout: float
    place_timeout: float  # 0: wait without limit
    grace: float
    restarts_script_failures: bool
    start_attempts: int = 0  # failed starts in a row for one reason; 0: no limit
    script_timeout: float = 60.0  # time for the script to end once the job is stopped
    repeat: float = REPEAT
    listening: float = 0.0  # wait for task managers' reports before a recovered job's next attempt


def job_policy(configuration: Configuration) -> JobPolicy:
    return JobPolicy(
        heartbeat_timeout=configuration[HEARTBEAT_TIMEOUT],
        lease=configuration[DRIVER_LEASE],
        start_timeout=configuration[DRIVER_START_TIMEOUT],
        place_timeout=configuration[SLOT_REQUEST_TIMEOUT],
        grace=configuration[CANCELLATION_TIMEOUT],
        restarts_script_failures=configuration[RESTART_ON] == "any",
        start_attempts=configuration[DRIVER_START_ATTEMPTS],
        script_timeout=configuration[STOP_SCRIPT_TIMEOUT],
        listening=LISTENED_BEATS * configuration[HEARTBEAT_INTERVAL],
    )
