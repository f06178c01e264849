"""Metrics of single jobs and streaming queries: their values, their labels, and the limits on their number."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.jobmanager.views.procedures import ProcedureView
from emberkeep.jobmanager.views.query_labels import query_labels
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.model import JobStatus
from emberkeep.jobs.progress.records import SourceProgress
from emberkeep.lifecycle.model import Procedure, ProcedureRequest
from emberkeep.protocol.messages.job_master_reports import QueryProgress
from emberkeep.rest.metrics.jobs import JobMetrics, SeriesLimits
from emberkeep.watchdog.model import Alarm, AlarmKind
from tests.support.contracts.job_store import savepoint
from tests.unit.rest.fake_gateway import NOW_MS, job_id, job_view, status_report
from tests.unit.rest.metrics.sample_scrape import commit_of_the_query

JOB = job_id(1)


def query(**changes: object) -> QueryProgress:
    return msgspec.structs.replace(status_report().queries[0], **changes)


def shown(*views: JobView, limits: SeriesLimits | None = None) -> CollectorRegistry:
    registry = CollectorRegistry()
    JobMetrics(registry, limits or SeriesLimits()).show(views, NOW_MS)
    return registry


def values(registry: CollectorRegistry, prefix: str, *, counters: bool = True) -> dict[str, float]:
    """Values by the rest of the name; each name has one series."""
    found: dict[str, float] = {}
    for family in registry.collect():
        if (family.type == "counter" and not counters) or family.name.startswith("emberkeep_query_source_"):
            continue
        for sample in family.samples:
            if sample.name.startswith(prefix):
                rest = sample.name.removeprefix(prefix)
                assert rest not in found, sample
                found[rest] = sample.value
    return found


def series(registry: CollectorRegistry, name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == name
    }


def test_a_stream_shows_what_its_newest_batch_did() -> None:
    watermark = datetime.fromtimestamp(NOW_MS / 1000, UTC) - timedelta(seconds=75)
    report = status_report(
        queries=(query(watermark=watermark.isoformat()),), checkpoints=(commit_of_the_query(),), active_tasks=4
    )
    registry = shown(job_view(JOB, "flights", status_report=report))
    assert values(registry, "emberkeep_query_", counters=False) == {
        "waiting": 0,
        "committed_batch": 41,
        "batch_duration_seconds": 2.5,
        "since_commit_seconds": 9,
        "input_rows": 4096,
        "input_rows_per_second": 2048.5,
        "processed_rows_per_second": 1987.25,
        "state_rows": 12_873,
        "state_bytes": 5_242_880,
        "backlog_rows": 1_200,
        "backlog_seconds": pytest.approx(1_200 / 1987.25),
        "state_commit_seconds": 0.12,
        "watermark_gap_seconds": 75,
    }
    assert set(series(registry, "emberkeep_query_state_rows")) == {(JOB, "delays")}


def test_a_stream_counts_what_all_its_batches_did() -> None:
    registry = shown(job_view(JOB, "flights"))
    assert series(registry, "emberkeep_query_batches_total") == {(JOB, "delays"): 42}
    assert series(registry, "emberkeep_query_batch_seconds_total") == {(JOB, "delays"): 84}
    assert series(registry, "emberkeep_query_late_rows_total") == {(JOB, "delays"): 17}
    assert series(registry, "emberkeep_query_phase_seconds_total") == {
        (JOB, "delays", "addBatch"): 70,
        (JOB, "delays", "walCommit"): 9,
    }


def test_each_source_of_a_stream_has_its_backlog() -> None:
    registry = shown(job_view(JOB, "flights"))
    first = (JOB, "delays", "KafkaV2[Subscribe[delays]]")
    second = (JOB, "delays", "KafkaV2[Subscribe[delays]] (2)")
    assert series(registry, "emberkeep_query_source_backlog_rows") == {first: 1000, second: 200}
    assert series(registry, "emberkeep_query_source_backlog_seconds") == {first: 1}
    assert series(registry, "emberkeep_query_source_input_rows_per_second") == {first: 1500.5, second: 548}


def test_a_source_shows_what_it_reports_itself() -> None:
    source = SourceProgress(description="Kinesis[clicks]", metrics={"maxMsBehindLatest": 1500.0})
    registry = shown(job_view(JOB, "flights", status_report=status_report(queries=(query(sources=(source,)),))))
    found = series(registry, "emberkeep_query_source_reported")
    assert found == {(JOB, "delays", "Kinesis[clicks]", "maxMsBehindLatest"): 1500}


def test_a_source_whose_offsets_do_not_say_has_no_backlog() -> None:
    report = status_report(queries=(query(sources=(SourceProgress(description="RateStream"),)),))
    registry = shown(job_view(JOB, "flights", status_report=report))
    assert series(registry, "emberkeep_query_source_backlog_rows") == {}
    assert series(registry, "emberkeep_query_source_input_rows_per_second") == {(JOB, "delays", "RateStream"): 0}


def test_a_driver_of_an_earlier_release_counts_nothing() -> None:
    registry = shown(job_view(JOB, "flights", status_report=status_report(queries=(query(totals=None),))))
    assert series(registry, "emberkeep_query_batches_total") == {}


def test_what_is_not_known_has_no_series() -> None:
    report = status_report(queries=(query(watermark="", status="Waiting for data to arrive", batch_id=-1),))
    found = values(shown(job_view(JOB, "flights", status_report=report)), "emberkeep_query_", counters=False)
    assert found["waiting"] == 1
    assert found.keys().isdisjoint({"committed_batch", "since_commit_seconds", "watermark_gap_seconds"})


def test_the_watermark_before_the_first_event_is_no_gap() -> None:
    report = status_report(queries=(query(watermark="1970-01-01T00:00:00.000Z"),))
    assert "watermark_gap_seconds" not in values(
        shown(job_view(JOB, "flights", status_report=report)), "emberkeep_query_", counters=False
    )


def test_a_job_shows_its_attempts_executors_and_newest_savepoint() -> None:
    view = job_view(
        JOB, "flights", waiting="a slot", pointers=JobPointers(savepoints=(savepoint(2), savepoint(1))), attempt=7
    )
    report = status_report(work=None)
    registry = shown(msgspec.structs.replace(view, graph=None, status_report=report))
    assert series(registry, "emberkeep_job_info") == {(JOB, "flights", ""): 1}
    assert values(registry, "emberkeep_job_") == {
        "info": 1,
        "running": 1,
        "waiting": 1,
        "submitted_timestamp_seconds": view.submitted_ms / 1000,
        "executors": 2,
        "executors_wanted": 3,
        "executors_given_back": 0,
        "active_stages": 1,
        "active_tasks": 4,
        "attempts_total": 7,
        "savepoint_timestamp_seconds": savepoint(2).created_ms / 1000,
    }


def test_a_stop_that_is_not_over_shows_since_when() -> None:
    def shown_for(procedure: Procedure, *, is_over: bool = False) -> dict[tuple[str, ...], float]:
        request = ProcedureRequest(trigger_id="0" * 32, procedure=procedure, requested_ms=NOW_MS)
        view = ProcedureView(job_id=JOB, trigger_id=request.trigger_id, request=request, is_over=is_over)
        registry = shown(job_view(JOB, "flights", procedure=view))
        return series(registry, "emberkeep_job_stop_requested_timestamp_seconds")

    assert shown_for(Procedure.SUSPEND) == shown_for(Procedure.DRAIN) == {(JOB,): NOW_MS / 1000}
    assert shown_for(Procedure.SUSPEND, is_over=True) == shown_for(Procedure.SAVEPOINT) == {}
    cancelled = job_view(JOB, "flights", JobStatus.CANCELLING)
    since = cancelled.status_times_ms[JobStatus.CANCELLING] / 1000
    assert series(shown(cancelled), "emberkeep_job_stop_requested_timestamp_seconds") == {(JOB,): since}


def test_a_job_counts_what_its_attempt_has_done() -> None:
    registry = shown(job_view(JOB, "flights"))
    assert series(registry, "emberkeep_job_tasks_total") == {(JOB, "completed"): 1238, (JOB, "failed"): 2}
    assert series(registry, "emberkeep_job_task_seconds_total") == {(JOB,): 800}
    assert series(registry, "emberkeep_job_gc_seconds_total") == {(JOB,): 16}
    assert series(registry, "emberkeep_job_shuffle_bytes_total") == {
        (JOB, "read"): 2 * 1024**2,
        (JOB, "written"): 3 * 1024**2,
    }
    assert series(registry, "emberkeep_job_spilled_bytes_total") == {
        (JOB, "memory"): 9 * 1024**2,
        (JOB, "disk"): 4 * 1024**2,
    }


def test_a_driver_that_does_not_count_has_no_series() -> None:
    registry = shown(job_view(JOB, "flights", status_report=status_report(work=None)))
    assert series(registry, "emberkeep_job_tasks_total") == {}


def test_alarms_have_series_while_they_are_raised() -> None:
    alarms = (
        Alarm(kind=AlarmKind.NO_COMMIT, query="delays", since_ms=1, message="nothing was committed"),
        Alarm(kind=AlarmKind.RESTARTS, query="", since_ms=2, message="a storm"),
    )
    registry = shown(job_view(JOB, "flights", alarms=alarms), job_view(job_id(2), "well"))
    assert series(registry, "emberkeep_alarm") == {(JOB, "delays", "no-commit"): 1, (JOB, "", "restarts"): 1}


@pytest.mark.parametrize("status", [JobStatus.RESTARTING, JobStatus.CANCELLING])
def test_a_job_that_does_not_run_shows_no_old_progress_of_its_queries(status: JobStatus) -> None:
    registry = shown(job_view(JOB, "flights", status))
    assert values(registry, "emberkeep_query_") == {}
    assert series(registry, "emberkeep_job_running") == {(JOB,): 0}


def test_ended_jobs_have_no_series() -> None:
    assert values(shown(job_view(JOB, "flights", JobStatus.FINISHED)), "emberkeep_job_") == {}


def test_above_the_limits_the_newest_jobs_are_left_out_and_counted() -> None:
    views = [job_view(job_id(n), f"job {n}", submitted_ms=NOW_MS + n) for n in (4, 2, 3, 1)]
    registry = shown(*views, limits=SeriesLimits(jobs=3, queries=2))
    assert set(series(registry, "emberkeep_job_running")) == {(job_id(n),) for n in (1, 2, 3)}
    assert set(series(registry, "emberkeep_query_waiting")) == {(job_id(n), "delays") for n in (1, 2)}
    assert series(registry, "emberkeep_metrics_left_out") == {("job",): 1, ("query",): 2}


def test_labels_of_queries_are_unique_and_bounded() -> None:
    queries = (
        query(id="11111111-a", name=""),
        query(id="22222222-b", name="", checkpoint_location="/other/delays/"),
        query(id="22222222-b", name="delays"),
        query(id="33333333-c", name="n" * 1000),
        query(id="44444444-d", name="", checkpoint_location=""),
    )
    assert [label for label, _ in query_labels(queries)] == ["delays", "delays-22222222", "n" * 120, "44444444-d"]
