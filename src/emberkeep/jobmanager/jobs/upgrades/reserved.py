"""Which jobs only an upgrade may start: two versions must not run at once. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from emberkeep.base.errors import Conflict
from emberkeep.jobmanager.jobs.job_table import JobTable
from emberkeep.jobmanager.jobs.upgrades.facts import pointers_of
from emberkeep.jobs.model import JobGraph
from emberkeep.jobs.upgrades.model import Upgrade
from emberkeep.jobs.upgrades.needs import needed_savepoints
from emberkeep.lifecycle.locations import is_same_place


def refuse_reserved(graph: JobGraph, upgrades: Iterable[Upgrade], table: JobTable) -> None:
    """Raise Conflict if the job has an id or a savepoint from which one of ``upgrades`` starts a job itself."""
    for upgrade in upgrades:
        needed = needed_savepoints(upgrade, pointers_of(upgrade.job_id, table)) if graph.savepoint else []
        if graph.job_id in upgrade.jobs or any(is_same_place(each, graph.savepoint) for each in needed):
            raise Conflict(
                f"the upgrade {upgrade.upgrade_id} of job {upgrade.job_id} goes on, and starts this itself",
                hint=f"`emberkeep upgrade {upgrade.job_id[:8]}` follows it; --cancel goes back to the old code",
            )
