"""What an upgrade that goes on needs, so that nobody else may take or delete it. Pure."""

from __future__ import annotations

from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.upgrades.model import Upgrade


def needed_savepoints(upgrade: Upgrade, pointers: JobPointers) -> list[str]:
    """Return where the savepoint is from which the upgrade starts its jobs; nothing if it has ended.

    ``pointers``: of the old job. Between the end of that job's stop and the upgrade's next record, only they name the
    savepoint.
    """
    if upgrade.phase.is_final:
        return []
    made = [each.path for each in pointers.savepoints if each.trigger_id == upgrade.upgrade_id]
    return [upgrade.savepoint, *made] if upgrade.savepoint else made
