"""Worlds that campaigns have kept: each broke a rule once, of the product or of a copy with a planted bug."""

from pathlib import Path

import pytest

from campaign.playing import play_world
from campaign.simulation import KEPT
from campaign.world import read

WORLDS = sorted(KEPT.glob("*.json"))


@pytest.mark.parametrize("path", WORLDS, ids=lambda path: path.stem)
def test_a_kept_world_breaks_no_rule(path: Path) -> None:
    kept = read(path)
    report = play_world(kept.world).report
    command = f"python -m campaign --replay {path} --verbose"
    assert not report.violations, f"it once found: {kept.found}\nreplay: {command}\n{report.failure()}"


def test_there_are_kept_worlds() -> None:
    assert WORLDS
