"""``cluster up`` right after a daemon was killed, while the kernel still takes it apart."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.configuration.layout import state_layout
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.processes.process_identity import ProcessIdentity, identify, is_alive, is_ending
from emberkeep.client.clusters.cluster_file import ClusterRecord, ClusterShape, DaemonRecord, write_cluster
from emberkeep.client.clusters.local_cluster import LocalCluster, UpResult

EXIT_OF_ONE_THREAD = {"x86_64": 60, "aarch64": 93}  # system call numbers
SHAPE = ClusterShape(nodes=("127.0.0.1",), slots=1, memory="", definitions=())
# Its main thread has ended. The other one is still busy, as with a process that is being killed.
SCRIPT = """
import ctypes, os, sys, threading, time
def last():
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=last).start()
print(flush=True)
ctypes.CDLL(None).syscall(int(sys.argv[1]), 0)
"""


@pytest.fixture
def dying() -> Iterator[subprocess.Popen[str]]:
    number = EXIT_OF_ONE_THREAD.get(platform.machine())
    if number is None:
        pytest.skip("the number of a system call is not known for this machine")
    words = [sys.executable, "-c", SCRIPT, str(number)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


@pytest.fixture
def running() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(["sleep", "60"], text=True) as process:
        yield process
        process.kill()


class Seen(LocalCluster):
    """Says what it would complete instead of starting anything."""

    known: ClusterRecord | None = None

    async def _complete(self, record: ClusterRecord | None, *_: object) -> UpResult:
        self.known = record
        raise InterruptedError


async def test_a_daemon_that_is_about_to_end_does_not_count_as_running(
    dying: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = identify(dying.pid)
    assert identity is not None
    while not is_ending(identity):
        assert is_alive(identity)
    cluster = cluster_with(identity, tmp_path)
    looks: list[bool] = []

    def look(each: ProcessIdentity) -> bool:
        looks.append(is_ending(each))
        if len(looks) == 3:
            assert dying.stdin is not None
            dying.stdin.close()
            dying.wait()
        return looks[-1]

    monkeypatch.setattr("emberkeep.client.clusters.cluster_file.is_ending", look)
    with pytest.raises(InterruptedError):
        await cluster.up(SHAPE)
    assert cluster.known is None, "nothing of the last cluster runs"
    assert looks[:4] == [True, True, True, False]


async def test_a_daemon_that_runs_is_not_waited_for(running: subprocess.Popen[str], tmp_path: Path) -> None:
    identity = identify(running.pid)
    assert identity is not None
    assert not is_ending(identity)
    cluster = cluster_with(identity, tmp_path)
    with pytest.raises(InterruptedError):
        await cluster.up(SHAPE)
    assert cluster.known is not None
    running.kill()
    running.wait()
    assert not is_ending(identity), "it has ended"


def cluster_with(identity: ProcessIdentity, directory: Path) -> Seen:
    configuration = Configuration().with_texts({"emberkeep.state-dir": str(directory)}, "test")
    layout = state_layout(configuration, {})
    daemon = DaemonRecord(name="jobmanager", identity=identity, directory=str(directory))
    record = ClusterRecord(
        url="http://127.0.0.1:1", token_file="", shape=SHAPE, job_manager=daemon, task_managers=(), ca="ca.pem"
    )
    write_cluster(layout.cluster_file, record)
    return Seen(configuration, layout, None, lambda _: None)
