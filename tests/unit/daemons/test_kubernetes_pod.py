"""The first process of a task manager's container: how it passes signals on, and what it does about those that end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from emberkeep.base.processes.process_identity import read_stat
from tests.integration.conditions import until

# In place of the task manager: its first process leaves a child behind, the second one ends when it must drain.
_AGENT = """
import os, signal, subprocess, sys, time
from pathlib import Path
place = Path({place!r})
if not (place / "child").exists():
    child = subprocess.Popen(["sleep", "1000"])
    (place / "new").write_text(str(child.pid))
    (place / "new").rename(place / "child")
    os._exit(70)
def ends(number, _):
    (place / "signal").write_text(str(number))
    sys.exit(0)
signal.signal(signal.SIGUSR1, ends)
(place / "again").write_text(" ".join(sys.argv[1:]))
while True:
    time.sleep(0.05)
"""
# As the first process of a container does, it becomes the parent of those whose parent has ended.
_FIRST = """
import ctypes, sys
from emberkeep.daemons.supervision import kubernetes_pod, supervised_agent
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
supervised_agent.AGENT[:] = [sys.executable, {agent!r}]
supervised_agent._PAUSE = supervised_agent._REPEAT = 0.1
sys.exit(kubernetes_pod.main(["--state-dir", "x"]))
"""
# In place of psutil, which the supervisor imports: says so, waits, then lets an agent of the test's own run.
_SLOW_IMPORT = """
import sys, time
from pathlib import Path
place = Path({place!r})
(place / "imports").touch()
while not (place / "go-on").exists():
    time.sleep(0.01)
sys.path.remove(str(place))
del sys.modules["psutil"]
import psutil
sys.executable = {agent!r}
"""


@pytest.fixture
def container(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    agent = tmp_path / "agent.py"
    agent.write_text(_AGENT.format(place=str(tmp_path)))
    process = subprocess.Popen([sys.executable, "-c", _FIRST.format(agent=str(agent))], stderr=subprocess.DEVNULL)
    until((tmp_path / "again").exists, "the task manager was started again")
    yield process
    end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a container's first process, and all that it has started, as the end of a container would."""
    left = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.kill()
    process.wait()
    for each in left:
        with suppress(psutil.NoSuchProcess):
            each.kill()


def test_the_end_of_a_pod_is_the_order_to_drain(container: subprocess.Popen[bytes], tmp_path: Path) -> None:
    assert (tmp_path / "again").read_text() == "--state-dir x"
    container.send_signal(signal.SIGTERM)
    assert container.wait(60) == 0
    assert (tmp_path / "signal").read_text() == str(int(signal.SIGUSR1))
    subprocess.run(["kill", (tmp_path / "child").read_text()], check=True)


def test_what_an_earlier_task_manager_has_left_is_reaped(container: subprocess.Popen[bytes], tmp_path: Path) -> None:
    child = int((tmp_path / "child").read_text())
    stat = read_stat(child)
    assert stat is not None
    assert stat.parent == container.pid
    subprocess.run(["kill", str(child)], check=True)
    until(lambda: read_stat(child) is None, "the child is reaped")


def test_an_order_that_comes_while_the_supervisor_is_imported_is_kept(tmp_path: Path) -> None:
    (tmp_path / "child").touch()
    agent = tmp_path / "agent"
    agent.write_text(f"#!{sys.executable}\n{_AGENT.format(place=str(tmp_path))}")
    agent.chmod(0o700)
    (tmp_path / "psutil.py").write_text(_SLOW_IMPORT.format(place=str(tmp_path), agent=str(agent)))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "emberkeep.daemons.supervision.kubernetes_pod"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), *sys.path))},
    )
    try:
        until((tmp_path / "imports").exists, "the supervisor is imported")
        process.send_signal(signal.SIGTERM)
        (tmp_path / "go-on").touch()
        assert process.wait(60) == 0
    finally:
        end(process)
    assert (tmp_path / "signal").read_text() == str(int(signal.SIGUSR1))
