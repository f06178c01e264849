"""The lock of a directory, where the file system gives none."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from emberkeep.adapters.processes.place_lock import held
from emberkeep.base.errors import Unavailable


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    before = descriptors()
    with (
        pytest.raises(Unavailable, match=r"cannot lock .*: No locks"),
        held(tmp_path / "lock", "me", hint=""),
    ):
        pass
    assert descriptors() == before
