"""What an upgrade that has ended is said to have led to, while its last job runs and once that has ended, too."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.jobs.upgrades.model import UpgradePhase
from emberkeep.jobs.upgrades.words import upgrade_text
from tests.unit.jobs.upgrades.upgraded_job import BACK, NEW, OLD, UpgradedJob


@pytest.mark.parametrize(
    ("phase", "kept", "running", "over"),
    [
        (UpgradePhase.DONE, NEW, f"the new code runs as job {NEW[:8]}", f"the new code ran as job {NEW[:8]}"),
        (
            UpgradePhase.RETURNED,
            BACK,
            f"the old code was started again, as job {BACK[:8]}, because of a bug",
            f"the old code was started again, as job {BACK[:8]}, because of a bug",
        ),
        (
            UpgradePhase.UNCHANGED,
            OLD,
            f"job {OLD[:8]} continues as before: of a bug",
            f"job {OLD[:8]} was not upgraded: of a bug",
        ),
    ],
)
def test_a_job_that_has_ended_since_is_not_said_to_run(phase: UpgradePhase, kept: str, running: str, over: str) -> None:
    upgrade = msgspec.structs.replace(UpgradedJob().stored, phase=phase, reason="of a bug")
    assert upgrade.kept_job == kept
    assert upgrade_text(upgrade) == running
    assert upgrade_text(upgrade, end="is FAILED") == f"{over}; job {kept[:8]} is FAILED"


def test_an_upgrade_that_goes_on_keeps_no_job_yet() -> None:
    assert UpgradedJob().stored.kept_job is None
