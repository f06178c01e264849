"""A process enters a directory that its job names by itself, so that nobody waits for it if that does not answer."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from emberkeep.adapters.processes.supervisor import Exit, ProcessSupervisor, StartRequest
from emberkeep.base.errors import Fatal
from tests.unit.adapters.processes.running import ended, running

pytestmark = pytest.mark.anyio

SHOW = """
import json, os, sys
print(json.dumps([os.getcwd(), os.environ["NAME"], sys.argv[1:], os.getpid()]))
"""


def request(directory: Path, **changes: Any) -> StartRequest:
    values = {
        "name": "driver",
        "argv": (sys.executable, "-P", "-c", SHOW, "a b"),
        "environ": {**os.environ, "NAME": "caf\udce9", "PYTHONDONTWRITEBYTECODE": "1"},
        "directory": directory,
        "stdout": directory / "out",
        "stderr": directory / "err",
        **changes,
    }
    return StartRequest(**values)


async def test_the_program_runs_in_it_as_the_process_that_was_started(tmp_path: Path) -> None:
    wanted = tmp_path / "the job's"
    wanted.mkdir()
    supervisor, exits = ProcessSupervisor(tmp_path / "records"), list[Exit]()
    async with running(supervisor):
        pid = await supervisor.start(request(tmp_path, enter=wanted), exits.append)
        await ended(exits)
    assert json.loads((tmp_path / "out").read_text()) == [str(wanted), "caf\udce9", ["a b"], pid]
    assert [each.exit_code for each in exits] == [0]


async def test_a_process_that_cannot_enter_it_says_so_and_the_start_has_succeeded(tmp_path: Path) -> None:
    supervisor, exits = ProcessSupervisor(tmp_path / "records"), list[Exit]()
    async with running(supervisor):
        await supervisor.start(request(tmp_path, enter=tmp_path / "gone"), exits.append)
        await ended(exits)
    assert [each.exit_code for each in exits] == [1]
    said = (tmp_path / "err").read_text()
    assert said == f"emberkeep: cannot enter {tmp_path}/gone: No such file or directory\n"


async def test_a_program_that_is_not_there_is_noticed_at_the_start(tmp_path: Path) -> None:
    supervisor = ProcessSupervisor(tmp_path / "records")
    async with running(supervisor):
        with pytest.raises(Fatal, match="/no/such/program"):
            await supervisor.start(request(tmp_path, enter=tmp_path, argv=("/no/such/program",)), lambda _: None)


async def test_the_program_ignores_no_signals_that_python_ignores(tmp_path: Path) -> None:
    """A program that is not Python, which ignores some at its own start."""
    supervisor, exits = ProcessSupervisor(tmp_path / "records"), list[Exit]()
    async with running(supervisor):
        show = ("grep", "SigIgn", "/proc/self/status")
        await supervisor.start(request(tmp_path, enter=tmp_path, argv=show), exits.append)
        await ended(exits)
    ignored = int((tmp_path / "out").read_text().split()[1], 16)
    assert [each for each in (signal.SIGPIPE, signal.SIGXFSZ) if ignored >> (each - 1) & 1] == []
