"""Metrics of the BLOB server and of every task manager's BLOB cache, from their own counters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from emberkeep.jobmanager.views.blobs import BlobStatistics
from emberkeep.jobmanager.views.cluster import TaskManagerView

_SERVER_GAUGES = (
    ("emberkeep_blob_stored", "BLOBs that the BLOB server stores.", "blobs"),
    ("emberkeep_blob_stored_bytes", "Bytes of the BLOBs that the BLOB server stores.", "bytes"),
)
_SERVER_COUNTERS = (
    ("emberkeep_blob_uploads", "BLOBs uploaded to the BLOB server.", "uploads"),
    ("emberkeep_blob_uploaded_bytes", "Bytes uploaded to the BLOB server.", "uploaded_bytes"),
    ("emberkeep_blob_downloads", "BLOBs that the BLOB server sent itself.", "downloads"),
    ("emberkeep_blob_downloaded_bytes", "Bytes that the BLOB server sent itself.", "downloaded_bytes"),
    ("emberkeep_blob_redirects", "Downloads that the BLOB server redirected to a peer's cache.", "redirected"),
    ("emberkeep_blob_misses", "Requests for BLOBs that no store of the BLOB server has.", "misses"),
    ("emberkeep_blob_verify_failures", "Damaged copies found at the BLOB server.", "verify_failures"),
    ("emberkeep_blob_cleanup_runs", "Staged clean-ups of the BLOB server.", "cleanup_runs"),
    ("emberkeep_blob_deleted", "BLOBs that the BLOB server deleted.", "deleted"),
)
_SERVER_HITS = (("local", "local_hits"), ("ha", "ha_hits"))

_CACHE_COUNTERS = (
    ("emberkeep_blob_cache_received_bytes", "Bytes that BLOB caches received.", "received_bytes"),
    ("emberkeep_blob_cache_misses", "Failed retrievals by BLOB caches.", "failures"),
    (
        "emberkeep_blob_cache_verify_failures",
        "Damaged copies that BLOB caches found on disk or received.",
        "verify_failures",
    ),
    ("emberkeep_blob_cache_served", "BLOBs that BLOB caches sent to their peers.", "served"),
    ("emberkeep_blob_cache_cleanup_runs", "Staged clean-ups of BLOB caches.", "cleanup_runs"),
    ("emberkeep_blob_cache_deleted", "BLOBs that clean-ups of BLOB caches deleted.", "deleted"),
)
# Where a cache found a requested BLOB. A transfer comes from "ha" or "server", which includes the caches of peers.
_CACHE_HITS = (("local", "hits"), ("shared", "shared"))
_CACHE_TRANSFERS = (("ha", "ha_hits"), ("server", "downloads"))
_TASK_MANAGER = "task_manager"


class BlobMetrics(Collector):
    """Collector that exposes what ``show`` was last given."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._server: BlobStatistics | None = None
        self._caches: Sequence[TaskManagerView] = ()
        registry.register(self)

    def show(self, server: BlobStatistics, caches: Sequence[TaskManagerView]) -> None:
        """Replace what is exposed: the server's counters, and the reports of the caches."""
        self._server = server
        self._caches = caches

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics for the registry; nothing before the first ``show``."""
        if self._server is not None:
            yield from _of_server(self._server)
            yield from _of_caches(self._caches)


def _of_server(server: BlobStatistics) -> Iterator[Metric]:
    for name, doc, attribute in _SERVER_GAUGES:
        yield GaugeMetricFamily(name, doc, value=getattr(server, attribute))
    for name, doc, attribute in _SERVER_COUNTERS:
        yield CounterMetricFamily(name, doc, value=getattr(server, attribute))
    hits = CounterMetricFamily(
        "emberkeep_blob_hits", "BLOBs that the BLOB server found, by the store that had them.", labels=["store"]
    )
    for store, attribute in _SERVER_HITS:
        hits.add_metric([store], getattr(server, attribute))
    yield hits


def _of_caches(views: Sequence[TaskManagerView]) -> Iterator[Metric]:
    reports = [(view.info.id, view.report.blobs) for view in views if view.report.blobs is not None]
    stored = GaugeMetricFamily("emberkeep_blob_cache_stored", "BLOBs in BLOB caches.", labels=[_TASK_MANAGER])
    for name, report in reports:
        stored.add_metric([name], report.blobs)
    yield stored
    for metric, doc, attribute in _CACHE_COUNTERS:
        family = CounterMetricFamily(metric, doc, labels=[_TASK_MANAGER])
        for name, report in reports:
            family.add_metric([name], getattr(report, attribute))
        yield family
    for metric, doc, label, sources in (
        ("emberkeep_blob_cache_hits", "BLOBs that were on the node already.", "where", _CACHE_HITS),
        ("emberkeep_blob_cache_transfers", "BLOBs that were downloaded to the node.", "source", _CACHE_TRANSFERS),
    ):
        family = CounterMetricFamily(metric, doc, labels=[_TASK_MANAGER, label])
        for name, report in reports:
            for source, attribute in sources:
                family.add_metric([name, source], getattr(report, attribute))
        yield family
