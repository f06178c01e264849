"""Executors of a service in control groups: the kernel ends one that takes too much, and its neighbour goes on.

This machine's versions of control groups decide which one is tried: memory and cpu belong to one of them only.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.rest_jobs import JobDetailsInfo
from tests.integration.commands import SMALL
from tests.integration.conditions import until
from tests.integration.services.machine import Machine, why_not
from tests.integration.services.services import SETTINGS, TASK_MANAGER, Services

pytestmark = [pytest.mark.integration, pytest.mark.long]

PLACE, JOBS = "/tmp/limited", "jobs"
CORES, MIB = 2, 896  # of each executor: its heap of 512 MiB, and Spark's overhead of 384 MiB
LIMITED = {
    **SETTINGS,
    "taskmanager.cgroups": "required",
    "taskmanager.memory.limit": "always",
    "taskmanager.memory.process.size": "4g",
    "taskmanager.cpu.cores": str(2 * CORES),
    "taskmanager.numberOfTaskSlots": "2",
}
# Two tasks, each in an executor of its own. The first takes 1.5 GiB once it may; what Spark then tries in the same
# executor waits for the end of that. The second goes on in one process all the time.
SCRIPT = """
import os, sys, time
from pathlib import Path
from pyspark.sql import SparkSession

place = Path(sys.argv[1])

def wait_for(name):
    while not (place / name).exists():
        time.sleep(0.1)

def tell(name, text):
    aside = place / (name + ".new")
    aside.write_text(str(text))
    aside.rename(place / name)

def greedy():
    if (place / "directory").exists():
        while (place / "directory").read_text() == os.getcwd():
            time.sleep(0.1)
        return 1
    tell("directory", os.getcwd())
    tell("greedy", os.getpid())
    wait_for("take")
    held = os.urandom(1 << 20) * 1536
    wait_for("no-such-file")
    return len(held)

def modest():
    tell("modest", os.getpid())
    wait_for("end")
    return 2

context = SparkSession.builder.getOrCreate().sparkContext
print("tasks", context.parallelize(range(2), 2).map(lambda number: [greedy, modest][number]()).collect(), flush=True)
"""
_reason = functools.cache(why_not)


class LimitedJob:
    """A job that runs the script on two executors."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._machine = services.machine
        self._machine.done("install", "-d", "-m", "1777", PLACE)
        self._machine.path(f"{PLACE}/limited.py").write_text(SCRIPT)
        size = ("--num-executors", "2", "--executor-cores", str(CORES), "--conf", f"spark.task.cpus={CORES}")
        self.job_id = services.done("submit", "-q", *SMALL, *size, f"{PLACE}/limited.py", PLACE).strip()

    def worker(self, name: str) -> int:
        """Return the pid of the Python worker of a task, once it runs."""
        path = self._machine.path(f"{PLACE}/{name}")
        until(path.exists, self.story)
        return int(path.read_text())

    def may(self, what: str) -> None:
        self._machine.done("touch", f"{PLACE}/{what}")

    def info(self) -> JobDetailsInfo:
        text = self._services.done("info", self.job_id, "-o", "json")
        return msgspec.convert(msgspec.json.decode(text)["job"], JobDetailsInfo)

    def executors(self) -> set[int]:
        """Pids of those that Spark can use."""
        return {executor.pid for executor in self.info().emberkeep.executors if executor.registered}

    def events(self) -> str:
        return self._services.done("events", "-o", "json", self.job_id)

    def output(self) -> str:
        return self._services.done("logs", self.job_id)

    def story(self) -> str:
        return f"{self._services.command('info', self.job_id).out}\n{self._services.story()}"


class Groups:
    """The control groups of a machine's processes."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def of(self, pid: int, controller: str) -> str:
        """Return the group of a process, from the root of the hierarchy with this controller."""
        lines = [line.split(":", 2) for line in self._machine.done("cat", f"/proc/{pid}/cgroup").splitlines()]
        found = {name: path for _, names, path in lines for name in names.split(",")}
        return found.get(controller, found[""])

    def limit(self, pid: int, controller: str, *names: str) -> str:
        """Return what the file with the first of these names that exists says for a process's group."""
        group = self.of(pid, controller)
        for root in (f"/sys/fs/cgroup/{controller}", "/sys/fs/cgroup"):
            for name in names:
                ended = self._machine.run("cat", f"{root}{group}/{name}")
                if ended.code == 0:
                    return ended.out.strip()
        raise AssertionError(f"{group} has none of {names}")


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    if reason := _reason():
        pytest.skip(reason)
    with contextlib.closing(Machine(tmp_path)) as machine:
        services = Services(machine, LIMITED)
        services.run_as_root(JOBS)  # with version 1, systemd delegates to root only
        yield services


@pytest.mark.parametrize("is_restarted", [False, True], ids=["of-the-first-process", "of-the-next-process"])
def test_an_executor_that_takes_too_much_is_ended_and_its_neighbour_goes_on(
    services: Services, *, is_restarted: bool
) -> None:
    services.start()
    job = LimitedJob(services)
    groups = Groups(services.machine)
    greedy, modest = job.worker("greedy"), job.worker("modest")
    before = job.executors()
    assert len(before) == 2
    if is_restarted:
        main = services.main_pid(TASK_MANAGER)
        services.machine.done("systemctl", "restart", TASK_MANAGER)
        until(lambda: services.main_pid(TASK_MANAGER) not in (0, main) and services.registered() == 1, job.story)
        until(lambda: job.executors() == before, job.story)

    # Each executor and all that it starts is in a group of its own, below that of the service.
    for controller in ("memory", "cpu"):
        places = {pid: groups.of(pid, controller) for pid in before}
        assert set(places.values()) == {groups.of(greedy, controller), groups.of(modest, controller)}
        assert len(set(places.values())) == 2
        for place in places.values():
            assert re.fullmatch(rf"/system\.slice/{TASK_MANAGER}/emberkeep-\w+/[^/]+", place), place
    for pid in before:
        assert groups.limit(pid, "memory", "memory.limit_in_bytes", "memory.max") == str(MIB << 20)
        assert groups.limit(pid, "cpu", "cpu.shares", "cpu.weight") in (str(1024 * CORES), str(100 * CORES))

    job.may("take")
    until(lambda: len(before & job.executors()) == 1 and len(job.executors()) == 2, job.story)
    cause = f"the kernel ended a process in its control group, because it needed more than the {MIB} MiB of memory"
    assert cause in job.events()
    (stayed,) = before & job.executors()
    assert groups.of(stayed, "memory") == groups.of(modest, "memory")
    assert job.worker("modest") == modest, "its task went on in the same process"

    job.may("end")
    until(lambda: job.info().state.is_globally_terminal, job.story)
    ended = job.info()
    assert (ended.state, ended.emberkeep.attempt) == (JobStatus.FINISHED, 1), job.story()
    assert job.output() == "tasks [1, 2]\n"
    assert job.worker("modest") == modest
