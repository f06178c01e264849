"""The watchdog's bounds for one job: the cluster's configuration, overridden by the job's own options."""

from __future__ import annotations

from emberkeep.base.configuration.options.watchdog import (
    WATCHDOG_BACKLOG_GROWING_FOR,
    WATCHDOG_BACKLOG_MIN_FILES,
    WATCHDOG_BACKLOG_MIN_ROWS,
    WATCHDOG_BACKLOG_MIN_SIZE,
    WATCHDOG_BACKLOG_MIN_TIME,
    WATCHDOG_COMMIT_FACTOR,
    WATCHDOG_COMMIT_FIRST_TIME,
    WATCHDOG_COMMIT_MIN_TIME,
    WATCHDOG_RESTART,
    WATCHDOG_RESTART_PAUSE,
    WATCHDOG_RESTARTS_MAX,
    WATCHDOG_RESTARTS_WINDOW,
    WATCHDOG_STATE_MAX_ROWS,
    WATCHDOG_STATE_MAX_SIZE,
)
from emberkeep.base.configuration.values import Configuration
from emberkeep.watchdog.model import WatchSettings


def watch_settings(configuration: Configuration) -> WatchSettings:
    return WatchSettings(
        commit_factor=configuration[WATCHDOG_COMMIT_FACTOR],
        commit_min_time=configuration[WATCHDOG_COMMIT_MIN_TIME],
        commit_first_time=configuration[WATCHDOG_COMMIT_FIRST_TIME],
        backlog_growing_for=configuration[WATCHDOG_BACKLOG_GROWING_FOR],
        backlog_min_rows=configuration[WATCHDOG_BACKLOG_MIN_ROWS],
        backlog_min_files=configuration[WATCHDOG_BACKLOG_MIN_FILES],
        backlog_min_bytes=configuration[WATCHDOG_BACKLOG_MIN_SIZE],
        backlog_min_time=configuration[WATCHDOG_BACKLOG_MIN_TIME],
        state_max_rows=configuration[WATCHDOG_STATE_MAX_ROWS],
        state_max_bytes=configuration[WATCHDOG_STATE_MAX_SIZE],
        restarts_max=configuration[WATCHDOG_RESTARTS_MAX],
        restarts_window=configuration[WATCHDOG_RESTARTS_WINDOW],
        restarts_stalled=configuration[WATCHDOG_RESTART],
        restart_pause=configuration[WATCHDOG_RESTART_PAUSE],
    )
