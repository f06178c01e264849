"""JobManagers that the command finds by EMBERKEEP_URL."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.scripted_gateway import Scripted, serving_gateway
from tests.unit.client.fake_job_manager import TOKEN, FakeJobManager


@pytest.fixture(autouse=True)
def terminal() -> Iterator[None]:
    """Let the end of the terminal end commands, also if it does not end the tests: they may run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeJobManager]:
    for name in [name for name in os.environ if name.startswith("EMBERKEEP_")]:
        monkeypatch.delenv(name)
    state = tmp_path / "state"
    state.mkdir()
    (state / "token").write_text(TOKEN)
    monkeypatch.setenv("EMBERKEEP_STATE_DIR", str(state))
    with FakeJobManager().serving() as server:
        monkeypatch.setenv("EMBERKEEP_SECURITY__ENCRYPTION", "none")
        monkeypatch.setenv("EMBERKEEP_URL", server.url)
        yield server


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    with serving_gateway(tmp_path, monkeypatch) as served:
        yield served
