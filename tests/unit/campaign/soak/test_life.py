"""What does not end as it must in a soak is a problem, whatever it is."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from campaign.soak.life import Life
from campaign.soak.plan import Deed


class FullDisk(Life):
    """Its jobs cannot write."""

    async def _job(self, _: Random) -> None:
        raise OSError(28, "No space left on device")


async def test_a_deed_that_fails_in_an_unforeseen_way_is_a_problem(tmp_path: Path) -> None:
    nothing: Any = SimpleNamespace()
    life = FullDisk(nothing, nothing, tmp_path, streams=0)
    await life._do(Deed(0.0, "job", 1), time.monotonic())
    assert life.problems == ["job: OSError: [Errno 28] No space left on device"]
