"""What Prometheus gets."""

from __future__ import annotations

import asyncio
import math
import re

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from emberkeep.base.connections import Connections, process_limits
from emberkeep.base.ids import TaskManagerId
from emberkeep.blocklist.model import BlockAction, BlockedNode
from emberkeep.jobs.model import JobStatus
from emberkeep.notifications.outbox import Counts
from emberkeep.protocol.messages.task_manager_reports import BlobCacheReport, StateGatewayReport
from emberkeep.rest.metrics.exposition import Metrics, OwnCondition, loop_lag
from tests.unit.rest.fake_gateway import NOW_MS, job_id, job_view, recovery_trace, status_report
from tests.unit.rest.server import Site, eventually


async def scrape(site: Site) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    answer = await site.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


async def test_jobs_slots_and_places(site: Site) -> None:
    samples = await scrape(site)

    assert samples["emberkeep_jobs", (("status", "RUNNING"),)] == 1
    assert samples["emberkeep_jobs", (("status", "CREATED"),)] == 0
    assert samples["emberkeep_task_managers", ()] == 2
    assert (samples["emberkeep_slots", ()], samples["emberkeep_slots_free", ()]) == (4, 1)
    assert (samples["emberkeep_driver_places", ()], samples["emberkeep_driver_places_free", ()]) == (8, 7)
    assert samples["emberkeep_executors", ()] == 2
    assert samples["emberkeep_leader_epoch", ()] == 3


@pytest.mark.parametrize("status", [JobStatus.RESTARTING, JobStatus.CANCELED])
async def test_executors_of_an_attempt_that_is_over_are_not_counted(site: Site, status: JobStatus) -> None:
    site.gateway.add(job_view(job_id(1), "etl", status, status_report=status_report()))
    samples = await scrape(site)
    assert samples["emberkeep_executors", ()] == 0
    own = {name: value for (name, labels), value in samples.items() if ("job", job_id(1)) in labels}
    assert own.get("emberkeep_job_executors", 0) == own.get("emberkeep_job_active_tasks", 0) == 0


async def test_the_number_of_blocked_nodes_is_unknown_while_the_blocklist_is(site: Site) -> None:
    entry = BlockedNode(id="node-1", action=BlockAction.MARK_BLOCKED, causes=("disk",), start_ms=1)
    await site.gateway.block(entry, merge=False)
    blocked = ("emberkeep_num_blocked_nodes", ())
    assert (await scrape(site))[blocked] == 1

    site.gateway.lost_blocklist = "damaged"
    assert math.isnan((await scrape(site))[blocked])


async def test_restarts_are_counted_once_and_not_those_of_an_earlier_leader(site: Site) -> None:
    restarts = ("emberkeep_job_restarts_total", ())
    recovered = job_view(job_id(8), "recovered", attempt=5, submitted_ms=site.gateway.started_ms() - 1)
    site.gateway.add(recovered)
    first = (await scrape(site))[restarts]  # jobs 1 to 3 came to this leader and are on their second attempts

    site.gateway.change(job_id(8), attempt=7)
    site.gateway.add(job_view(job_id(9), "new", JobStatus.CREATED, attempt=0))
    second = (await scrape(site))[restarts]
    site.gateway.change(job_id(9), attempt=1)
    third = (await scrape(site))[restarts]

    assert (first, second, third) == (3, 5, 5)


async def test_a_new_jobs_first_attempt_is_no_restart(site: Site) -> None:
    site.gateway.views.clear()
    site.gateway.add(job_view(job_id(1), "first", attempt=1, submitted_ms=NOW_MS))

    assert (await scrape(site))["emberkeep_job_restarts_total", ()] == 0


