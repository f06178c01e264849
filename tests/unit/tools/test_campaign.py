"""The time budget of a campaign."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import campaign

ROOT = Path(__file__).parents[3]
UNTIL = "EMBERKEEP_CAMPAIGN_UNTIL"


def test_no_test_begins_after_the_time_of_a_campaign() -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "0",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/property/test_leadership.py",
    ]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("EMBERKEEP_CAMPAIGN", "PYTEST_"))}
    environment = {**kept, "EMBERKEEP_CAMPAIGN": "7", UNTIL: str(time.time() - 1)}
    done = subprocess.run(command, check=False, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" not in done.stdout
    assert re.search(r"over before [1-9][0-9]* tests began", done.stdout)


@pytest.mark.parametrize(
    ("seed", "minutes", "bounded"), [(7, "30", True), (7, "0", False), (7, "", False), (None, "30", False)]
)
def test_only_a_campaign_with_minutes_ends(
    seed: int | None, minutes: str, bounded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setattr(campaign, "CAMPAIGN", seed)
    monkeypatch.setenv("EMBERKEEP_CAMPAIGN_MINUTES", minutes)
    monkeypatch.delenv(UNTIL, raising=False)
    campaign.begin_campaign()
    assert (UNTIL in os.environ) is bounded
    assert not campaign.is_over()
    monkeypatch.setenv(UNTIL, str(time.time() - 1))
    assert campaign.is_over()


FILES = [f"a room/test_{number}" for number in range(20)]


def order(monkeypatch: pytest.MonkeyPatch, seed: int, began: float) -> list[str]:
    monkeypatch.setattr(campaign, "ORDER", str(seed))
    monkeypatch.setenv("EMBERKEEP_CAMPAIGN_BEGAN", str(began))
    return sorted(FILES, key=campaign.place)


def test_each_campaign_plays_files_in_an_order_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(campaign, "FOUND", tmp_path)
    first, again, other = (order(monkeypatch, seed, 100.0) for seed in (1, 1, 2))
    assert first == again != other


def begin(monkeypatch: pytest.MonkeyPatch, name: str, seconds: float) -> None:
    """A campaign that begins at this time plays one file."""
    monkeypatch.setenv("EMBERKEEP_CAMPAIGN_BEGAN", str(seconds))
    campaign.begin_file(name)
    os.utime(campaign.FOUND / "begun" / name, (seconds, seconds))


def test_what_has_not_begun_for_longest_begins_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(campaign, "FOUND", tmp_path)
    for name, seconds in ((FILES[3], 300.0), (FILES[5], 200.0)):
        begin(monkeypatch, name, seconds)
    played = order(monkeypatch, 1, began=400.0)
    assert played[-2:] == [FILES[5], FILES[3]]
    for name in (FILES[5], FILES[7]):
        begin(monkeypatch, name, 400.0)
    assert order(monkeypatch, 1, began=400.0) == played, "also for a process that joins this campaign later"
    assert set(order(monkeypatch, 1, began=500.0)[-3:]) == {FILES[3], FILES[5], FILES[7]}
