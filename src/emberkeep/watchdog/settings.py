"""The watchdog's bounds for one job: the cluster's configuration, overridden by the job's own options."""

from __future__ import annotations

from emberkeep.base.configuration import options
from emberkeep.base.configuration.values import Configuration
from emberkeep.watchdog.model import WatchSettings


def watch_settings(configuration: Configuration) -> WatchSettings:
    return WatchSettings(
        commit_factor=configuration[options.WATCHDOG_COMMIT_FACTOR],
        commit_min_time=configuration[options.WATCHDOG_COMMIT_MIN_TIME],
        commit_first_time=configuration[options.WATCHDOG_COMMIT_FIRST_TIME],
        backlog_growing_for=configuration[options.WATCHDOG_BACKLOG_GROWING_FOR],
        backlog_min_rows=configuration[options.WATCHDOG_BACKLOG_MIN_ROWS],
        backlog_min_files=configuration[options.WATCHDOG_BACKLOG_MIN_FILES],
        backlog_min_bytes=configuration[options.WATCHDOG_BACKLOG_MIN_SIZE],
        backlog_min_time=configuration[options.WATCHDOG_BACKLOG_MIN_TIME],
        state_max_rows=configuration[options.WATCHDOG_STATE_MAX_ROWS],
        state_max_bytes=configuration[options.WATCHDOG_STATE_MAX_SIZE],
        restarts_max=configuration[options.WATCHDOG_RESTARTS_MAX],
        restarts_window=configuration[options.WATCHDOG_RESTARTS_WINDOW],
        restarts_stalled=configuration[options.WATCHDOG_RESTART],
        restart_pause=configuration[options.WATCHDOG_RESTART_PAUSE],
    )
