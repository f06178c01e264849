"""The reliability lab's soak lives, samples what daemons hold, and continues on its data in the next run."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from campaign.soak.figures import SoakFigures
from campaign.soak.level import run
from tests.campaign import CAMPAIGN

pytestmark = [pytest.mark.integration, pytest.mark.long]

ROUND = 20.0


def test_two_runs_of_one_life(tmp_path: Path) -> None:
    figures, said = SoakFigures(), list[str]()
    for number in (1, 2):
        folder = tmp_path / "soak"
        until = time.monotonic() + 1  # for one round
        asyncio.run(run(figures, CAMPAIGN or 1, folder, until, said.append, lambda: None, streams=0, seconds=ROUND))
        assert not figures.problems, "\n".join(figures.problems)
        assert (figures.runs, figures.rounds) == (number, number)
    assert figures.deeds["job"] >= 2
    by_subject = {sample.subject: sample.values for sample in figures.samples}
    assert set(by_subject) == {"leader", "standby", "task manager", "cluster"}
    assert set(by_subject["leader"]) == {"resident: memory MiB", "open: descriptors", "running: threads"}
    assert by_subject["cluster"]["ZooKeeper: nodes"] > 5
    assert by_subject["cluster"]["database: bytes MiB"] > 0
