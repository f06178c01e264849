"""A scrape of a small cluster in which everything that has a metric has happened: what there is to name."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from aiohttp.test_utils import make_mocked_request
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from emberkeep.base.connections import Connections, process_limits
from emberkeep.jobs.checkpoints import JobPointers, QueryCheckpoint
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.messages.task_manager_reports import BlobCacheReport, StandbyReport, StateGatewayReport
from emberkeep.rest.metrics.exposition import Metrics
from emberkeep.watchdog.model import Alarm, AlarmKind
from tests.support.contracts.job_store import savepoint
from tests.unit.rest.blobs.memory_blobs import MemoryBlobs
from tests.unit.rest.cluster.fake_storage import FakeStorage
from tests.unit.rest.fake_gateway import (
    NOW_MS,
    FakeGateway,
    job_id,
    job_view,
    recovery_trace,
    status_report,
    task_manager_view,
)

_OF_HISTOGRAMS = ("_bucket", "_count", "_sum")
_CREATED = "_created"  # prometheus_client adds these to counters and histograms


@dataclass(frozen=True)
class SampleFamily:
    """One metric: its name as queries write it (without the suffixes of a histogram), and its labels."""

    name: str
    kind: str
    doc: str
    labels: tuple[str, ...]


def commit_of_the_query(**changes: object) -> QueryCheckpoint:
    """The newest commit of the query that sample jobs report: a batch of 2.5 s that ended 9 s ago."""
    commit = QueryCheckpoint(
        query="delays",
        query_id="8c1f64c4-52c2-4a4f-a9f4-9d6a0f0c8b1e",
        location="file:/data/checkpoints/delays",
        batch_id=41,
        triggered_ms=NOW_MS - 11_500,
        committed_ms=NOW_MS - 9_000,
    )
    return msgspec.structs.replace(commit, **changes)


def sample_gateway() -> FakeGateway:
    """A cluster with a stream, of which every part reports everything that it can report."""
    gateway = FakeGateway()
    manager = task_manager_view(2)
    report = msgspec.structs.replace(
        manager.report,
        blobs=BlobCacheReport(),
        state_gateway=StateGatewayReport(),
        standbys=StandbyReport(drivers=0, executors=0, drivers_kept=0, executors_kept=0),
    )
    gateway.add_task_managers(msgspec.structs.replace(manager, report=report))
    gateway.add(
        job_view(
            job_id(1),
            "flights",
            status_report=status_report(checkpoints=(commit_of_the_query(),)),
            pointers=JobPointers(attempt=2, savepoints=(savepoint(1),)),
            traces=(recovery_trace(),),
            alarms=(Alarm(kind=AlarmKind.NO_COMMIT, query="delays", since_ms=NOW_MS, message="nothing committed"),),
        )
    )
    gateway.add(job_view(job_id(2), "etl", JobStatus.CANCELLING))
    return gateway


def _sample_metrics() -> Metrics:
    metrics = Metrics(Connections(process_limits()))
    metrics.submitted("created")
    metrics.observe_lag(0.001)
    for path in ("/v1/jobs", "/rpc/v1/RegisterTaskManager"):
        metrics.observe_request(make_mocked_request("GET", path), 200, 0.001)
    return metrics


async def sample_text() -> str:
    """Return what Prometheus reads of the sample cluster."""
    with tempfile.TemporaryDirectory() as directory:
        blobs = MemoryBlobs(Path(directory))
        return (await _sample_metrics().exposition(sample_gateway(), blobs, FakeStorage(), NOW_MS)).decode()


async def sample_metrics() -> Sequence[Metric]:
    """Return the metrics of the sample cluster."""
    with tempfile.TemporaryDirectory() as directory:
        blobs = MemoryBlobs(Path(directory))
        return await _sample_metrics().families(sample_gateway(), blobs, FakeStorage(), NOW_MS)


def sample_families() -> list[SampleFamily]:
    """Return Emberkeep's own metrics, sorted by name."""
    found = []
    for family in text_string_to_metric_families(asyncio.run(sample_text())):
        if not family.name.startswith("emberkeep_") or family.name.endswith(_CREATED):
            continue
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label: None for sample in family.samples for label in sample.labels if label != "le"}
        found.append(SampleFamily(name, family.type, family.documentation, tuple(labels)))
    return sorted(found, key=lambda family: family.name)


def series_names(families: Iterable[SampleFamily]) -> frozenset[str]:
    """Return all names that a query may use for these metrics."""
    return frozenset(
        name
        for family in families
        for name in (
            [family.name + suffix for suffix in _OF_HISTOGRAMS] if family.kind == "histogram" else [family.name]
        )
    )
