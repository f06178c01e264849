"""A start that fails leaves nothing behind, at whatever step it fails."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import psutil
import pytest

from emberkeep.adapters.cgroups.registry import ProcessGroups
from emberkeep.adapters.processes import start
from emberkeep.adapters.processes.start import launch, new_marker
from emberkeep.base.errors import RetryLater
from emberkeep.base.processes.process_identity import ProcessStat
from emberkeep.base.processes.waited_for import WAITED_FOR
from tests.unit.adapters.processes.running import sleeper


def test_a_process_that_cannot_be_looked_at_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_descriptor(_: int) -> ProcessStat | None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(start, "read_stat", no_descriptor)
    children, waited_for = psutil.Process().children(), set(WAITED_FOR)
    with pytest.raises(RetryLater, match="cannot look at sleeper"):
        launch(sleeper(tmp_path), tmp_path, new_marker("sleeper"), ProcessGroups())
    assert psutil.Process().children() == children
    assert waited_for == WAITED_FOR
    assert list(tmp_path.glob("*.process")) == []
