"""Task managers that meet on one disk, as real processes without a JobManager: none harms another one's copies."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.adapters.processes.place_lock import last_holder
from emberkeep.adapters.state.copies import DiskCopies
from emberkeep.base.ids import AllocationId, JobId
from tests.integration.commands import Running, Shell
from tests.integration.conditions import until
from tests.support.contracts.local_copies import keep
from tests.support.live_files import files_below

pytestmark = pytest.mark.integration


class TaskManagers:
    """On one machine, with one root directory for local state."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.root = shell.directory / "shared"
        self.running: list[Running] = []

    def start(self, name: str, *, recovery: bool = True, **settings: str) -> Running:
        values = {
            "taskmanager.resource-id": name,
            "process.taskmanager.working-dir": str(self.shell.directory / name),
            "jobmanager.rpc.address": "127.0.0.1:1",
            "state.backend.local-recovery": str(recovery).lower(),
            "taskmanager.state.local.root-dir": str(self.root),
            **{key.replace("__", "-").replace("_", "."): value for key, value in settings.items()},
        }
        words = (word for key, value in values.items() for word in ("-D", f"{key}={value}"))
        started = self.shell.start("taskmanager", *words)
        self.running.append(started)
        return started

    def serve(self, name: str, *, recovery: bool = True, **settings: str) -> Running:
        """Start one, and wait until it serves."""
        started = self.start(name, recovery=recovery, **settings)
        until(lambda: '"url"' in started.out or started.process.poll() is not None, lambda: str(started))
        assert started.process.poll() is None, started
        return started

    def end(self, started: Running, number: signal.Signals = signal.SIGTERM) -> None:
        started.process.send_signal(number)
        started.wait()


@pytest.fixture
def task_managers(tmp_path: Path) -> Iterator[TaskManagers]:
    made = TaskManagers(Shell(tmp_path, tmp_path))
    yield made
    for started in made.running:
        if started.process.poll() is None:
            started.process.kill()
            started.wait()
    made.shell.traces.check_nothing_left()


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in files_below(root)}


@pytest.mark.req("SAFE-16", "SAFE-4")
def test_another_task_manager_with_the_same_root_directory_harms_no_copies(task_managers: TaskManagers) -> None:
    first = task_managers.serve("first")
    (staging,) = until(lambda: list(task_managers.root.rglob("staging")), lambda: str(first))
    half = staging / "half"
    half.write_bytes(b"being received")
    copies = DiskCopies(task_managers.shell.directory / "made")
    copies.open_copies()
    keep(copies, "q/state/0/0/1.delta", b"state", job=JobId("1" * 32), allocation=AllocationId("a" * 32), root="/d")
    (task_managers.shell.directory / "made" / "copies").rename(staging.parent / "copies.new")
    (staging.parent / "copies").rmdir()
    (staging.parent / "copies.new").rename(staging.parent / "copies")
    before = contents(staging.parent)
    assert len(before) >= 2

    for recovery in (True, False):
        second = task_managers.serve("second", recovery=recovery)
        until(lambda: recovery or not second_root(task_managers, staging), "its own copies go")  # noqa: B023
        task_managers.end(second)
        assert contents(staging.parent) == before
    second = task_managers.serve("second")
    task_managers.end(second, signal.SIGQUIT)
    assert contents(staging.parent) == before
    task_managers.end(first)


def second_root(task_managers: TaskManagers, staging: Path) -> list[Path]:
    """What a task manager other than the one with ``staging`` keeps below the root."""
    return [path for path in task_managers.root.iterdir() if path not in (staging, staging.parent, task_managers.root)]


@pytest.mark.req("SAFE-17", "SAFE-4")
def test_another_address_keeps_the_id_and_another_id_is_refused(task_managers: TaskManagers) -> None:
    place = str(task_managers.shell.directory / "place")
    first = task_managers.serve("", process_taskmanager_working__dir=place, taskmanager_host="127.0.0.2")
    second = task_managers.start("", process_taskmanager_working__dir=place, taskmanager_host="127.0.0.3").wait()
    assert second.code == 1
    assert f"{place} is in use by task manager tm-127.0.0.2: pid {first.process.pid} on " in second.err
    task_managers.end(first, signal.SIGKILL)

    moved = task_managers.serve("", process_taskmanager_working__dir=place, taskmanager_host="127.0.0.3")
    assert moved.out.count("127.0.0.3")
    holder = last_holder(Path(place) / "lock")
    assert holder is not None
    assert holder.name == "task manager tm-127.0.0.2"
    assert len(list(task_managers.root.iterdir())) == 1, "it has the copies that it had"
    task_managers.end(moved)

    before = contents(Path(place))
    other = task_managers.start("other", process_taskmanager_working__dir=place).wait()
    assert other.code == 1
    assert (
        f"{place} is the working directory of task manager tm-127.0.0.2; taskmanager.resource-id is other" in other.err
    )
    after = contents(Path(place))
    assert {name: data for name, data in after.items() if name != "lock"} == {
        name: data for name, data in before.items() if name != "lock"
    }
