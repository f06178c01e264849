"""All configuration options, by subject. docs/configuration.md is generated from them.

Where Flink has the option, it has Flink's name. An import of any of these modules fills the registry with all options.
"""

from __future__ import annotations

from emberkeep.base.configuration.options import (
    access,
    autoscaling,
    blobs,
    blocklist,
    directories,
    high_availability,
    job_managers,
    jobs,
    local_state,
    logs,
    monitoring,
    resource_drivers,
    restarts,
    savepoints,
    security,
    slots,
    standbys,
    task_managers,
    watchdog,
)

__all__ = [
    "access",
    "autoscaling",
    "blobs",
    "blocklist",
    "directories",
    "high_availability",
    "job_managers",
    "jobs",
    "local_state",
    "logs",
    "monitoring",
    "resource_drivers",
    "restarts",
    "savepoints",
    "security",
    "slots",
    "standbys",
    "task_managers",
    "watchdog",
]
