"""A leader pushes its metrics: when it becomes the leader and at an orderly end, and no endpoint delays it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from emberkeep.base.configuration.layout import state_layout
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.system import real_system
from emberkeep.daemons.jobmanager.alone import JobManagerProcess, job_manager_process
from emberkeep.daemons.process_main import Services
from tests.unit.adapters.otlp.collector import SLOW, collecting
from tests.unit.jobmanager.fakes import graph

NONE = frozenset[tuple[str, str]]()
SENT = frozenset({("outcome", "sent")})


@asynccontextmanager
async def leading(directory: Path, endpoint: str) -> AsyncIterator[JobManagerProcess]:
    texts = {
        "emberkeep.state-dir": str(directory / "state"),
        "rest.port": "0",
        "security.encryption": "none",
        "metrics.otlp.endpoint": endpoint,
        "metrics.otlp.interval": "1h",
    }
    configuration = Configuration().with_texts(texts, "test")
    services = Services()
    try:
        async with job_manager_process(
            real_system(), configuration, state_layout(configuration, {}), services, asyncio.Event()
        ) as process:
            yield process
    finally:
        await services.cancel()


async def test_a_leader_pushes_when_it_leads_and_when_it_ends(tmp_path: Path) -> None:
    async with collecting() as collector:
        async with leading(tmp_path, collector.url) as process:
            await collector.gets(1)
            await process.service.gateway.submit(graph(1))
        first, last = collector.pushes
    jobs = [
        sum(value for (name, _), value in each.series().items() if name == "emberkeep_jobs") for each in (first, last)
    ]
    assert jobs == [0, 1]
    assert first.series()["emberkeep_leader_epoch", NONE] == process.service.gateway.epoch()
    assert [each.series()["emberkeep_metrics_pushes_total", SENT] for each in (first, last)] == [0, 1]
    assert first.resource() == last.resource()
    assert first.resource()["service.instance.id"] == process.address
    assert first.resource()["emberkeep.cluster.id"].startswith("embedded-")


async def test_an_endpoint_that_does_not_answer_delays_no_job(tmp_path: Path) -> None:
    async with collecting(SLOW) as collector, leading(tmp_path, collector.url) as process:
        await collector.gets(1)
        await process.service.gateway.submit(graph(1))
        assert len(await process.service.gateway.jobs()) == 1
