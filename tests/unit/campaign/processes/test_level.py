"""A history that cannot be played to its end has failed: the cluster has not recovered from the one before."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NoReturn

import pytest

from campaign.load import level as load_level
from campaign.load.figures import LoadFigures
from campaign.processes import level
from campaign.processes.figures import ProcessFigures


class Started:
    """A cluster whose processes run, and have logged something."""

    task_managers = ()

    def __init__(self, directory: Path, **_: Any) -> None:
        self.directory = directory

    async def __aenter__(self) -> Started:
        self.directory.mkdir(parents=True)
        (self.directory / "jm-1.log").write_text("waiting for a task manager")
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing runs."""


async def never_settles(*_: object) -> NoReturn:
    raise TimeoutError


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for what is kept of histories."""
    monkeypatch.setattr(level, "RealCluster", Started)
    monkeypatch.setattr(level, "why_not", lambda: "the cluster has no processes")
    monkeypatch.setattr(level, "play_history", never_settles)
    monkeypatch.setattr(load_level, "load_cluster", Started)
    monkeypatch.setattr(load_level, "play_load", never_settles)
    return tmp_path / "kept"


async def test_of_real_processes(kept: Path) -> None:
    figures, said = ProcessFigures(), list[str]()
    await level.run(figures, 1, kept, time.monotonic() + 60, said.append, lambda: True)
    (failed,) = figures.failures
    assert (figures.histories, failed.number) == (1, 0)
    assert "does not recover: not in time" in failed.violation
    assert (Path(failed.kept) / "jm-1.log").exists()
    assert said[0] == "no faults of the network: the cluster has no processes"


async def test_under_load(kept: Path) -> None:
    figures, said = LoadFigures(), list[str]()
    await load_level.run(figures, 1, kept, time.monotonic() + 60, said.append, lambda: None)
    assert figures.histories == len(figures.failures) == load_level.FAILURES_AT_MOST
    assert "does not recover: not in time" in figures.failures[0].violation
    assert (Path(figures.failures[0].kept) / "jm-1.log").exists()
