"""What is noted about upgrades: in the events of the old job, and of the job that takes its place. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from emberkeep.base.ids import JobId
from emberkeep.chronicle.occurrence import Occurrence, What
from emberkeep.jobs.upgrades.model import Upgrade, UpgradePhase
from emberkeep.jobs.upgrades.words import upgrade_text

_SECOND = {
    UpgradePhase.WATCHING: "new",
    UpgradePhase.DONE: "new",
    UpgradePhase.CANCELLING: "new",
    UpgradePhase.RETURNED: "back",
}


def upgrade_begun(upgrade: Upgrade, by: str) -> Occurrence:
    return _about(upgrade.job_id, upgrade, f"{by or 'the cluster'} asked to upgrade the job to new code", by)


def upgrade_entered(upgrade: Upgrade) -> Iterator[Occurrence]:
    """Yield what is noted when an upgrade has entered its phase."""
    text = f"upgrade: {_text(upgrade)}"
    yield _about(upgrade.job_id, upgrade, text)
    second = _SECOND.get(upgrade.phase)
    if second is not None:
        yield _about(upgrade.new_id if second == "new" else upgrade.back_id, upgrade, text)


def _text(upgrade: Upgrade) -> str:
    if upgrade.phase is UpgradePhase.WATCHING:
        return (
            f"job {upgrade.new_id[:8]} has started with the new code; each query must commit {upgrade.batches} batches"
        )
    if upgrade.phase is UpgradePhase.DONE:
        return f"{upgrade_text(upgrade)}, and is good"
    return upgrade_text(upgrade)


def _about(job_id: JobId, upgrade: Upgrade, message: str, by: str = "") -> Occurrence:
    return Occurrence(
        what=What.UPGRADE,
        message=message,
        by=by,
        job_id=job_id,
        details={
            "upgrade": upgrade.upgrade_id,
            "phase": upgrade.phase.value,
            "old": upgrade.job_id,
            "new": upgrade.new_id,
            **({"back": upgrade.back_id} if upgrade.phase is UpgradePhase.RETURNED else {}),
            **({"savepoint": upgrade.savepoint} if upgrade.savepoint else {}),
        },
    )
