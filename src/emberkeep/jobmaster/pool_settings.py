"""The limits of a job's slot pool, as the configuration sets them."""

from __future__ import annotations

from emberkeep.base.configuration.options.blocklist import EVACUATION_TIMEOUT
from emberkeep.base.configuration.options.job_managers import HEARTBEAT_TIMEOUT
from emberkeep.base.configuration.options.jobs import (
    EXECUTOR_BACKOFF_INITIAL,
    EXECUTOR_BACKOFF_MAX,
    EXECUTOR_FAILURE_WINDOW,
    EXECUTOR_FAILURES,
    EXECUTOR_START_TIMEOUT,
)
from emberkeep.base.configuration.options.slots import PREEMPTION_TIMEOUT, SLOT_REQUEST_TIMEOUT
from emberkeep.base.configuration.options.task_managers import ORPHAN_TIMEOUT
from emberkeep.base.configuration.values import Configuration
from emberkeep.slots.pool.limits import PoolLimits


def pool_limits(configuration: Configuration) -> PoolLimits:
    return PoolLimits(
        max_failures=configuration[EXECUTOR_FAILURES],
        failure_window=configuration[EXECUTOR_FAILURE_WINDOW],
        backoff_initial=configuration[EXECUTOR_BACKOFF_INITIAL],
        backoff_max=configuration[EXECUTOR_BACKOFF_MAX],
        request_timeout=configuration[SLOT_REQUEST_TIMEOUT],
        silence_timeout=configuration[HEARTBEAT_TIMEOUT],
        start_timeout=configuration[EXECUTOR_START_TIMEOUT],
        orphan_timeout=configuration[ORPHAN_TIMEOUT],
        evacuation_timeout=configuration[EVACUATION_TIMEOUT],
        reclaim_timeout=configuration[PREEMPTION_TIMEOUT],
    )
