"""The supervisor reaps orphans; it must not reap what the library cache has started and waits for."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.adapters.processes.family import reap_orphans
from emberkeep.adapters.processes.table import take_table
from emberkeep.base.errors import Fatal
from emberkeep.taskmanager.libraries.cache import PYTHON
from emberkeep.taskmanager.libraries.python import check_interpreter
from emberkeep.taskmanager.libraries.unpack_process import unpack_apart
from emberkeep.taskmanager.libraries.unpacking import UnpackLimits

TRIES = 10


@pytest.fixture
def _reaper() -> Iterator[None]:
    """A supervisor's search for orphans, over and over."""
    over = threading.Event()

    def search() -> None:
        while not over.is_set():
            reap_orphans(take_table())

    thread = threading.Thread(target=search)
    thread.start()
    yield
    over.set()
    thread.join()


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.usefixtures("_reaper")
def test_an_unpacking_process_that_was_killed_has_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = program(tmp_path / "python", "exec >&- 2>&-; sleep 0.15; kill -KILL $$")
    monkeypatch.setattr(sys, "executable", str(killed))
    for _ in range(TRIES):
        with pytest.raises(Fatal, match=r"cannot unpack env\.zip: its process ended with -9"):
            unpack_apart(tmp_path / "env.zip", "env.zip", tmp_path / "content", UnpackLimits(), threading.Event())


@pytest.mark.usefixtures("_reaper")
def test_an_interpreter_that_fails_does_not_start(tmp_path: Path) -> None:
    program(tmp_path / "python", "exec >&- 2>&-; sleep 0.15; exit 3")
    for _ in range(TRIES):
        with pytest.raises(Fatal, match=r"python in env\.zip does not start"):
            check_interpreter(tmp_path, "python", "env.zip", PYTHON)
