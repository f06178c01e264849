"""A task manager has the class archive built in the background, and no builder outlives it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from emberkeep.adapters.processes.family import become_subreaper
from emberkeep.base.configuration.layout import WorkingDirectory
from emberkeep.base.configuration.options.task_managers import BUILD_CLASS_ARCHIVE
from emberkeep.base.configuration.sources import environment_variable
from emberkeep.base.processes.process_identity import read_stat
from emberkeep.daemons.archive_builder import EXIT_BUSY
from emberkeep.daemons.process_main import Services
from emberkeep.daemons.taskmanager import class_archives
from emberkeep.daemons.taskmanager.class_archives import ArchiveBuild, building_class_archive
from emberkeep.spark.distribution import class_path
from emberkeep.spark.java import JavaRuntime, find_java, jvm_open_options
from emberkeep.spark.jvm.class_archive import find_class_archive
from emberkeep.spark.jvm.executor_command import archive_options
from tests.integration.commands import Running, Shell
from tests.integration.conditions import DEADLINE, until

pytestmark = pytest.mark.integration

STARTED = "building the class archive in the background"
FAILED = "cannot build the class archive: JVMs start without one, more slowly"
BUILT = "built the class archive: JVMs that start from now on use it"


class TaskManager:
    """One task manager without a JobManager, with an empty cache."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.archives = shell.directory / "cache" / "emberkeep" / "class-archives"
        shell.environment[environment_variable(BUILD_CLASS_ARCHIVE.key)] = "true"

    def serve(self) -> Running:
        place = f"process.taskmanager.working-dir={self.shell.directory / 'place'}"
        started = self.shell.start("taskmanager", "-D", place, "-D", "jobmanager.rpc.address=127.0.0.1:1")
        until(lambda: '"url"' in started.out or started.process.poll() is not None, lambda: str(started))
        assert started.process.poll() is None, started
        return started

    def builder(self, started: Running) -> int:
        """The pid of this task manager's builder, once the training run has begun."""

        def look() -> int | None:
            children = [seen.identity.pid for seen in self.shell.traces.find("archive_builder")]
            own = [pid for pid in children if (stat := read_stat(pid)) and stat.parent == started.process.pid]
            return own[0] if own and self.unfinished() else None

        return until(look, lambda: f"the builder works: {started}")

    def unfinished(self) -> list[Path]:
        return list(self.archives.glob(".unfinished-*"))

    def archive(self) -> Path | None:
        return find_class_archive(find_java(os.environ), self.archives, os.environ)


@pytest.fixture
def task_manager(tmp_path: Path) -> Iterator[TaskManager]:
    (tmp_path / "archives").mkdir()
    made = TaskManager(Shell(tmp_path, tmp_path / "archives"))
    try:
        yield made
        made.shell.traces.check_nothing_left(DEADLINE)
    finally:
        made.shell.traces.kill()


def test_no_builder_outlives_its_task_manager(task_manager: TaskManager) -> None:
    """However the task manager ends. What a build had written until then is removed."""
    started = task_manager.serve()
    assert os.sched_getscheduler(task_manager.builder(started)) == os.SCHED_IDLE
    started.process.kill()
    started.wait()
    task_manager.shell.traces.wait_until_gone(DEADLINE)
    assert task_manager.unfinished() == []

    started = task_manager.serve()
    builder = task_manager.builder(started)
    started.process.send_signal(signal.SIGTERM)
    assert started.wait().code == 0
    assert task_manager.unfinished() == []
    task_manager.shell.traces.wait_until_gone(DEADLINE)
    assert (stat := read_stat(builder)) is None or stat.is_dead, "its zombie may wait for whoever has become its parent"
    assert task_manager.archive() is None


def test_a_short_run_without_a_cluster_starts_no_builder(task_manager: TaskManager) -> None:
    shell = task_manager.shell
    shell.write("fine.py", "print('ran')\n")
    with shell.traces.watching():
        assert shell.done("run", "-q", "fine.py").out == "ran\n"
    assert not [seen for seen in shell.traces.seen.values() if "archive_builder" in str(seen)]
    assert list(task_manager.archives.iterdir()) == []


@pytest.mark.long
def test_the_archive_appears_without_a_command(task_manager: TaskManager) -> None:
    started = task_manager.serve()
    archive = until(task_manager.archive, lambda: f"{started}{task_manager.shell.traces.processes()}", 4 * DEADLINE)
    task_manager.shell.traces.look()
    started.process.send_signal(signal.SIGTERM)
    assert started.wait().code == 0
    assert {path.name for path in task_manager.archives.iterdir()} == {
        ".lock",
        archive.name,
        archive.with_suffix(".record").name,
    }


