"""The resource drivers, and the fake that other tests use, keep one contract."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.resource_drivers import LOCAL_NODES
from emberkeep.base.configuration.options.task_managers import MEMORY
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Unavailable, UnknownOutcome
from emberkeep.base.ids import TaskManagerId
from emberkeep.base.processes.process_identity import is_alive
from emberkeep.base.started_task_managers import read_started, write_started
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.daemons.jobmanager.resource_drivers.kubernetes_pods import KubernetesPods
from emberkeep.daemons.jobmanager.resource_drivers.local_processes import LocalProcesses
from emberkeep.daemons.jobmanager.resource_drivers.slurm_jobs import SlurmJobs
from emberkeep.slots.resource_driver import ResourceManagerDriver, StartedTaskManager
from tests.integration.conditions import until
from tests.support.contracts.resource_driver import Platform, ResourceDriverContract
from tests.support.resource_drivers.fake_kubernetes import FakeKubernetes
from tests.support.resource_drivers.fake_slurm import FakeSlurm
from tests.support.resource_drivers.kubernetes_driver import kubernetes_driver
from tests.support.resource_drivers.memory_nodes import MemoryNodes
from tests.support.resource_drivers.slurm_driver import slurm_driver


class MemoryPlatform:
    def __init__(self) -> None:
        self._driver = MemoryNodes()
        self.nodes = ("node-0", "node-1")

    def leader(self) -> ResourceManagerDriver:
        return self._driver

    def ends(self, task_manager: TaskManagerId) -> None:
        self._driver.dies(task_manager)

    def node_of(self, task_manager: TaskManagerId) -> str:
        return self._driver.listed[task_manager].node_id

    def running(self, task_manager: TaskManagerId) -> int:
        return int(task_manager in self._driver.listed)

    async def interrupted_start(self) -> TaskManagerId:
        started = StartedTaskManager(TaskManagerId("tm-0"), "node-0")
        self._driver.listed[started.id] = started
        return started.id

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        self._driver.outage = Unavailable("the nodes do not answer")
        yield
        self._driver.outage = None


class LocalPlatform:
    """This machine, with a program that does nothing in place of the task manager."""

    def __init__(self, root: Path) -> None:
        self.nodes = ("127.0.0.2", "spare")
        texts = {LOCAL_NODES.key: "127.0.0.2,spare=127.0.0.3", MEMORY.key: "2g"}
        self._configuration = Configuration().with_texts(texts, "test")
        self._layout = StateLayout(root, self._configuration)
        self._records = self._layout.started_task_managers

    def leader(self) -> LocalProcesses:
        return LocalProcesses(self._configuration, self._layout, "127.0.0.1:9999")

    def ends(self, task_manager: TaskManagerId) -> None:
        for record in read_started(self._records):
            process = record.process()
            if record.task_manager == task_manager and process is not None:
                os.kill(process.pid, signal.SIGKILL)
                until(lambda process=process: not is_alive(process), "the process ends")  # type: ignore[misc]

    def node_of(self, task_manager: TaskManagerId) -> str:
        (node,) = [each.node_id for each in read_started(self._records) if each.task_manager == task_manager]
        return node

    def running(self, task_manager: TaskManagerId) -> int:
        records = [each for each in read_started(self._records) if each.task_manager == task_manager]
        return sum(each.process() is not None for each in records)

    async def interrupted_start(self) -> TaskManagerId:
        driver = self.leader()
        driver._start(driver._nodes[0])
        (record,) = read_started(self._records)
        write_started(self._records, msgspec.structs.replace(record, identity=None))
        return record.task_manager

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        aside = self._records.with_name("aside")
        self._records.rename(aside)
        self._records.write_text("not a directory")
        yield
        self._records.unlink()
        aside.rename(self._records)


class SlurmPlatform:
    def __init__(self, root: Path) -> None:
        self.nodes = ("n1", "n2")
        self._slurm = FakeSlurm(root / "slurm", self.nodes, os.getuid())
        self._root = root / "state"

    def leader(self) -> SlurmJobs:
        return slurm_driver(self._root, self._slurm)

    def ends(self, task_manager: TaskManagerId) -> None:
        self._slurm.set_state(f"-{task_manager}", "FAILED")

    def _running(self, task_manager: TaskManagerId) -> list[str]:
        jobs = self._slurm.jobs(f"-{task_manager}")
        return [job["nodes"] for job in jobs if job["job_state"] == "RUNNING"]

    def node_of(self, task_manager: TaskManagerId) -> str:
        (node,) = self._running(task_manager)
        return node

    def running(self, task_manager: TaskManagerId) -> int:
        return len(self._running(task_manager))

    async def interrupted_start(self) -> TaskManagerId:
        self._slurm.switch("lose-reply", on=True)
        with pytest.raises(UnknownOutcome):
            await self.leader().start(BlockedPlaces(), frozenset())
        return TaskManagerId("tm-0")

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        self._slurm.switch("down", on=True)
        yield
        self._slurm.switch("down", on=False)


class KubernetesPlatform:
    def __init__(self, root: Path) -> None:
        self.nodes = ("n1", "n2")
        self._kubernetes = FakeKubernetes(*self.nodes)
        self._root = root

    def leader(self) -> KubernetesPods:
        return kubernetes_driver(self._root, self._kubernetes)

    def _named(self, task_manager: TaskManagerId) -> list[str]:
        return [name for name in self._kubernetes.manifests if name.endswith(f"-{task_manager}")]

    def ends(self, task_manager: TaskManagerId) -> None:
        (name,) = self._named(task_manager)
        self._kubernetes.set_phase(name, "Failed")

    def node_of(self, task_manager: TaskManagerId) -> str:
        (name,) = self._named(task_manager)
        return str(self._kubernetes.manifests[name]["spec"]["nodeName"])

    def running(self, task_manager: TaskManagerId) -> int:
        phases = [self._kubernetes.manifests[name]["status"]["phase"] for name in self._named(task_manager)]
        return phases.count("Running")

    async def interrupted_start(self) -> TaskManagerId:
        self._kubernetes.loses_reply = UnknownOutcome("no reply")
        with pytest.raises(UnknownOutcome):
            await self.leader().start(BlockedPlaces(), frozenset())
        return TaskManagerId("tm-0")

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        self._kubernetes.outage = Unavailable("the API server does not answer")
        yield
        self._kubernetes.outage = None


class TestMemoryNodes(ResourceDriverContract):
    @pytest.fixture
    def platform(self) -> Platform:
        return MemoryPlatform()


class TestLocalProcesses(ResourceDriverContract):
    @pytest.fixture
    async def platform(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Platform]:
        program = tmp_path / "program"
        program.write_text("#!/bin/sh\nexec sleep 1000\n")
        program.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(program))
        platform = LocalPlatform(tmp_path / "state")
        yield platform
        driver = platform.leader()
        for each in await driver.survey():
            await driver.end(each.id)


class TestSlurmJobs(ResourceDriverContract):
    @pytest.fixture
    def platform(self, tmp_path: Path) -> Platform:
        return SlurmPlatform(tmp_path)


class TestKubernetesPods(ResourceDriverContract):
    @pytest.fixture
    def platform(self, tmp_path: Path) -> Platform:
        return KubernetesPlatform(tmp_path)
