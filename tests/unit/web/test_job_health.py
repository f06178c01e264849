"""Whether a job is healthy, in one sentence on its page."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.messages.job_master_reports import Scaling
from emberkeep.watchdog.model import Alarm, AlarmKind
from emberkeep.web.health import Health
from emberkeep.web.job_health import job_health
from tests.support.contracts.job_store import batch
from tests.unit.rest.fake_gateway import NOW_MS, job_id, job_view, query_of_files, status_report

SCALING = Scaling(wanted=0, minimum=0, maximum=4, changed_ms=NOW_MS)
ALARM = Alarm(kind=AlarmKind.BACKLOG, query="clicks", since_ms=NOW_MS - 60_000, message="the backlog grows")
RUNS = "the job has run since 2026-11-18 10:54:11"


def job(status: JobStatus = JobStatus.RUNNING, **changes: object) -> JobView:
    return job_view(job_id(1), "etl", status, **changes)


@pytest.mark.parametrize(
    ("view", "tone", "text"),
    [
        (job(), "running", f"Healthy: {RUNS}. The backlog is 1\u202f200 rows."),
        (
            job(status_report=status_report(queries=())),
            "running",
            f"Healthy: {RUNS}. 1\u202f238 of 1\u202f600 tasks are done.",
        ),
        (job(status_report=None), "running", f"Healthy: {RUNS}."),
        (
            job(status_report=status_report(queries=(query_of_files(),))),
            "running",
            f"Healthy: {RUNS}. The backlog is 12 files, 2 KiB.",
        ),
        (
            job(alarms=(ALARM, ALARM), waiting="2 slots"),
            "failed",
            "Not healthy since 2026-11-18 11:05:40: query clicks: the backlog grows, and 1 more alarm below. "
            "The backlog is 1\u202f200 rows.",
        ),
        (
            job(alarms=(msgspec.structs.replace(ALARM, message="It grows."),)),
            "failed",
            "Not healthy since 2026-11-18 11:05:40: query clicks: It grows. The backlog is 1\u202f200 rows.",
        ),
        (
            job(JobStatus.RESTARTING, status_report=None),
            "waiting",
            "Not healthy since 2026-11-18 11:06:38: the job is restarting after attempt 1: "
            "the driver was killed by signal 9.",
        ),
        (
            job(JobStatus.CREATED, status_report=None, waiting="2 of 2 slots are missing"),
            "waiting",
            "The job has waited to run since 2026-11-18 10:54:06: 2 of 2 slots are missing.",
        ),
        (
            job(status_report=None, waiting="1 slot is missing"),
            "waiting",
            "The job has run since 2026-11-18 10:54:11, but waits: 1 slot is missing.",
        ),
        (
            job(status_report=status_report(queries=(), work=None, executors=())),
            "waiting",
            f"T{RUNS[1:]}, but none of its 3 executors has registered with Spark.",
        ),
        (
            job(status_report=status_report(queries=(), work=None, executors=(), requirements=())),
            "running",
            f"Healthy: {RUNS}.",
        ),
        (
            job(status_report=status_report(queries=(), work=None, executors=(), scaling=SCALING)),
            "running",
            f"Healthy: {RUNS}.",
        ),
        (
            job(status_report=status_report(queries=(), work=None, executors=(), requirements=(), app_id="")),
            "running",
            "The script has run since 2026-11-18 10:54:11, and has no Spark application now.",
        ),
        (job(JobStatus.FAILED), "failed", "Failed at 2026-11-18 11:05:40: ValueError: no such airport: 'XXX'."),
        (job(JobStatus.CANCELED), "cancelled", "Cancelled at 2026-11-18 11:05:40."),
        (job(JobStatus.FINISHED), "finished", "Finished at 2026-11-18 11:05:40."),
    ],
)
def test_the_sentence_says_since_when_and_why(view: JobView, tone: str, text: str) -> None:
    assert job_health(view) == Health(tone=tone, text=text)


def test_the_sentence_names_the_newest_commit() -> None:
    older, newer = batch(4), msgspec.structs.replace(batch(7), committed_ms=NOW_MS)
    view = job(status_report=None, pointers=JobPointers(queries=(newer, older)))
    assert job_health(view).text == f"Healthy: {RUNS}. Batch 7 was committed at 2026-11-18 11:06:40."
