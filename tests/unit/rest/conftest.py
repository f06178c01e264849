"""A served API over a fake JobManager with three jobs and two task managers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from emberkeep.jobs.model import JobStatus
from tests.unit.rest.fake_gateway import FakeGateway, driver_report, job_id, job_view, task_manager_view
from tests.unit.rest.server import Site, running_site


@pytest.fixture
def gateway() -> FakeGateway:
    gateway = FakeGateway()
    gateway.add(
        job_view(job_id(1), "flights"),
        job_view(job_id(2), "etl", JobStatus.FINISHED, submitted_ms=1_794_999_000_000),
        job_view(job_id(3), "broken", JobStatus.FAILED, submitted_ms=1_794_998_000_000),
    )
    gateway.add_task_managers(task_manager_view(2, drivers=(driver_report(job_id(1)),)), task_manager_view(3, taken=2))
    return gateway


@pytest.fixture
async def site(tmp_path: Path, gateway: FakeGateway) -> AsyncIterator[Site]:
    async with running_site(tmp_path, gateway) as running:
        yield running