async def test_recoveries_are_counted_once_from_their_beginning(site: Site) -> None:
    def seconds(samples: dict[tuple[str, tuple[tuple[str, str], ...]], float]) -> dict[str, tuple[float, float]]:
        prefix = "emberkeep_recovery_seconds"
        counts = {labels: value for (name, labels), value in samples.items() if name == f"{prefix}_count"}
        assert all(dict(labels)["cause"] == "failure" for labels in counts)
        return {
            dict(labels)["milestone"]: (value, samples[f"{prefix}_sum", labels]) for labels, value in counts.items()
        }

    began_ms = site.gateway.started_ms() + 1
    before = recovery_trace(site.gateway.started_ms() - 1, attempt=1)
    later = recovery_trace(began_ms)
    fewer = msgspec.structs.replace(later, milestones=later.milestones[:2])
    partly_known = msgspec.structs.replace(recovery_trace(began_ms, attempt=3), milestones=later.milestones[1:])
    site.gateway.change(job_id(1), traces=(before, fewer, partly_known))
    assert seconds(await scrape(site)) == {"detected": (1, 0), "placed": (1, 1.25)}
    site.gateway.change(job_id(1), traces=(before, later, partly_known))
    await scrape(site)
    samples = await scrape(site)
    assert seconds(samples) == {
        "detected": (1, 0),
        "placed": (1, 1.25),
        "process-started": (1, 1.5),
        "context-up": (1, 4),
    }
    starts = {start: samples["emberkeep_driver_starts_total", (("start", start),)] for start in ("cold", "hot")}
    assert starts == {"cold": 1, "hot": 0}


async def test_each_task_managers_load_until_it_is_gone(site: Site) -> None:
    own = (("task_manager", "tm-127.0.0.2-1"),)
    samples = await scrape(site)
    found = {
        name.removeprefix("emberkeep_task_manager_"): value for (name, one), value in samples.items() if one == own
    }
    assert (
        found.items()
        >= {
            "disk_free_bytes": 51_200 * 1024**2,
            "disk_bytes": 102_400 * 1024**2,
            "memory_used_bytes": 2_311 * 1024**2,
            "memory_bytes": 16_384 * 1024**2,
            "cpu_ratio": 0.375,
            "slots": 2,
            "slots_free": 1,
            "blocked": 0,
        }.items()
    )

    del site.gateway.managers[TaskManagerId("tm-127.0.0.2-1")]
    assert not any(labels == own for _, labels in await scrape(site))


async def test_the_condition_of_the_job_manager(site: Site) -> None:
    names = ("emberkeep_leader_in_doubt", "emberkeep_storage_unreadable", "emberkeep_audit_entries_lost")
    samples = await scrape(site)
    assert [samples[name, ()] for name in names] == [0, 0, 0]

    own = OwnCondition(
        audit_lost=lambda: 5, in_doubt=lambda: True, storage_unreadable=lambda: True, storage_free=lambda: 7
    )
    metrics = Metrics(Connections(process_limits()), own)
    await metrics.exposition(site.gateway, site.blobs, site.storage, NOW_MS)
    assert [metrics.registry.get_sample_value(name) for name in names] == [1, 1, 5]
    assert metrics.registry.get_sample_value("emberkeep_storage_free_bytes") == 7


async def test_what_became_of_the_events_for_the_webhook(site: Site) -> None:
    class Sent:
        counts = Counts(delivered=3, failures=2, dropped=1)
        waiting = 4

    def exposed(metrics: Metrics) -> list[float | None]:
        value = metrics.registry.get_sample_value
        outcomes = [value("emberkeep_webhook_events_total", {"outcome": each}) for each in ("delivered", "dropped")]
        return [*outcomes, value("emberkeep_webhook_failures_total"), value("emberkeep_webhook_waiting")]

    port = Connections(process_limits())
    assert exposed(Metrics(port, OwnCondition(webhook=Sent()))) == [3, 1, 2, 4]
    assert exposed(Metrics(port)) == [0, 0, 0, 0]


async def test_submissions_by_outcome(site: Site) -> None:
    await site.request("POST", "/v1/jobs", json={})

    assert (await scrape(site))["emberkeep_submissions_total", (("outcome", "created"),)] == 0


async def test_blobs_of_the_server_and_of_each_cache(site: Site) -> None:
    owner, content = job_id(1), b"content"
    key = await site.blobs.store_bytes(owner, content, ["reader"])
    await site.get(f"/v1/jobs/{owner}/blobs/{key}")
    await site.blobs.collect()
    view = site.gateway.managers[TaskManagerId("tm-127.0.0.2-1")]
    counted = BlobCacheReport(blobs=2, hits=11, shared=12, ha_hits=13, downloads=14, received_bytes=15, deleted=16)
    site.gateway.add_task_managers(
        msgspec.structs.replace(view, report=msgspec.structs.replace(view.report, blobs=counted))
    )

    samples = await scrape(site)

    own = ("task_manager", "tm-127.0.0.2-1")
    assert samples["emberkeep_blob_stored", ()] == 1
    assert samples["emberkeep_blob_stored_bytes", ()] == len(content)
    assert samples["emberkeep_blob_uploads_total", ()] == 1
    assert samples["emberkeep_blob_hits_total", (("store", "local"),)] == 1
    assert samples["emberkeep_blob_hits_total", (("store", "ha"),)] == 3
    assert samples["emberkeep_blob_cleanup_runs_total", ()] == 1
    assert samples["emberkeep_blob_redirects_total", ()] == 7
    assert samples["emberkeep_blob_cache_stored", (own,)] == 2
    assert samples["emberkeep_blob_cache_hits_total", (own, ("where", "shared"))] == 12
    assert samples["emberkeep_blob_cache_transfers_total", (("source", "server"), own)] == 14
    assert samples["emberkeep_blob_cache_received_bytes_total", (own,)] == 15
    without_report = ("task_manager", "tm-127.0.0.3-1")
    assert not any(name.startswith("emberkeep_blob") and without_report in labels for name, labels in samples)


