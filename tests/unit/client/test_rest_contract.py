"""The JobManager's real REST service and the fake that the client's tests use hold the same contract."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from emberkeep.adapters.http.token_file import load_token
from emberkeep.base.configuration.layout import StateLayout, state_layout
from emberkeep.base.configuration.options.directories import STATE_DIRECTORY
from emberkeep.base.configuration.options.job_managers import REST_PORT
from emberkeep.base.configuration.options.security import ENCRYPTION
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.ids import JobId
from emberkeep.base.system import real_system
from emberkeep.client.endpoint import Endpoint
from emberkeep.daemons.jobmanager.alone import JobManagerProcess, job_manager_process
from emberkeep.daemons.process_main import Services
from emberkeep.jobs.model import JobStatus
from tests.support.contracts.rest_service import LOG, RestServiceContract
from tests.unit.client.fake_job_manager import FakeJobManager, FakeLog, task_manager_info
from tests.unit.jobmanager.fakes import FakeTaskManager


class RealStage:
    """A JobManager with its actors, stores and HTTP server, wired as in its daemon."""

    def __init__(self, process: JobManagerProcess, layout: StateLayout) -> None:
        self._process = process
        self._log = layout.job_manager / "logs" / LOG
        self.endpoint = Endpoint(process.url, load_token(layout.token_file), "a test", ca=layout.tls_files.ca)

    async def task_manager(self, name: str) -> None:
        await FakeTaskManager(self._process.service, name).register()

    async def cancellation_ends(self, job_id: JobId) -> None:
        async with asyncio.timeout(60):
            while (await self._process.service.gateway.job(job_id)).status is not JobStatus.CANCELED:  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    def write_log(self, data: bytes) -> None:
        self._log.parent.mkdir(exist_ok=True)
        self._log.write_bytes(data)


class FakeStage:
    def __init__(self, fake: FakeJobManager) -> None:
        self._fake = fake
        self.endpoint = fake.endpoint

    async def task_manager(self, name: str) -> None:
        self._fake.task_managers.append(task_manager_info(name))

    async def cancellation_ends(self, job_id: JobId) -> None:
        self._fake.jobs[job_id] = msgspec.structs.replace(self._fake.jobs[job_id], state=JobStatus.CANCELED)

    def write_log(self, data: bytes) -> None:
        self._fake.daemon_logs[""] = [FakeLog(0, "jobmanager", data, name=LOG)]


class TestJobManager(RestServiceContract):
    encryption = "none"

    @pytest.fixture
    async def stage(self, tmp_path: Path) -> AsyncIterator[RealStage]:
        texts = {STATE_DIRECTORY.key: str(tmp_path / "state"), REST_PORT.key: "0", ENCRYPTION.key: self.encryption}
        configuration = Configuration().with_texts(texts, "test")
        layout, services = state_layout(configuration, {}), Services()
        try:
            async with job_manager_process(real_system(), configuration, layout, services, asyncio.Event()) as process:
                yield RealStage(process, layout)
        finally:
            await services.cancel()


@pytest.mark.req("SEC-9")
class TestEncryptedJobManager(TestJobManager):
    encryption = "tls"


class TestFake(RestServiceContract):
    @pytest.fixture
    def stage(self) -> Iterator[FakeStage]:
        with FakeJobManager().serving() as fake:
            yield FakeStage(fake)
