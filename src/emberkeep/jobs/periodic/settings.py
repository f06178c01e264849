"""The settings of a job's periodic savepoints: the cluster's configuration, overridden by the job's own options."""

from __future__ import annotations

from emberkeep.base.configuration.options.savepoints import SAVEPOINT_INTERVAL, SAVEPOINT_MAX_AGE, SAVEPOINTS_RETAINED
from emberkeep.base.configuration.values import Configuration
from emberkeep.jobs.periodic.model import PeriodicSettings


def periodic_settings(configuration: Configuration) -> PeriodicSettings:
    return PeriodicSettings(
        interval=configuration[SAVEPOINT_INTERVAL],
        retained=configuration[SAVEPOINTS_RETAINED],
        max_age=configuration[SAVEPOINT_MAX_AGE],
    )
