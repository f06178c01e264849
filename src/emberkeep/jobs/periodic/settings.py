"""The settings of a job's periodic savepoints: the cluster's configuration, overridden by the job's own options."""

from __future__ import annotations

from emberkeep.base.configuration import options
from emberkeep.base.configuration.values import Configuration
from emberkeep.jobs.periodic.model import PeriodicSettings


def periodic_settings(configuration: Configuration) -> PeriodicSettings:
    return PeriodicSettings(
        interval=configuration[options.SAVEPOINT_INTERVAL],
        retained=configuration[options.SAVEPOINTS_RETAINED],
        max_age=configuration[options.SAVEPOINT_MAX_AGE],
    )
