"""The reliability lab's level with real processes plays, recovers, and finds nothing."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from campaign.processes.figures import ProcessFigures
from campaign.processes.level import run
from tests.campaign import CAMPAIGN
from tests.integration.hosts.requirements import why_not

pytestmark = [pytest.mark.integration, pytest.mark.long]

SECONDS = 60.0  # after which no further history begins


def test_clients_and_faults_for_a_minute(tmp_path: Path) -> None:
    figures, said = ProcessFigures(), list[str]()
    asyncio.run(run(figures, CAMPAIGN or 1, tmp_path, time.monotonic() + SECONDS, said.append, lambda: False))
    assert not figures.failures, "\n".join(said)
    assert figures.histories
    assert sum(figures.faults.values()) >= 20
    assert figures.operations["list: done"]
    assert figures.entries
    assert figures.files
    assert figures.on_transfers or why_not(), "hosts have slow links, and faults that aim at transfers"
    assert figures.undecided < figures.objects
