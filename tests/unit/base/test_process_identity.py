import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from emberkeep.base.processes.process_identity import (
    ProcessIdentity,
    boot_id,
    identify,
    is_alive,
    may_be_alive,
    own_identity,
    read_stat,
)
from tests.support.kernel.few_descriptors import few_descriptors


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


_ASK = """
import os, sys
from emberkeep.base.processes.process_identity import ProcessIdentity, may_be_alive, own_identity
own_identity()  # loads all code: the other user may have no right to read Python's files
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
for text in sys.argv[1:]:
    pid, start_ticks, boot_id = text.split()
    print(may_be_alive(ProcessIdentity(pid=int(pid), start_ticks=int(start_ticks), boot_id=boot_id)))
"""


def as_text(identity: ProcessIdentity) -> str:
    return f"{identity.pid} {identity.start_ticks} {identity.boot_id}"


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="only root mounts /proc")
@pytest.mark.parametrize("hidepid", [0, 1, 2])
def test_a_process_of_another_user_that_is_hidden_is_not_taken_for_ended(hidepid: int) -> None:
    """Otherwise a driver that runs as another user would take its task manager for gone, and end."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        ended = identify(process.pid)
    assert ended is not None
    earlier_boot = msgspec.structs.replace(own_identity(), boot_id="another")
    mounted = f'mount -t proc -o hidepid={hidepid} proc /proc && exec "$@"'
    asked = [as_text(each) for each in (own_identity(), ended, earlier_boot)]
    command = ["unshare", "-m", "sh", "-c", mounted, "sh", sys.executable, "-P", "-c", _ASK, *asked]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "mount:" in done.stderr:
        pytest.skip(f"/proc cannot be mounted here: {done.stderr}")
    assert done.stdout.split() == ["True", "False", "False"], done.stderr


def test_a_process_that_cannot_be_looked_at_now_is_not_taken_for_ended() -> None:
    own = own_identity()
    with few_descriptors(0):
        assert may_be_alive(own)
