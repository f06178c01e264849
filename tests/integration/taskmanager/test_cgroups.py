"""Processes in control groups of the real kernel: all that they start is limited, and the end of one is explained.

Skipped where this process may not make control groups.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest

from emberkeep.adapters.cgroups.mounts import OwnGroups, groups_of
from emberkeep.adapters.cgroups.opening import open_groups
from emberkeep.adapters.cgroups.port import Share
from emberkeep.adapters.cgroups.registry import ProcessGroups
from emberkeep.adapters.processes.supervisor import Exit
from emberkeep.adapters.processes.table import MARKER_VARIABLE
from emberkeep.base.errors import EmberkeepError, Fatal
from emberkeep.base.processes.os_user import OsUser
from tests.integration.taskmanager.test_processes import SLEEP, Bench, ended, until, watching
from tests.support.kernel.children import reap
from tests.support.kernel.few_descriptors import few_descriptors

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

SHARE = Share(cores=2, memory_mb=64)
# A child in a session of its own takes 128 MiB, once it may.
CHILD = """
import subprocess, sys, time
code = '''
import os, time
while not os.path.exists("take"):
    time.sleep(0.01)
held = os.urandom(1 << 20) * 128
'''
child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
open("child.tmp", "w").write(str(child.pid))
os.rename("child.tmp", "child")
"""


def opened(directory: Path) -> ProcessGroups:
    """Return groups of the real kernel, as the task manager that works in this directory makes them."""
    found = open_groups("auto", directory, 2)
    if found.why_none:
        pytest.skip(f"no control groups can be made here: {found.why_none}")
    return found.groups


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[ProcessGroups]:
    groups = opened(tmp_path)
    yield groups
    groups.close()


@pytest.fixture
async def bench(tmp_path: Path, groups: ProcessGroups) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path, groups)
    async with watching(bench.supervisor):
        yield bench


def paths(own: OwnGroups) -> list[Path]:
    return [own.v2] if own.v2 is not None and "memory" not in own.v1 else [own.v1["memory"], own.v1["cpu"]]


async def test_a_process_is_in_its_group_from_its_first_instruction(bench: Bench) -> None:
    request = bench.request(CHILD + SLEEP, share=SHARE)
    looking = bench.request("print(open('/proc/self/cgroup').read())\ntell('up')\n", "q", share=SHARE)
    await bench.supervisor.start(looking, bench.exits.append)
    await bench.told("up")
    assert "/q@" in looking.stdout.read_text()
    pid = await bench.supervisor.start(request, bench.exits.append)
    child = await bench.told("child")
    own = groups_of(pid)
    assert all(path.name.startswith("p@") for path in paths(own)), own
    assert groups_of(child) == own, "also what is in another session"
    *_, processors = paths(own)
    weights = {"cpu.weight": "200", "cpu.shares": "2048"}  # of two cores, in version 2 and 1
    assert [
        (processors / name).read_text().strip() == weight
        for name, weight in weights.items()
        if (processors / name).exists()
    ] == [True]


async def test_processes_that_compete_get_processor_time_by_their_cores(bench: Bench) -> None:
    processor = min(os.sched_getaffinity(0))
    processes = {}
    for cores in (1, 3):
        program = f"os.sched_setaffinity(0, [{processor}])\ntell('busy-{cores}')\nwhile True: pass\n"
        request = bench.request(program, str(cores), share=Share(cores=cores, memory_mb=64))
        processes[cores] = psutil.Process(await bench.supervisor.start(request, bench.exits.append))
    for cores in processes:
        await bench.told(f"busy-{cores}")

    def spent() -> dict[int, float]:
        return {cores: process.cpu_times().user for cores, process in processes.items()}

    before = spent()
    await until(lambda: sum(spent().values()) > sum(before.values()) + 2)
    one, three = (now - before[cores] for cores, now in spent().items())
    assert 2 < three / one < 4, (one, three)


async def test_surroundings_are_those_of_a_process_without_a_group(bench: Bench, tmp_path: Path) -> None:
    program = f"del os.environ[{MARKER_VARIABLE!r}]\n" + (
        "import sys\n"
        "print(sorted(os.environ.items()))\n"
        "print([line for line in open('/proc/self/status') if line.startswith(('Sig', 'Shd'))])\n"
        "print(sorted(os.listdir('/proc/self/fd')), os.getsid(0) == os.getpid(), sys.stdin.read(), os.getcwd())\n"
    )
    (tmp_path / "plain").mkdir()
    plain = Bench(tmp_path / "plain")
    told = []
    async with watching(plain.supervisor):
        for each in (bench, plain):
            environ = {"PATH": os.environ["PATH"], "A.B-c": "1=2", "LC_ALL": "C"}
            request = each.request(program, environ=environ, directory=tmp_path, share=SHARE)
            await each.supervisor.start(request, each.exits.append)
            assert await each.exit() == Exit("p", 0)
            told.append((request.stdout.read_text(), request.stderr.read_text()))
    assert told[0] == told[1]


async def test_a_process_that_takes_too_much_is_named_and_its_end_is_explained(bench: Bench) -> None:
    await bench.supervisor.start(bench.request(CHILD + SLEEP, share=SHARE), bench.exits.append)
    child = await bench.told("child")
    assert bench.supervisor.groups.exceeding() == {}
    (bench.directory / "take").touch()
    await until(lambda: ended(child))
    await until(lambda: bench.supervisor.groups.exceeding() == {"p": 64})
    await bench.supervisor.stop("p", 0.0)
    assert bench.exits == [Exit("p", -signal.SIGKILL, exceeded_mb=64)]


async def test_a_driver_names_the_reason_for_which_its_jvm_was_ended(bench: Bench) -> None:
    """With version 2, the driver ends as well, and its task manager names the reason."""
    if "memory" not in groups_of("self").v1:
        pytest.skip("version 1 only")
    driver = CHILD + (
        "child.wait()\n"
        "from emberkeep.daemons.driver.end import reason_of_own_group\n"
        "print(reason_of_own_group(os.environ))\n"
    )
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    share = Share(cores=2, memory_mb=100)
    request = bench.request(driver, environ=environ, share=share)
    (bench.directory / "take").touch()
    await bench.supervisor.start(request, bench.exits.append)
    assert await bench.exit() == Exit("p", 0, exceeded_mb=100)
    assert "needed more than the 100 MiB of memory" in request.stdout.read_text()


async def test_the_end_of_a_process_for_want_of_memory_of_all_groups_is_not_its_own_fault(bench: Bench) -> None:
    share = Share(cores=2, memory_mb=1024)
    pid = await bench.supervisor.start(bench.request(CHILD + SLEEP, share=share), bench.exits.append)
    child = await bench.told("child")
    above = paths(groups_of(pid))[0].parent
    (above / ("memory.max" if (above / "memory.max").exists() else "memory.limit_in_bytes")).write_text("64M")
    (bench.directory / "take").touch()
    await until(lambda: ended(child))
    assert bench.supervisor.groups.exceeding() == {}
    await bench.supervisor.stop("p", 0.0)
    assert bench.exits == [Exit("p", -signal.SIGKILL)]


async def test_a_process_that_keeps_to_its_memory_is_left_alone(bench: Bench) -> None:
    program = "held = os.urandom(1 << 20) * 16\n"
    await bench.supervisor.start(bench.request(program, share=SHARE), bench.exits.append)
    assert await bench.exit() == Exit("p", 0)


async def test_what_a_process_reads_and_writes_does_not_end_it(bench: Bench) -> None:
    """The cache of files counts, and the kernel drops it instead of ending a process."""
    program = "for n in range(200): open('large', 'ab').write(bytes(1 << 20))\n"
    await bench.supervisor.start(bench.request(program, share=SHARE), bench.exits.append)
    assert await bench.exit() == Exit("p", 0)


async def test_nothing_is_left_of_the_group(bench: Bench) -> None:
    pid = await bench.supervisor.start(bench.request(SLEEP, share=SHARE), bench.exits.append)
    places = paths(groups_of(pid))
    await bench.supervisor.stop("p", 0.0)
    assert not any(path.exists() for path in places)


async def test_the_next_supervisor_finds_the_group_and_removes_it(tmp_path: Path) -> None:
    first = Bench(tmp_path, opened(tmp_path))
    task = asyncio.create_task(first.supervisor.run())
    pid = await first.supervisor.start(first.request(CHILD + SLEEP, share=SHARE), first.exits.append)
    places = paths(groups_of(pid))
    child = await first.told("child")
    task.cancel()
    await asyncio.wait({task})
    await first.supervisor.close()

    second = Bench(tmp_path, opened(tmp_path))
    async with watching(second.supervisor):
        (leftover,) = await second.supervisor.leftovers()
        second.supervisor.adopt(leftover, second.exits.append)
        assert second.supervisor.groups.limited() == {"p"}
        (tmp_path / "take").touch()
        await until(lambda: second.supervisor.groups.exceeding() == {"p": 64})
        await second.supervisor.stop("p", 0.0)
        assert second.exits == [Exit("p", None, exceeded_mb=64)]
        assert ended(child)
    reap(pid)
    second.supervisor.groups.close()
    assert not any(path.parent.exists() for path in places if path.parent.name.startswith("emberkeep-"))


async def test_a_standby_process_is_limited_once_a_job_has_taken_it(bench: Bench) -> None:
    await bench.supervisor.start(bench.request(CHILD + SLEEP), bench.exits.append)
    child = await bench.told("child")
    assert bench.supervisor.groups.limited() == frozenset()
    await bench.supervisor.rename("p", "q", bench.exits.append, SHARE)
    assert bench.supervisor.groups.limited() == {"q"}
    (bench.directory / "take").touch()
    await until(lambda: ended(child))
    await bench.supervisor.stop("q", 0.0)
    assert bench.exits == [Exit("q", -signal.SIGKILL, exceeded_mb=64)]


@pytest.mark.parametrize("program", ["no-such-program", "/no/such/program", "/etc/passwd", "/etc"])
async def test_a_program_that_cannot_be_started_is_an_error_as_without_a_group(
    bench: Bench, tmp_path: Path, program: str
) -> None:
    (tmp_path / "plain").mkdir()
    plain = Bench(tmp_path / "plain")
    messages = []
    async with watching(plain.supervisor):
        for each in (bench, plain):
            with pytest.raises(Fatal) as failure:
                await each.supervisor.start(each.request("", argv=[program]), each.exits.append)
            messages.append((failure.value.message, failure.value.hint))
    assert messages[0] == messages[1]
    assert bench.supervisor.groups.exceeding() == {}
    assert list(bench.records.iterdir()) == []


@pytest.mark.parametrize("free", range(14))
async def test_a_start_with_few_descriptors_either_fails_without_a_trace_or_is_watched(bench: Bench, free: int) -> None:
    pid, hint = None, ""
    with few_descriptors(free):
        try:
            pid = await bench.supervisor.start(bench.request(SLEEP, share=SHARE), bench.exits.append)
        except EmberkeepError as error:
            hint = error.hint or "none"

    if pid is None:
        assert "ulimit -n" in hint, "it names what is missing"
        assert bench.supervisor.groups.limited() == frozenset()
    else:
        os.kill(pid, signal.SIGKILL)
        assert await bench.exit() == Exit("p", -signal.SIGKILL)
    await until(lambda: not bench.supervisor.running() and not list(bench.records.iterdir()))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes as other users")
async def test_a_process_of_another_user_is_in_its_group(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    system_python = shutil.which("python3", path="/usr/bin:/bin")
    if system_python is None:
        pytest.skip("the test's own Python may be in a home directory, and there is no other")
    monkeypatch.setattr("sys.executable", system_python)
    user = OsUser("nobody", 65534, 65534, (), "/", "/bin/sh")
    with tempfile.TemporaryDirectory() as place:  # the test's own directory is closed to other users
        os.chown(place, user.uid, user.gid)
        output = Path(place) / "out"
        argv = ["cat", "/proc/self/cgroup"]
        request = bench.request(
            "", argv=argv, user=user, directory=Path("/"), stdout=output, stderr=output, share=SHARE
        )
        await bench.supervisor.start(request, bench.exits.append)
        assert await bench.exit() == Exit("p", 0), output.read_text()
        assert "/p@" in output.read_text()