def test_jvms_share_the_archive_because_none_changes_the_addresses_in_it(class_archive: Path) -> None:
    java = [str(find_java(os.environ).executable), "-cp", class_path(os.environ), *jvm_open_options()]
    options = [*archive_options(class_archive), "-Xlog:cds=info", "-version"]
    said = subprocess.run([*java, *options], capture_output=True, text=True, check=True).stdout
    assert "Mapped dynamic region #1" in said
    assert "alternative address" not in said


# --- with a builder that does as it is told -------------------------------------------------------------------------


class Site:
    """An ArchiveBuild whose builder is a script. ``log`` is what it logs."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = WorkingDirectory(directory / "place")
        self.directory.logs.mkdir(parents=True)
        self.archives = directory / "archives"
        self.archives.mkdir()
        self.found: list[Path] = []
        self.busy: list[bool] = []
        monkeypatch.setattr(class_archives, "find_class_archive", lambda *_: next(iter(self.found), None))
        monkeypatch.setattr(class_archives, "is_being_built", lambda _: bool(self.busy) and self.busy.pop())

    async def run(
        self,
        script: str,
        until_logged: str | None,
        condition: Callable[[], object] = lambda: True,
        *,
        delay: float = 0.0,
    ) -> list[str]:
        """Run the build until it has logged this and the condition holds, then leave it. Return all that it logged."""
        java = JavaRuntime(None, Path("/no/java"), 17)
        build = ArchiveBuild(java, self.directory, self.archives, (sys.executable, "-P", "-c", script), pause=0.0)
        services = Services()
        with capture_logs() as logs:
            async with asyncio.timeout(DEADLINE), building_class_archive(build, services, delay):

                async def seen() -> None:
                    while not (until_logged in [None, *(log["event"] for log in logs)] and condition()):  # noqa: ASYNC110
                        await asyncio.sleep(0.01)

                await services.run_until_done(seen())
        return [log["event"] + (f" ({log['reason']})" if "reason" in log else "") for log in logs]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    become_subreaper()
    return Site(tmp_path, monkeypatch)


def looks(number: int) -> Callable[[], bool]:
    """A condition that holds after so many looks."""
    left = iter(range(number))
    return lambda: next(left, None) is None


async def test_an_archive_that_fits_needs_no_builder(site: Site) -> None:
    site.found = [site.archives / "spark.jsa"]
    site.busy = [False]
    assert await site.run("import nothing_at_all", None, looks(20)) == []
    assert site.busy == [False], "nobody asked whether another process builds"


async def test_leaving_before_the_delay_is_over_starts_nothing(site: Site) -> None:
    assert await site.run("", None, looks(20), delay=3600.0) == []


async def test_a_built_archive_is_logged(site: Site) -> None:
    assert await site.run("", BUILT) == [STARTED, BUILT]


async def test_a_failed_build_is_logged_with_its_reason_and_not_repeated(site: Site) -> None:
    script = "import sys; sys.stderr.write('a warning\\nno space left\\n'); sys.exit(1)"
    assert await site.run(script, FAILED, looks(20)) == [
        STARTED,
        f"{FAILED} (no space left)",
    ]


async def test_a_killed_build_is_logged(site: Site) -> None:
    script = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert await site.run(script, FAILED) == [STARTED, f"{FAILED} (its process was killed by signal 9)"]


async def test_a_builder_that_cannot_start_is_logged(site: Site) -> None:
    site.directory.logs.rmdir()
    (event,) = await site.run("", FAILED)
    assert event.startswith(f"{FAILED} (cannot open {site.directory.logs}/archive.err for output: No such file")


async def test_it_waits_for_another_process_that_builds_and_builds_if_that_one_was_cut_short(site: Site) -> None:
    site.busy = [False, True, True]
    assert await site.run("", BUILT) == [STARTED, BUILT]
    assert site.busy == []


async def test_a_builder_that_comes_too_late_tries_again(site: Site) -> None:
    mark = site.directory.root / "mark"
    script = f"import os, sys; os.path.exists({str(mark)!r}) or (open({str(mark)!r}, 'w'), sys.exit({EXIT_BUSY}))"
    assert await site.run(script, BUILT) == [STARTED, STARTED, BUILT]


async def test_leaving_ends_all_that_the_builder_has_started_and_removes_what_it_wrote(site: Site) -> None:
    pid_file = site.archives / "pid"
    script = (
        f"import os, subprocess; os.mkdir({str(site.archives)!r} + f'/.unfinished-{{os.getpid()}}-x');"
        "child = subprocess.Popen(['sleep', '3600'], process_group=0);"
        f"open({str(pid_file)!r}, 'w').write(f'{{child.pid}}\\n'); child.wait()"
    )
    assert await site.run(script, STARTED, lambda: pid_file.exists() and pid_file.read_text().endswith("\n")) == [
        STARTED
    ]
    until(lambda: (stat := read_stat(int(pid_file.read_text()))) is None or stat.is_dead, "the child is gone")
    assert list(site.archives.iterdir()) == [pid_file]
    assert list(site.directory.archive_builder.iterdir()) == []
