"""Directories that are made while the umask lets everybody write."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import emberkeep
from emberkeep.adapters.shared_storage.checkpoint_place import make_checkpoint_place
from emberkeep.base.files.private import make_private
from emberkeep.spark.files.disk import make_private_directory


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """A state directory that others may read, while the umask hides nothing."""
    before = os.umask(0)
    try:
        state = tmp_path / "state"
        state.mkdir(mode=0o755)
        yield state
    finally:
        os.umask(before)


def modes(below: Path) -> dict[str, int]:
    return {str(path.relative_to(below)): path.stat().st_mode & 0o777 for path in below.rglob("*") if path.is_dir()}


@pytest.mark.req("SEC-5")
def test_only_the_owner_uses_a_private_directory_and_not_everybody_writes_above_it(state: Path) -> None:
    make_private(state / "jobmanager" / "logs" / "old")
    make_private(state / "jobmanager" / "logs" / "old")
    assert modes(state) == {"jobmanager": 0o775, "jobmanager/logs": 0o775, "jobmanager/logs/old": 0o700}
    assert state.stat().st_mode & 0o777 == 0o755


@pytest.mark.req("SEC-5")
def test_not_everybody_writes_in_a_state_directory(state: Path) -> None:
    make_checkpoint_place(state / "storage" / "checkpoints")
    make_private_directory(str(state / "savepoints" / "flights" / "savepoint-1"))
    assert [path for path, mode in modes(state).items() if mode & 0o002] == []


def test_a_file_in_the_way_is_told(state: Path) -> None:
    (state / "file").write_text("")
    for path in (state / "file", state / "file" / "below", state / "file" / "far" / "below"):
        with pytest.raises((FileExistsError, NotADirectoryError)):
            make_private(path)


@pytest.mark.req("SEC-5")
def test_no_private_directory_is_made_below_ones_that_everybody_writes() -> None:
    """``Path.mkdir`` with ``parents`` uses its mode for the last directory only."""
    calls = re.compile(r"\.mkdir\((?=[^)]*mode=0o700)(?=[^)]*parents=True)(?=[^)]*exist_ok=True)")
    sources = Path(str(emberkeep.__file__)).parent.rglob("*.py")
    assert [path.name for path in sources if calls.search(path.read_text(encoding="utf-8"))] == []
