"""Real processes: starting, ending with everything below them, and finding what a killed supervisor left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from emberkeep.adapters.cgroups.registry import ProcessGroups
from emberkeep.adapters.processes.start import ProcessRecord, record_path, write_process_record
from emberkeep.adapters.processes.supervisor import Exit, ProcessSupervisor, StartRequest
from emberkeep.base.errors import Conflict, EmberkeepError, Fatal, InvalidInput, RetryLater
from emberkeep.base.processes.process_identity import ProcessIdentity, boot_id, identify, read_stat
from tests.support.kernel.children import reap

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

DEADLINE = 120.0  # seconds; no test waits for it when all is well
LINGER = 0.5
SLEEP = "import time\nwhile True: time.sleep(60)\n"
IGNORE_TERM = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
# Writes its pid, complete or not at all, so that a reader knows that it is set up.
TELL = (
    "import os\n"
    "def tell(name):\n"
    "    open(f'{name}.tmp', 'w').write(str(os.getpid()))\n"
    "    os.rename(f'{name}.tmp', name)\n"
)


class Bench:
    """A supervisor that runs, a directory, and what it told."""

    def __init__(self, directory: Path, groups: ProcessGroups | None = None) -> None:
        self.directory = directory
        self.records = directory / "records"
        self.supervisor = ProcessSupervisor(self.records, linger=LINGER, groups=groups)
        self.exits: list[Exit] = []

    def request(self, program: str, name: str = "p", **changes: object) -> StartRequest:
        values: dict[str, object] = {
            "name": name,
            "argv": [sys.executable, "-c", TELL + program],
            "environ": {"PATH": os.environ["PATH"]},
            "directory": self.directory,
            "stdout": self.directory / f"{name}.out",
            "stderr": self.directory / f"{name}.err",
        }
        return StartRequest(**{**values, **changes})  # type: ignore[arg-type]

    async def start(self, program: str, name: str = "p") -> int:
        return await self.supervisor.start(self.request(program, name), self.exits.append)

    async def told(self, name: str) -> int:
        """The pid that a program told under ``name``."""
        path = self.directory / name
        await until(path.exists)
        return int(path.read_text())

    async def exit(self) -> Exit:
        await until(lambda: bool(self.exits))
        return self.exits[0]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in other processes
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def watching(supervisor: ProcessSupervisor) -> AsyncIterator[None]:
    task = asyncio.create_task(supervisor.run())
    try:
        yield
    finally:
        for name in supervisor.running():
            await supervisor.stop(name, 0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await supervisor.close()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    async with watching(bench.supervisor):
        yield bench


def bystander(*, start_new_session: bool = False) -> subprocess.Popen[bytes]:
    """A process that no supervisor has started."""
    return subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=start_new_session)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def gone(pid: int) -> bool:
    return read_stat(pid) is None


def ended(pid: int) -> bool:
    """Like ``gone``, where the zombie may wait for whoever has become its parent."""
    stat = read_stat(pid)
    return stat is None or stat.is_dead


def zombies() -> list[int]:
    """Those that a supervisor has to reap: what it starts has sessions of its own."""
    stats = (read_stat(int(p.name)) for p in Path("/proc").iterdir() if p.name.isdigit())
    children = (stat for stat in stats if stat is not None and stat.parent == os.getpid())
    return [child.pid for child in children if child.is_dead and child.session != os.getsid(0)]


class TestStart:
    async def test_leads_its_own_session_with_the_given_surroundings(self, bench: Bench) -> None:
        program = "import sys; print(os.getcwd(), os.environ['X'], sys.stdin.read()); print('e', file=sys.stderr)"
        program += "\nsys.stdout.flush()\ntell('up')\n"
        request = bench.request(program + SLEEP, environ={"X": "1"})
        pid = await bench.supervisor.start(request, bench.exits.append)
        assert await bench.told("up") == pid
        stat = read_stat(pid)
        assert stat is not None
        assert stat.session == pid
        assert bench.supervisor.running() == {"p"}
        await bench.supervisor.stop("p", 0)
        assert (bench.directory / "p.out").read_text() == f"{bench.directory} 1 \n"
        assert (bench.directory / "p.err").read_text() == "e\n"
        assert (bench.directory / "p.out").stat().st_mode & 0o777 == 0o600

    @pytest.mark.parametrize(
        ("program", "code"), [("raise SystemExit(3)", 3), ("os.kill(os.getpid(), 9)", -9), ("", 0)]
    )
    async def test_the_exit_is_told_once_with_its_code(self, bench: Bench, program: str, code: int) -> None:
        pid = await bench.start(program)
        assert await bench.exit() == Exit("p", code)
        assert gone(pid)
        assert bench.supervisor.running() == set()
        assert list(bench.records.iterdir()) == []
        await bench.supervisor.stop("p", 5)
        assert len(bench.exits) == 1

    async def test_output_is_appended(self, bench: Bench) -> None:
        (bench.directory / "p.out").write_text("before\n")
        await bench.start("print('after')")
        await bench.exit()
        assert (bench.directory / "p.out").read_text() == "before\nafter\n"

    async def test_a_name_runs_once_and_can_be_used_again(self, bench: Bench) -> None:
        await bench.start(SLEEP)
        with pytest.raises(Conflict, match="runs already"):
            await bench.start(SLEEP)
        await bench.supervisor.stop("p", 0)
        await bench.start("")
        await until(lambda: len(bench.exits) == 2)

    @pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a" * 200])
    async def test_names_that_are_no_file_names_are_refused(self, bench: Bench, name: str) -> None:
        with pytest.raises(InvalidInput, match="process name"):
            await bench.start("", name)

    async def test_a_start_that_is_cancelled_leaves_nothing(self, bench: Bench) -> None:
        for turns in range(12):
            task = asyncio.create_task(bench.start(IGNORE_TERM + SLEEP))
            for _ in range(turns):
                await asyncio.sleep(0.0005)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            if not task.cancelled():
                await bench.supervisor.stop("p", 0)
                bench.exits.clear()
            assert bench.supervisor.running() == set()
            assert list(bench.records.iterdir()) == []
        assert bench.exits == []
        assert zombies() == []


class TestCannotStart:
    @pytest.mark.parametrize(
        ("argv", "reason"),
        [
            (["/no/such/program"], "the program does not exist"),
            (["/etc"], "no permission to run it"),
            (["/bin/true", "x" * 4_000_000], "too large"),
            (["/bin/true", "a\0b"], "NUL"),
        ],
    )
    async def test_says_what_and_why(self, bench: Bench, argv: list[str], reason: str) -> None:
        with pytest.raises(Fatal, match=reason) as caught:
            await bench.supervisor.start(bench.request("", argv=argv), bench.exits.append)
        assert argv[0] in caught.value.message
        assert caught.value.hint
        self.assert_nothing_left(bench)

    async def test_a_file_that_is_no_program(self, bench: Bench) -> None:
        path = bench.directory / "text"
        path.write_text("hello")
        for mode, reason in [(0o600, "no permission"), (0o700, "not a program")]:
            path.chmod(mode)
            with pytest.raises(Fatal, match=reason):
                await bench.supervisor.start(bench.request("", argv=[str(path)]), bench.exits.append)
        self.assert_nothing_left(bench)

    async def test_a_missing_directory_is_named(self, bench: Bench) -> None:
        where = bench.directory / "nowhere"
        with pytest.raises(Fatal, match=str(where)):
            await bench.supervisor.start(bench.request("", directory=where), bench.exits.append)
        self.assert_nothing_left(bench)

    async def test_output_that_cannot_be_opened_is_named(self, bench: Bench) -> None:
        where = bench.directory / "nowhere" / "out"
        with pytest.raises(Fatal, match=str(where)):
            await bench.supervisor.start(bench.request("", stdout=where), bench.exits.append)
        self.assert_nothing_left(bench)

    @pytest.mark.parametrize(
        ("number", "error", "reason"),
        [
            (11, RetryLater, "limit of processes"),
            (12, RetryLater, "not enough memory"),
            (24, RetryLater, "too many files"),
            (5, Fatal, "Input/output error"),
        ],
    )
    async def test_refusals_of_the_system(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch, number: int, error: type[EmberkeepError], reason: str
    ) -> None:
        def refuse(*_arguments: object, **_options: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(subprocess, "Popen", refuse)
        with pytest.raises(error, match=reason):
            await bench.start("")
        self.assert_nothing_left(bench)

    async def test_a_record_that_cannot_be_completed_takes_the_process_back(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(path: Path, _record: ProcessRecord) -> None:
            assert path.exists()
            raise Fatal("no space")

        monkeypatch.setattr("emberkeep.adapters.processes.supervisor.write_process_record", refuse)
        with pytest.raises(Fatal, match="no space"):
            await bench.start(SLEEP)
        self.assert_nothing_left(bench)

    def assert_nothing_left(self, bench: Bench) -> None:
        assert bench.supervisor.running() == set()
        assert list(bench.records.iterdir()) == []
        assert zombies() == []
        assert bench.exits == []


class TestStop:
    async def test_sigterm_lets_the_leader_choose_its_exit(self, bench: Bench) -> None:
        await bench.start("import signal\nsignal.signal(15, lambda *_: os._exit(7))\ntell('up')\n" + SLEEP)
        await bench.told("up")
        await bench.supervisor.stop("p", DEADLINE)
        assert bench.exits == [Exit("p", 7)]

    async def test_one_that_ignores_sigterm_is_killed_after_the_grace(self, bench: Bench) -> None:
        pid = await bench.start(IGNORE_TERM + "tell('up')\n" + SLEEP)
        await bench.told("up")
        await bench.supervisor.stop("p", 0.2)
        assert bench.exits == [Exit("p", -9)]
        assert gone(pid)

    async def test_a_second_shorter_grace_counts(self, bench: Bench) -> None:
        await bench.start(IGNORE_TERM + "tell('up')\n" + SLEEP)
        await bench.told("up")
        patient = asyncio.create_task(bench.supervisor.stop("p", 3600))
        await asyncio.sleep(0)
        await bench.supervisor.stop("p", 0)
        await asyncio.wait_for(patient, DEADLINE)
        assert bench.exits == [Exit("p", -9)]

    async def test_a_stopped_process_still_gets_its_sigterm(self, bench: Bench) -> None:
        program = "import signal\nsignal.signal(15, lambda *_: os._exit(7))\ntell('up')\nos.kill(os.getpid(), 19)\n"
        pid = await bench.start(program + SLEEP)
        await until(lambda: (stat := read_stat(pid)) is not None and stat.state == "T")
        await bench.supervisor.stop("p", DEADLINE)
        assert bench.exits == [Exit("p", 7)]

    async def test_unknown_names_are_fine(self, bench: Bench) -> None:
        pid = await bench.start(SLEEP)
        await bench.supervisor.stop("nobody", 0)
        assert not gone(pid)
        await bench.supervisor.stop("p", 0)
        assert bench.exits == [Exit("p", -9)], "nobody else was stopped"

    async def test_a_stop_during_the_start_waits_for_it(self, bench: Bench) -> None:
        start = asyncio.create_task(bench.start(SLEEP))
        await asyncio.sleep(0)
        await bench.supervisor.stop("p", 0)
        await start
        assert bench.exits == [Exit("p", -9)]

    async def test_a_stop_that_nobody_can_carry_out_says_so(self, tmp_path: Path) -> None:
        bench = Bench(tmp_path)
        task = asyncio.create_task(bench.supervisor.run())
        pid = await bench.start("import signal\nsignal.signal(15, lambda *_: os._exit(7))\ntell('up')\n" + SLEEP)
        await bench.told("up")
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        with pytest.raises(RetryLater, match="stopped before"):
            await bench.supervisor.stop("p", DEADLINE)
        reap(pid)
        assert bench.exits == []
        await bench.supervisor.close()


# Each leaves a process behind that its leader does not end, and tells its pid as "kin".
ESCAPES = {
    "child": "if os.fork() == 0:\n    {body}\n",
    "orphan": "if os.fork() == 0:\n    if os.fork() == 0:\n        {body}\n    os._exit(0)\nos.wait()\n",
    "own process group": "if os.fork() == 0:\n    os.setpgid(0, 0)\n    {body}\n",
    "own session": "if os.fork() == 0:\n    os.setsid()\n    {body}\n",
    "daemon": (
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        {body}\n    os._exit(0)\nos.wait()\n"
    ),
    "own session, no environment": (
        "import sys\nif os.fork() == 0:\n    os.setsid()\n"
        "    os.execve(sys.executable, [sys.executable, '-c', {source!r}], {{}})\n"
    ),
}
BODIES = {
    "sleeping": "tell('kin')\n",
    "ignoring SIGTERM": IGNORE_TERM + "signal.signal(signal.SIGHUP, signal.SIG_IGN)\ntell('kin')\n",
    "stopped": "tell('kin')\nos.kill(os.getpid(), 19)\n",
}


def escape(kind: str, body: str) -> str:
    source = TELL + BODIES[body] + SLEEP
    return ESCAPES[kind].format(body=f"exec({BODIES[body] + SLEEP!r})", source=source)


class TestKin:
    @pytest.mark.parametrize("body", BODIES)
    @pytest.mark.parametrize("kind", ESCAPES)
    async def test_stop_ends_whatever_the_leader_started(self, bench: Bench, kind: str, body: str) -> None:
        leader = await bench.start(escape(kind, body) + SLEEP)
        kin = await bench.told("kin")
        await bench.supervisor.stop("p", 0.1)
        assert gone(leader)
        assert gone(kin)
        assert zombies() == []
        assert len(bench.exits) == 1

    @pytest.mark.parametrize("kind", ["child", "orphan", "own session", "daemon"])
    async def test_a_leader_that_ends_takes_its_kin_along_after_a_moment(self, bench: Bench, kind: str) -> None:
        leader = await bench.start(escape(kind, "ignoring SIGTERM") + "while not os.path.exists('kin'): pass\n")
        kin = await bench.told("kin")
        assert await bench.exit() == Exit("p", 0)
        assert gone(leader)
        assert gone(kin)
        assert zombies() == []

    async def test_the_exit_is_told_only_when_the_kin_is_gone(self, tmp_path: Path) -> None:
        bench = Bench(tmp_path)
        bench.supervisor = ProcessSupervisor(bench.records, linger=3600)
        async with watching(bench.supervisor):
            waits = "tell('kin')\nwhile not os.path.exists('go'): pass\n"
            leader = await bench.start(f"if os.fork() == 0:\n    exec({waits!r})\n")
            kin = await bench.told("kin")
            await until(lambda: (stat := read_stat(leader)) is not None and stat.is_dead)
            assert bench.exits == []
            assert not gone(kin)
            (tmp_path / "go").touch()
            assert await bench.exit() == Exit("p", 0)
            assert gone(kin)

    async def test_processes_of_others_are_left_alone(self, bench: Bench) -> None:
        await bench.start("tell('up')\n" + SLEEP, "other")
        other = await bench.told("up")
        await bench.start(escape("daemon", "sleeping") + SLEEP)
        await bench.told("kin")
        near = bystander()
        await bench.supervisor.stop("p", 0)
        assert identify(other) is not None
        assert near.poll() is None
        near.kill()
        assert near.wait() == -9

    async def test_orphans_that_end_while_the_leader_lives_are_reaped(self, bench: Bench) -> None:
        for turn in range(5):
            daemon = f"if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        tell('kin{turn}')\n"
            await bench.start(daemon + "        os._exit(0)\n    os._exit(0)\nos.wait()\n" + SLEEP, f"p{turn}")
        kin = [await bench.told(f"kin{turn}") for turn in range(5)]
        await until(lambda: all(gone(pid) for pid in kin))
        assert len(bench.supervisor.running()) == 5

    async def test_a_family_that_keeps_forking_is_ended(self, bench: Bench) -> None:
        """No member lives long enough to be found by looking. It gives up by itself, lest a failing test leaves it."""
        leader = await bench.start(
            "tell('up')\nimport time\nend = time.time() + 30\n"
            "while time.time() < end:\n    if os.fork():\n        time.sleep(0.01)\n        os._exit(0)\n"
        )
        await bench.told("up")
        await bench.supervisor.stop("p", 0)
        with pytest.raises(ProcessLookupError):
            os.killpg(leader, 0)
        assert zombies() == []

    async def test_nothing_leaks_over_many_lives(self, bench: Bench) -> None:
        await bench.start("", "first")
        await bench.exit()
        before = open_files()
        for turn in range(20):
            await bench.start(SLEEP, f"p{turn}")
            await bench.supervisor.stop(f"p{turn}", 0)
        await asyncio.gather(*(bench.start(f"raise SystemExit({n})", f"q{n}") for n in range(20)))
        await until(lambda: len(bench.exits) == 41)
        assert {exit_.exit_code for exit_ in bench.exits} == {-9, *range(20)}
        assert open_files() == before
        assert zombies() == []
        assert list(bench.records.iterdir()) == []


async def test_works_on_a_loop_outside_the_main_thread(tmp_path: Path) -> None:
    exits: list[Exit] = []

    async def session() -> None:
        bench = Bench(tmp_path)
        async with watching(bench.supervisor):
            await bench.start("raise SystemExit(4)", "a")
            await bench.start(IGNORE_TERM + "tell('up')\n" + SLEEP, "b")
            await bench.told("up")
            await bench.supervisor.stop("b", 0.1)
            await until(lambda: len(bench.exits) == 2)
            exits.extend(bench.exits)

    thread = threading.Thread(target=lambda: asyncio.run(session()))
    thread.start()
    await asyncio.to_thread(thread.join, DEADLINE)
    assert set(exits) == {Exit("a", 4), Exit("b", -9)}


VICTIM = """
import asyncio, os, sys
from pathlib import Path
from emberkeep.adapters.processes.supervisor import ProcessSupervisor, StartRequest

