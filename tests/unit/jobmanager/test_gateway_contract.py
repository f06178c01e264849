"""The gateway of a real JobManager and the fake that the edges' tests use hold the same contract."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.jobmanager.views.cluster import JobManagerGateway, Stranger
from emberkeep.jobs.model import AttemptOutcome, JobStatus
from emberkeep.protocol.messages.task_managers import RegisterTaskManager
from tests.support.contracts.gateway import GatewayContract
from tests.support.contracts.job_store import job
from tests.support.simulator.virtual_loop import VirtualClock, VirtualLoop
from tests.unit.jobmanager.cluster import SmallCluster
from tests.unit.jobmanager.fakes import FakeJobMaster, FakeTaskManager
from tests.unit.jobmanager.memory_store import FailingStore
from tests.unit.rest.blobs.memory_blobs import MemoryBlobs
from tests.unit.rest.fake_gateway import NOW_MS, FakeGateway, job_view, task_manager_view


class RealStage:
    """A JobManager with its actors; task managers and JobMasters are fakes, and time is virtual."""

    def __init__(self, stack: contextlib.AsyncExitStack) -> None:
        self._stack = stack
        self._store = FailingStore()
        self._cluster = SmallCluster(self._store)
        self._masters: dict[JobId, FakeJobMaster] = {}

    @property
    def gateway(self) -> JobManagerGateway:
        return self._cluster.service.gateway

    async def leads(self) -> None:
        await self._stack.enter_async_context(self._cluster.leading())

    def now_ms(self) -> int:
        return VirtualClock(self._cluster.loop).now_ms()

    async def task_manager(self, name: str, node: str) -> None:
        await self._cluster.add(name, node_id=node)

    async def stranger(self, name: str, node: str, lineage: str) -> None:
        one = FakeTaskManager(self._cluster.service, name, node_id=node)
        with pytest.raises(RetryLater):
            await self._cluster.service.serve(RegisterTaskManager(info=one.info, report=one.report(), lineage=lineage))

    async def runs(self, number: int) -> JobId:
        await self.task_manager("tm-1", "a")
        graph = job(number)
        await self.gateway.submit(graph)
        self._masters[graph.job_id] = await self._cluster.next_jobmaster(graph.job_id, 1)
        await self._cluster.reaches(graph.job_id, JobStatus.RUNNING)
        return graph.job_id

    async def _ends(self, job_id: JobId, outcome: AttemptOutcome, status: JobStatus) -> None:
        await self._masters[job_id].ends(outcome)
        (host,) = self._cluster.host(job_id, 1)
        host.exits(job_id, 1, outcome)
        await self._cluster.reaches(job_id, status)

    async def finishes(self, job_id: JobId) -> None:
        await self._ends(job_id, AttemptOutcome(exit_code=0), JobStatus.FINISHED)

    async def stops(self, job_id: JobId) -> None:
        await self._ends(job_id, AttemptOutcome(exit_code=143), JobStatus.CANCELED)

    async def passes(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def loses_blocklist(self) -> None:
        await self.steps_down()
        self._store.disk.damage_blocklist()
        await self.leads()

    async def steps_down(self) -> None:
        await self._stack.aclose()


class FakeStage:
    def __init__(self, directory: Path) -> None:
        self.gateway = FakeGateway()
        self.gateway.blobs = MemoryBlobs(directory)
        self._count = 0

    def now_ms(self) -> int:
        return self.gateway.now_ms

    async def task_manager(self, name: str, node: str) -> None:
        self._count += 1
        view = task_manager_view(self._count)
        info = msgspec.structs.replace(view.info, id=TaskManagerId(name), node_id=node)
        self.gateway.add_task_managers(msgspec.structs.replace(view, info=info))

    async def stranger(self, name: str, node: str, lineage: str) -> None:
        other = Stranger(id=TaskManagerId(name), address="10.0.0.1:1", node_id=node, pid=1, lineage=lineage)
        self.gateway.others = (*self.gateway.others, other)

    async def runs(self, number: int) -> JobId:
        graph = job(number)
        self.gateway.add(job_view(graph.job_id, graph.name, graph=graph))
        return graph.job_id

    async def finishes(self, job_id: JobId) -> None:
        self.gateway.change(job_id, status=JobStatus.FINISHED, ended_ms=NOW_MS)

    async def stops(self, job_id: JobId) -> None:
        """The fake has no driver that must end first."""

    async def passes(self, seconds: float) -> None:
        self.gateway.now_ms += int(1000 * seconds)

    async def loses_blocklist(self) -> None:
        self.gateway.lost_blocklist = "its record is damaged"

    async def steps_down(self) -> None:
        self.gateway.refusal = RetryLater("this JobManager is not the leader")


class TestLeader(GatewayContract):
    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, Any]]:
        return "asyncio", {"loop_factory": VirtualLoop}

    @pytest.fixture
    async def stage(self) -> AsyncIterator[RealStage]:
        async with contextlib.AsyncExitStack() as stack:
            stage = RealStage(stack)
            await stage.leads()
            yield stage


class TestFake(GatewayContract):
    @pytest.fixture
    def stage(self, tmp_path: Path) -> FakeStage:
        return FakeStage(tmp_path)
