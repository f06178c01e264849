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
    monkeypatch.setattr(campaign, "CAMPAIGN", seed)
    monkeypatch.setenv("EMBERKEEP_CAMPAIGN_MINUTES", minutes)
    monkeypatch.delenv(UNTIL, raising=False)
    campaign.begin_campaign()
    assert (UNTIL in os.environ) is bounded
    assert not campaign.is_over()
    monkeypatch.setenv(UNTIL, str(time.time() - 1))
    assert campaign.is_over()


def test_each_campaign_plays_files_in_an_order_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [f"test_{number}" for number in range(20)]
    orders = []
    for seed in (1, 1, 2):
        monkeypatch.setattr(campaign, "CAMPAIGN", seed)
        orders.append(sorted(files, key=campaign.place))
    assert orders[0] == orders[1] != orders[2]