async def test_state_gateways_where_there_are_any(site: Site) -> None:
    assert not any("state_gateway" in name for name, _ in await scrape(site))
    view = site.gateway.managers[TaskManagerId("tm-127.0.0.2-1")]
    counted = StateGatewayReport(copies=3, used_bytes=4, hits=5, misses=6, local_read_bytes=7, verify_failures=8)
    report = msgspec.structs.replace(view.report, state_gateway=counted)
    site.gateway.add_task_managers(msgspec.structs.replace(view, report=report))

    samples = await scrape(site)

    labels = (("task_manager", "tm-127.0.0.2-1"),)
    found = {
        name.removeprefix("emberkeep_state_gateway_"): samples[name, labels] for name, one in samples if one == labels
    }
    assert (found["copies"], found["used_bytes"], found["hits_total"], found["misses_total"]) == (3, 4, 5, 6)
    assert (found["local_read_bytes_total"], found["verify_failures_total"]) == (7, 8)
    counted_fields = {name.removesuffix("_total") for name, _ in samples if name.startswith("emberkeep_state_gateway_")}
    prefix = len("emberkeep_state_gateway_")
    assert {name[prefix:] for name in counted_fields} == set(StateGatewayReport.__struct_fields__), "all are shown"


@pytest.mark.req("SEC-6")
async def test_connections_with_and_without_a_login_and_rejected_ones(site: Site) -> None:
    view = site.gateway.managers[TaskManagerId("tm-127.0.0.2-1")]
    report = msgspec.structs.replace(view.report, connections_rejected=7)
    site.gateway.add_task_managers(msgspec.structs.replace(view, report=report))

    samples = await scrape(site)

    own = ("task_manager", "tm-127.0.0.2-1")
    assert samples["emberkeep_connections", (("login", "yes"),)] == 1
    assert samples["emberkeep_connections", (("login", "no"),)] == 0
    assert samples["emberkeep_connections_rejected_total", (("reason", "displaced"),)] == 0
    assert samples["emberkeep_task_manager_connections_rejected_total", (own,)] == 7


async def test_requests_are_measured_by_route_not_by_path(site: Site) -> None:
    for number in range(1, 4):
        await site.get(f"/v1/jobs/{job_id(number)}")
    await site.get("/v1/jobs/nonsense")
    await site.get("/v1/../secret-name")
    await site.request("BREW", "/v1/jobs")

    samples = await scrape(site)
    count = "emberkeep_http_request_duration_seconds_count"
    assert samples[count, (("method", "GET"), ("route", "/v1/jobs/{jobid}"), ("status", "200"))] == 3
    assert samples[count, (("method", "GET"), ("route", "/v1/jobs/{jobid}"), ("status", "400"))] == 1
    assert not any("secret-name" in value or "BREW" in value for _, labels in samples for _, value in labels)


async def test_names_follow_prometheus_conventions(site: Site) -> None:
    families = list(text_string_to_metric_families((await site.get("/metrics")).body.decode()))

    for family in families:
        assert re.fullmatch(r"(emberkeep|process|python)_[a-z_]+", family.name), family.name
        assert family.documentation, family.name
        for sample in family.samples:
            if family.type == "counter":
                assert sample.name.endswith(("_total", "_created")), sample.name


async def test_the_event_loops_lag_is_measured() -> None:
    metrics = Metrics(Connections(process_limits()))

    def measured() -> bool:
        return bool(metrics.registry.get_sample_value("emberkeep_event_loop_lag_seconds_count"))

    async with loop_lag(metrics):
        await asyncio.sleep(0)
        await eventually(measured)
