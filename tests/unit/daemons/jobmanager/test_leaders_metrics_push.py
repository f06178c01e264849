"""A leader pushes its metrics: when it becomes the leader and at an orderly end, and no endpoint delays it."""

from __future__ import annotations

from pathlib import Path

from tests.unit.adapters.otlp.collector import SLOW, collecting
from tests.unit.daemons.jobmanager.leader import leading
from tests.unit.jobmanager.fakes import graph

NONE = frozenset[tuple[str, str]]()
SENT = frozenset({("outcome", "sent")})


def pushing_to(endpoint: str) -> dict[str, str]:
    return {"metrics.otlp.endpoint": endpoint, "metrics.otlp.interval": "1h"}


async def test_a_leader_pushes_when_it_leads_and_when_it_ends(tmp_path: Path) -> None:
    async with collecting() as collector:
        async with leading(tmp_path, pushing_to(collector.url)) as process:
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
    async with collecting(SLOW) as collector, leading(tmp_path, pushing_to(collector.url)) as process:
        await collector.gets(1)
        await process.service.gateway.submit(graph(1))
        assert len(await process.service.gateway.jobs()) == 1
