"""The form of an upgrade in replies. Pure."""

from __future__ import annotations

from emberkeep.jobmanager.views.upgrades import UpgradeView
from emberkeep.protocol.upgrades.rest_upgrades import UpgradeInfo


def upgrade_info(view: UpgradeView) -> UpgradeInfo:
    upgrade = view.upgrade
    return UpgradeInfo(
        upgrade_id=upgrade.upgrade_id,
        phase=upgrade.phase,
        text=view.text,
        old_job=upgrade.job_id,
        new_job=upgrade.new_id,
        back_job=upgrade.back_id,
        savepoint=upgrade.savepoint,
        batches=upgrade.batches,
        within=upgrade.within_ms,
        restarts=upgrade.restarts,
        began=upgrade.began_ms,
        phase_began=upgrade.phase_ms,
        ended=upgrade.ended_ms or -1,
        reason=upgrade.reason,
        canceled_by=upgrade.canceled_by,
    )
