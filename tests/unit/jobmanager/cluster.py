"""A JobManager with fakes around it, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.ids import JobId
from emberkeep.jobmanager.blobs.server import BlobServer
from emberkeep.jobmanager.service import JobManagerService
from emberkeep.jobmanager.surroundings import SharedStorage, Surroundings
from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.jobs.model import JobStatus
from emberkeep.jobs.ports import JobStore
from emberkeep.kept_logs.ports import LogStore, NoLogStore
from emberkeep.notifications.ports import Notifier, SilentNotifier
from emberkeep.protocol.messages.task_manager_reports import ProcessState
from emberkeep.protocol.messages.task_managers import StopDriver
from emberkeep.slots.resource_driver import ResourceManagerDriver
from emberkeep.usage.ports import UsageStore
from tests.support.chronicle.memory import MemoryChronicle, Streams
from tests.support.memory_blobs import MemoryBlobStorage, MemoryFiles, MemoryLocalStore
from tests.support.memory_rpc import MemoryNetwork
from tests.support.savepoints.memory_savepoints import MemorySavepoints
from tests.support.simulator.virtual_loop import VirtualClock, VirtualLoop, seeded_system
from tests.support.usable_storage import UsableStorage
from tests.unit.jobmanager.fakes import FakeJobMaster, FakeTaskManager, graph

NO_DELAY = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "1s"}


def in_virtual_time(scenario: Callable[[], Awaitable[None]]) -> None:
    """Run a scenario on a loop of its own; waiting costs nothing and ends at the same moment each time."""
    loop = VirtualLoop()
    try:
        loop.run_until_complete(scenario())
    finally:
        left = loop.end_all()
        loop.close()
    assert not left, f"tasks that would not end: {left}"


class SmallCluster:
    """One JobManager and its task managers. Their heartbeats are sent once a second unless they are silenced."""

    def __init__(
        self,
        store: JobStore,
        settings: dict[str, str] | None = None,
        *,
        steps_aside: bool = False,
        storage: SharedStorage | None = None,
        resource_driver: ResourceManagerDriver | None = None,
        notifier: Notifier | None = None,
        logs: LogStore | None = None,
        usage: UsageStore | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.store = store
        self.steps_aside = steps_aside
        self.storage = storage or UsableStorage()
        self.resource_driver = resource_driver
        self.notifier = notifier or SilentNotifier()
        self.logs = logs or NoLogStore()
        self.usage = usage
        self.shared_settings: dict[str, str] = {}  # as the next leader notes them
        self.savepoints = MemorySavepoints()
        self.files, self.shared = MemoryFiles(), MemoryFiles()
        self.network = MemoryNetwork()
        self.configuration = Configuration().with_texts({**NO_DELAY, **(settings or {})}, "test")
        self.loop = loop
        self.streams: Streams = {}
        self.lives = 0
        self.task_managers: list[FakeTaskManager] = []
        self.silent: set[str] = set()
        self.service = self._service()

    def _service(self) -> JobManagerService:
        self.lives += 1
        system = seeded_system(VirtualClock(self.loop), 1, f"jobmanager-{self.lives}")
        local, ha = MemoryLocalStore(self.files), MemoryBlobStorage(self.files, self.shared)
        self.blobs = BlobServer(self.configuration, local, ha, confirm=self.store.confirm, disk=self.files)
        self.chronicle = MemoryChronicle(self.streams, system.clock.now_ms)
        surroundings = Surroundings(
            rpc=self.network,
            address="jm:1",
            checkpoint_root="/checkpoints",
            savepoint_root="/default-savepoints",
            storage=self.storage,
            savepoints=self.savepoints,
            chronicle=self.chronicle,
            resource_driver=self.resource_driver,
            notifier=self.notifier,
            logs=self.logs,
            usage=self.usage,
            settings=dict(self.shared_settings),
        )
        return JobManagerService(
            system, self.configuration, surroundings, self.store, self.blobs, steps_aside=self.steps_aside
        )

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[JobManagerService]:
        """Run a JobManager; each use is a new life of it."""
        if self.lives > 1 or self.task_managers:
            self.service = self._service()
        running = asyncio.create_task(self.service.run())
        beating = asyncio.create_task(self._beats())
        ready = asyncio.create_task(self.service.ready())
        try:
            await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
            yield self.service
            if running.done():
                running.result()
        finally:
            for task in (ready, beating, running):
                task.cancel()
            await asyncio.gather(ready, beating, running, return_exceptions=True)

    async def _beats(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            for task_manager in self.task_managers:
                if task_manager.info.instance not in self.silent:
                    task_manager.service = self.service
                    try:
                        if not (await task_manager.beat()).known:
                            await task_manager.register()
                    except EmberkeepError:
                        continue  # what a real one would try again

    async def add(self, name: str = "tm-1", **info: Any) -> FakeTaskManager:
        task_manager = FakeTaskManager(self.service, name, **info)
        self.network.attach(task_manager.info.address, task_manager)
        self.task_managers.append(task_manager)
        await task_manager.register()
        return task_manager

    async def view(self, job_id: JobId) -> JobView:
        return await self.service.gateway.job(job_id)

    async def reaches(self, job_id: JobId, status: JobStatus, *, seconds: float = 600.0) -> JobView:
        """Wait for a status, in virtual time."""
        async with asyncio.timeout(seconds):
            while (view := await self.view(job_id)).status is not status:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.05)
        return view

    async def holds(self, condition: Callable[[], object], *, seconds: float = 600.0) -> None:
        """Wait for a condition, in virtual time."""
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.05)

    async def run_job(self, number: int = 1, count: int = 0, **more: Any) -> FakeJobMaster:
        """Submit a job, bring its driver up and register its JobMaster."""
        submitted = graph(number, **more)
        await self.service.gateway.submit(submitted)
        return await self.next_jobmaster(submitted.job_id, 1, count)

    async def next_jobmaster(self, job_id: JobId, attempt: int, count: int = 0) -> FakeJobMaster:
        await self.holds(lambda: self.host(job_id, attempt))
        master = FakeJobMaster(self.service, job_id, attempt, self.host(job_id, attempt)[0].info.id)
        await master.register(count)
        return master

    def host(self, job_id: JobId, attempt: int) -> list[FakeTaskManager]:
        """Where the driver of an attempt runs."""
        return [
            task_manager
            for task_manager in self.task_managers
            if (driver := task_manager.drivers.get((job_id, attempt))) and driver.state is not ProcessState.EXITED
        ]

    def stops(self) -> list[StopDriver]:
        return [stop for task_manager in self.task_managers for stop in task_manager.stopped]
