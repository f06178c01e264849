"""Metrics of single jobs and of their streaming queries. The number of series is bounded, see ``SeriesLimits``.

The label ``job`` is the job's id. Names of jobs are labels of ``emberkeep_job_info`` alone, so that a dashboard joins
them and no other series changes with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.jobmanager.views.query_labels import query_labels
from emberkeep.jobs.checkpoints import QueryCheckpoint
from emberkeep.jobs.model import JobStatus
from emberkeep.jobs.progress.records import seconds_for
from emberkeep.jobs.progress.totals import QueryTotals
from emberkeep.jobs.progress.work import AttemptWork
from emberkeep.protocol.messages.job_master_reports import JobMasterStatus, QueryProgress
from emberkeep.rest.metrics.sources import source_metrics

_JOB, _QUERY = "job", "query"


@dataclass(frozen=True)
class SeriesLimits:
    """How many jobs, and how many streaming queries of all jobs, have series of their own.

    Above a limit, the jobs that were submitted last have none, so that the series of the others continue.
    """

    jobs: int = 500
    queries: int = 1000


@dataclass(frozen=True)
class _Query:
    """One streaming query of a running job. ``commit``: its newest commit; None before the first."""

    job: JobView
    label: str
    progress: QueryProgress
    commit: QueryCheckpoint | None
    now_ms: int


_JobValue = Callable[[JobView, JobMasterStatus | None], float | None]
_QueryValue = Callable[[_Query], float | None]
_WorkCounts = Callable[[AttemptWork], Mapping[str, float]]
_TotalCounts = Callable[[QueryTotals], Mapping[str, float]]

_JOB_GAUGES: tuple[tuple[str, str, _JobValue], ...] = (
    (
        "running",
        "1 while the job's driver runs its script, else 0.",
        lambda job, _: job.status is JobStatus.RUNNING and not job.last_attempt_over,
    ),
    ("waiting", "1 while the job waits for something, such as a slot; else 0.", lambda job, _: bool(job.waiting)),
    (
        "submitted_timestamp_seconds",
        "When the job was submitted.",
        lambda job, _: job.submitted_ms / 1000,
    ),
    (
        "executors",
        "Executors of the job that are registered with Spark.",
        lambda _, report: 0 if report is None else sum(executor.registered for executor in report.executors),
    ),
    (
        "executors_wanted",
        "Executors that the job has asked for.",
        lambda _, report: 0 if report is None else report.executors_wanted,
    ),
    (
        "executors_given_back",
        "Executors that the job does without because others are entitled to their slots.",
        lambda _, report: 0 if report is None else report.given_back,
    ),
    ("active_stages", "Stages that Spark runs now.", lambda _, report: 0 if report is None else report.active_stages),
    ("active_tasks", "Tasks that Spark runs now.", lambda _, report: 0 if report is None else report.active_tasks),
    (
        "savepoint_timestamp_seconds",
        "When the job's newest savepoint was made; absent without one.",
        lambda job, _: max((each.created_ms / 1000 for each in job.pointers.savepoints), default=None),
    ),
    (
        "stop_requested_timestamp_seconds",
        "When the stop or cancellation of the job that is not over was requested; absent without one.",
        lambda job, _: _stop_requested(job),
    ),
)

# By job and, if there is a name, one more label. They count from the start of the attempt, as a restarted process does.
_JOB_COUNTERS: tuple[tuple[str, str, str, _WorkCounts], ...] = (
    (
        "tasks",
        "Tasks of the job's current attempt that have ended, by outcome.",
        "outcome",
        lambda work: {"completed": work.completed_tasks, "failed": work.failed_tasks},
    ),
    ("task_seconds", "Time that tasks of the attempt ran.", "", lambda work: {"": work.task_ms / 1000}),
    (
        "gc_seconds",
        "Part of the tasks' time that went into garbage collection.",
        "",
        lambda work: {"": work.gc_ms / 1000},
    ),
    (
        "shuffle_bytes",
        "Bytes that tasks of the attempt read from shuffles and wrote for them.",
        "direction",
        lambda work: {"read": work.shuffle_read, "written": work.shuffle_written},
    ),
    (
        "spilled_bytes",
        "Bytes that did not fit into the memory of tasks, before (memory) and after (disk) serialization.",
        "where",
        lambda work: {"memory": work.spilled_memory, "disk": work.spilled_disk},
    ),
)

_QUERY_GAUGES: tuple[tuple[str, str, _QueryValue], ...] = (
    (
        "waiting",
        "1 while the query waits for data or for its next trigger, 0 while it works.",
        lambda query: query.progress.is_waiting,
    ),
    (
        "committed_batch",
        "Number of the newest committed micro-batch.",
        lambda query: None if query.commit is None else query.commit.batch_id,
    ),
    (
        "batch_duration_seconds",
        "Time that the newest committed micro-batch took.",
        lambda query: None if query.commit is None else query.commit.duration_ms / 1000,
    ),
    (
        "since_commit_seconds",
        "Time since the newest micro-batch was committed. It grows while no data arrives, too.",
        lambda query: None if query.commit is None else max(0, query.now_ms - query.commit.committed_ms) / 1000,
    ),
    ("input_rows", "Rows that the newest micro-batch read.", lambda query: query.progress.num_input_rows),
    (
        "input_rows_per_second",
        "Rate at which rows arrive, as Spark reports it.",
        lambda query: query.progress.input_rows_per_second,
    ),
    (
        "processed_rows_per_second",
        "Rate at which rows are processed, as Spark reports it.",
        lambda query: query.progress.processed_rows_per_second,
    ),
    ("state_rows", "Rows in the query's state, of all stateful operators.", lambda query: query.progress.state_rows),
    (
        "state_bytes",
        "Memory that the state stores of all stateful operators use.",
        lambda query: query.progress.state_bytes,
    ),
    (
        "backlog_rows",
        "Rows that the query's sources have and that it has not read; absent if they do not say.",
        lambda query: query.progress.backlog_rows,
    ),
    (
        "backlog_seconds",
        "Time that the backlog takes at the rate of the newest micro-batch; absent if that is unknown.",
        lambda query: seconds_for(query.progress.backlog_rows, query.progress.processed_rows_per_second),
    ),
    (
        "state_commit_seconds",
        "Time that the newest micro-batch took to commit its state, added over its tasks.",
        lambda query: query.progress.state_commit_ms / 1000,
    ),
    (
        "watermark_gap_seconds",
        "How far the watermark is behind the present; absent before there is a watermark.",
        lambda query: _watermark_gap(query.progress.watermark, query.now_ms),
    ),
)

# By job and query and, if there is a name, one more label. They count from the start of the attempt.
_QUERY_COUNTERS: tuple[tuple[str, str, str, _TotalCounts], ...] = (
    ("batches", "Micro-batches that the query has completed in the attempt.", "", lambda totals: {"": totals.batches}),
    (
        "batch_seconds",
        "Time that these micro-batches took.",
        "",
        lambda totals: {"": totals.duration_ms / 1000},
    ),
    (
        "phase_seconds",
        "Part of the micro-batches' time that went into one of their steps, as Spark names them; other: the rest.",
        "phase",
        lambda totals: {phase: took / 1000 for phase, took in totals.phases.items()},
    ),
    (
        "late_rows",
        "Rows that these micro-batches dropped, because they came after the watermark.",
        "",
        lambda totals: {"": totals.late_rows},
    ),
)


class JobMetrics(Collector):
    """Collector that exposes what ``show`` was last given."""

    def __init__(self, registry: CollectorRegistry, limits: SeriesLimits) -> None:
        self._limits = limits
        self._jobs: Sequence[JobView] = ()
        self._queries: Sequence[_Query] = ()
        self._left_out = {"job": 0, "query": 0}
        registry.register(self)

    def show(self, views: Sequence[JobView], now_ms: int) -> None:
        """Replace what is exposed: the jobs that have not ended, the oldest first, up to the limits."""
        jobs = sorted(
            (view for view in views if not view.status.is_globally_terminal),
            key=lambda view: (view.submitted_ms, view.job_id),
        )
        queries = [query for job in jobs for query in _queries(job, now_ms)]
        self._jobs, self._queries = jobs[: self._limits.jobs], queries[: self._limits.queries]
        self._left_out = {"job": len(jobs) - len(self._jobs), "query": len(queries) - len(self._queries)}

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics for the registry."""
        yield from self._of_jobs()
        for name, doc, value in _QUERY_GAUGES:
            family = GaugeMetricFamily(f"emberkeep_query_{name}", doc, labels=[_JOB, _QUERY])
            for query in self._queries:
                _add(family, [query.job.job_id, query.label], value(query))
            yield family
        yield from source_metrics((each.job.job_id, each.label, each.progress.sources) for each in self._queries)
        yield from self._counted_by_queries()
        left_out = GaugeMetricFamily(
            "emberkeep_metrics_left_out",
            "Jobs and queries without series of their own because of metrics.max-jobs and metrics.max-queries.",
            labels=["kind"],
        )
        for kind, count in self._left_out.items():
            left_out.add_metric([kind], count)
        yield left_out

    def _counted_by_queries(self) -> Iterator[Metric]:
        for name, doc, label, counts in _QUERY_COUNTERS:
            family = CounterMetricFamily(
                f"emberkeep_query_{name}", doc, labels=[_JOB, _QUERY, *([label] if label else [])]
            )
            for query in self._queries:
                totals = query.progress.totals
                for kind, count in ({} if totals is None else counts(totals)).items():
                    family.add_metric([query.job.job_id, query.label, *([kind] if label else [])], count)
            yield family

    def _of_jobs(self) -> Iterator[Metric]:
        info = GaugeMetricFamily(
            "emberkeep_job_info", "1 for each job; the labels name it.", labels=[_JOB, "name", "namespace"]
        )
        for job in self._jobs:
            info.add_metric([job.job_id, job.name, job.namespace], 1)
        yield info
        for name, doc, value in _JOB_GAUGES:
            family = GaugeMetricFamily(f"emberkeep_job_{name}", doc, labels=[_JOB])
            for job in self._jobs:
                _add(family, [job.job_id], value(job, job.report))
            yield family
        attempts = CounterMetricFamily(
            "emberkeep_job_attempts",
            "Attempts of the job so far: its first start, restarts and moves to other nodes.",
            labels=[_JOB],
        )
        for job in self._jobs:
            attempts.add_metric([job.job_id], job.attempt)
        yield attempts
        for counted, meaning, label, counts in _JOB_COUNTERS:
            counter = CounterMetricFamily(
                f"emberkeep_job_{counted}", meaning, labels=[_JOB, label] if label else [_JOB]
            )
            for job in self._jobs:
                report = job.report
                work = None if report is None else report.work
                for kind, count in ({} if work is None else counts(work)).items():
                    counter.add_metric([job.job_id, kind] if label else [job.job_id], count)
            yield counter
        alarms = GaugeMetricFamily(
            "emberkeep_alarm",
            "1 for each alarm of the watchdog that is raised now; no series without an alarm.",
            labels=[_JOB, _QUERY, "kind"],
        )
        for job in self._jobs:
            for alarm in job.alarms:
                alarms.add_metric([job.job_id, alarm.query, alarm.kind.value], 1)
        yield alarms