async def main():
    directory = Path(sys.argv[1])
    supervisor = ProcessSupervisor(directory / "records")
    watching = asyncio.create_task(supervisor.run())
    for number, program in enumerate(sys.argv[2:]):
        request = StartRequest(
            name=f"p{number}", argv=[sys.executable, "-c", program], environ=dict(os.environ),
            directory=directory, stdout=directory / "out", stderr=directory / "out",
        )
        await supervisor.start(request, print)
    (directory / "started").touch()
    await watching

asyncio.run(main())
"""


async def kill_supervisor(directory: Path, *programs: str, ready: tuple[str, ...]) -> None:
    """Run a supervisor with some processes in a process of its own and kill it with SIGKILL once all is up."""
    argv = [sys.executable, "-c", VICTIM, str(directory), *(TELL + program for program in programs)]
    victim = await asyncio.create_subprocess_exec(*argv)
    await until(lambda: all((directory / name).exists() for name in ("started", *ready)))
    victim.kill()
    await victim.wait()


class TestLeftovers:
    async def test_are_found_after_a_sigkill_and_ended_with_their_kin(self, tmp_path: Path) -> None:
        await kill_supervisor(
            tmp_path,
            escape("daemon", "ignoring SIGTERM") + "tell('up')\n" + IGNORE_TERM + SLEEP,
            "tell('short')\n",
            ready=("up", "kin", "short"),
        )
        bench = Bench(tmp_path)
        async with watching(bench.supervisor):
            leader, kin, short = [await bench.told(name) for name in ("up", "kin", "short")]
            await until(lambda: ended(short))
            (leftover,) = await bench.supervisor.leftovers()
            assert leftover.name == "p0"
            assert leftover.leader == identify(leader)
            assert set(leftover.members) == {leader, kin}
            await bench.supervisor.end_leftover(leftover, 0.1)
            assert await bench.supervisor.leftovers() == []
        await until(lambda: ended(leader) and ended(kin))
        assert list(bench.records.iterdir()) == []

    async def test_get_their_sigterm(self, tmp_path: Path) -> None:
        program = "import signal\nsignal.signal(15, lambda *_: (tell('ended'), os._exit(0)))\ntell('up')\n" + SLEEP
        await kill_supervisor(tmp_path, program, ready=("up",))
        bench = Bench(tmp_path)
        async with watching(bench.supervisor):
            (leftover,) = await bench.supervisor.leftovers()
            await bench.supervisor.end_leftover(leftover, DEADLINE)
        assert (tmp_path / "ended").exists()

    async def test_kin_is_found_when_the_leader_is_dead(self, tmp_path: Path) -> None:
        await kill_supervisor(tmp_path, escape("daemon", "sleeping") + "tell('up')\n" + SLEEP, ready=("up", "kin"))
        bench = Bench(tmp_path)
        async with watching(bench.supervisor):
            leader, kin = await bench.told("up"), await bench.told("kin")
            os.kill(leader, signal.SIGKILL)
            await until(lambda: ended(leader))
            (leftover,) = await bench.supervisor.leftovers()
            assert set(leftover.members) == {kin}
            await bench.supervisor.end_leftover(leftover, 0)
        await until(lambda: ended(kin))

    async def test_those_of_an_unfinished_or_damaged_record_are_found_by_their_marker(self, tmp_path: Path) -> None:
        await kill_supervisor(tmp_path, "tell('a')\n" + SLEEP, "tell('b')\n" + SLEEP, ready=("a", "b"))
        bench = Bench(tmp_path)
        first, second = sorted(bench.records.glob("*.process"))
        write_process_record(first, ProcessRecord(name="p0", identity=None))
        second.write_bytes(second.read_bytes()[:-3])
        (bench.records / ".p9.process.123.tmp").write_bytes(b"torn")
        async with watching(bench.supervisor):
            leftovers = await bench.supervisor.leftovers()
            pids = [await bench.told("a"), await bench.told("b")]
            assert [list(leftover.members) for leftover in leftovers] == [[pids[0]], [pids[1]]]
            for leftover in leftovers:
                await bench.supervisor.end_leftover(leftover, 0)
        await until(lambda: all(ended(pid) for pid in pids))
        assert list(bench.records.iterdir()) == []

    async def test_a_pid_that_is_anothers_now_is_never_touched(self, bench: Bench) -> None:
        stranger = bystander(start_new_session=True)
        now = identify(stranger.pid)
        assert now is not None
        stale = {
            "older": ProcessIdentity(pid=now.pid, start_ticks=now.start_ticks - 1, boot_id=boot_id()),
            "earlier-boot": ProcessIdentity(pid=now.pid, start_ticks=now.start_ticks, boot_id="another"),
        }
        for name, identity in stale.items():
            path = record_path(bench.records, f"{name}@0123456789abcdef")
            write_process_record(path, ProcessRecord(name=name, identity=identity))
        assert await bench.supervisor.leftovers() == []
        assert list(bench.records.iterdir()) == []
        assert stranger.poll() is None
        stranger.kill()
        stranger.wait()

    async def test_what_this_supervisor_runs_is_no_leftover(self, bench: Bench) -> None:
        await bench.start(SLEEP)
        assert await bench.supervisor.leftovers() == []
        assert bench.supervisor.running() == {"p"}


@pytest.mark.req("BLK-18")
async def test_a_signal_reaches_the_leader_of_the_process_that_is_meant(bench: Bench) -> None:
    heeds = "import signal, sys\nsignal.signal(signal.SIGPWR, lambda *_: sys.exit(7))\ntell('ready')\n"
    await bench.start(heeds + SLEEP)
    other = await bench.start(SLEEP, "other")
    await bench.told("ready")
    bench.supervisor.signal("unknown", signal.SIGPWR)
    bench.supervisor.signal("p", signal.SIGPWR)
    assert await bench.exit() == Exit("p", 7)
    bench.supervisor.signal("p", signal.SIGPWR)
    assert not ended(other)
