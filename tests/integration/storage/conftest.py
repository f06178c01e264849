"""What drills share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.commands import Shell
from tests.integration.storage.drill import Drill


@pytest.fixture(params=[0, 3], ids=["file", "zookeeper"])
def drill(
    shell: Shell,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[Drill]:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:-UsePerfData")  # servers that are killed leave no file of that
    drill = Drill(shell, tmp_path, tmp_path_factory.mktemp("servers"), request.param)
    try:
        drill.found_ensemble()
        yield drill
        drill.cluster.cancel_all()
    finally:
        try:
            drill.cluster.close()
        finally:
            drill.lose_ensemble()
