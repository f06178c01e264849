"""The limits of a slot pool, from the job's configuration."""

from __future__ import annotations

from typing import NamedTuple


class PoolLimits(NamedTuple):
    """The limits of one slot pool. Times are in seconds."""

    max_failures: int  # more failures than this in failure_window fail the attempt
    failure_window: float
    backoff_initial: float
    backoff_max: float
    request_timeout: float  # without any slot for this long, the attempt fails; 0: never
    silence_timeout: float  # of a task manager, or of an executor that Spark no longer lists
    start_timeout: float  # for an executor to register with Spark
    orphan_timeout: float  # for which an executor is kept while its task manager is silent
    evacuation_timeout: float  # for an executor to leave an evacuated place
    reclaim_timeout: float  # for an executor to leave a slot that other jobs are entitled to
