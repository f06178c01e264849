"""The reliability lab's level with load beside faults plays, and finds nothing."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from campaign.load.figures import LoadFigures
from campaign.load.history import Load
from campaign.load.level import run
from tests.campaign import CAMPAIGN

pytestmark = [pytest.mark.integration, pytest.mark.long]

LOAD = Load(clients=15, blob_bytes=8 << 20)
SECONDS = 30.0


def test_clients_a_fuzzer_and_uploads_while_leaders_are_lost(tmp_path: Path) -> None:
    figures, said = LoadFigures(), list[str]()
    one = run(
        figures, CAMPAIGN or 1, tmp_path, time.monotonic() + 1, said.append, lambda: None, load=LOAD, seconds=SECONDS
    )
    asyncio.run(one)
    assert not figures.failures, "\n".join(said)
    assert figures.histories == 1
    assert figures.faults
    assert figures.operations["submit: done"]
    assert figures.operations["cancel: done"]
    assert figures.accepted
    assert figures.fuzzed
    assert figures.uploaded >= LOAD.blob_bytes
    assert figures.removed == figures.uploaded
    assert figures.undecided < figures.objects
