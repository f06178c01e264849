import os
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from emberkeep.base.processes.process_identity import (
    boot_id,
    identify,
    is_alive,
    own_identity,
    read_stat,
)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own that waits for the end of its input."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, start_new_session=True
    )
    yield process
    process.kill()
    process.communicate()


def test_a_process_knows_itself() -> None:
    mine = own_identity()
    assert mine.pid == os.getpid()
    assert mine.boot_id == boot_id()
    assert is_alive(mine)


def test_a_live_child_is_alive_and_a_dead_one_is_not(child: subprocess.Popen[bytes]) -> None:
    identity = identify(child.pid)
    assert identity is not None
    assert is_alive(identity)
    stat = read_stat(child.pid)
    assert stat is not None
    assert not stat.is_ending
    child.kill()
    child.communicate()
    assert not is_alive(identity)
    assert identify(child.pid) is None


def test_a_zombie_is_dead(child: subprocess.Popen[bytes]) -> None:
    identity = identify(child.pid)
    assert identity is not None
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, its exit code not read yet
    stat = read_stat(child.pid)
    assert stat is not None
    assert stat.is_dead
    assert stat.is_ending
    assert not is_alive(identity)


@pytest.mark.parametrize("change", [{"start_ticks": 1}, {"boot_id": "another boot"}])
def test_a_reused_pid_is_another_process(change: dict[str, int | str]) -> None:
    assert not is_alive(msgspec.structs.replace(own_identity(), **change))


def test_a_process_whose_main_thread_ended_is_not_dead_while_others_run() -> None:
    """It still holds its files and ports: what is started in its place would find the port taken."""
    program = (
        "import ctypes, sys, threading\n"
        "threading.Thread(target=sys.stdin.read).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as process:
        while (stat := read_stat(process.pid)) is not None and stat.state != "Z":
            assert process.poll() is None
        assert stat is not None
        assert stat.threads == 2
        assert not stat.is_dead
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        after = read_stat(process.pid)
        assert after is not None
        assert after.is_dead