def _stop_requested(job: JobView) -> float | None:
    if job.status in (JobStatus.CANCELLING, JobStatus.FAILING):
        return job.status_times_ms[job.status] / 1000
    request = job.procedure.request if job.procedure is not None and not job.procedure.is_over else None
    is_stop = request is not None and request.procedure.stops_job
    return request.requested_ms / 1000 if request is not None and is_stop else None


def _add(family: GaugeMetricFamily, labels: list[str], value: float | None) -> None:
    if value is not None:
        family.add_metric(labels, float(value))


def _queries(job: JobView, now_ms: int) -> Iterator[_Query]:
    report = job.status_report
    if report is None or job.last_attempt_over or job.status is not JobStatus.RUNNING:
        return
    commits = {each.query_id: each for each in (*job.pointers.queries, *report.checkpoints) if each.batch_id >= 0}
    for label, progress in query_labels(report.queries):
        yield _Query(job, label, progress, commits.get(progress.id), now_ms)


def _watermark_gap(watermark: str, now_ms: int) -> float | None:
    try:
        at = datetime.fromisoformat(watermark).timestamp()
    except ValueError:
        return None
    # Spark reports the beginning of the epoch until the first event has set the watermark.
    return max(0.0, now_ms / 1000 - at) if at > 0 else None
