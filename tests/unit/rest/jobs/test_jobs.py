"""Jobs as Flink's tools and ours read them."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.base.ids import TaskManagerId
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.model import ExceptionEntry, JobStatus
from emberkeep.jobs.progress.flows import FlowProgress
from emberkeep.jobs.traces.recovery_trace import RecoveryTrace
from emberkeep.protocol.messages.job_master_reports import Scaling
from emberkeep.protocol.rest_jobs import BacklogInfo, JobDetailsInfo, JobExceptions, MultipleJobsDetails
from emberkeep.slots.model import Reclaim
from emberkeep.slots.reserved.choices import StandbyView
from emberkeep.watchdog.model import Alarm, AlarmKind
from tests.support.contracts.job_store import batch, savepoint
from tests.unit.rest.fake_gateway import (
    NOW_MS,
    job_graph,
    job_id,
    job_view,
    query_of_files,
    recovery_trace,
    status_report,
)
from tests.unit.rest.server import Site

J1 = f"/v1/jobs/{job_id(1)}"


async def test_jobs_lists_ids_newest_first(site: Site) -> None:
    assert (await site.get("/v1/jobs")).json() == {
        "jobs": [
            {"id": job_id(1), "status": "RUNNING"},
            {"id": job_id(2), "status": "FINISHED"},
            {"id": job_id(3), "status": "FAILED"},
        ]
    }


async def test_the_overview_has_the_fields_that_flinks_client_reads(site: Site) -> None:
    first = (await site.get("/v1/jobs/overview")).json()["jobs"][0]

    assert first.keys() >= {"jid", "name", "state", "start-time", "end-time", "duration", "last-modification", "tasks"}
    assert (first["jid"], first["state"], first["end-time"], first["duration"]) == (job_id(1), "RUNNING", -1, 754_000)
    assert first["tasks"]["total"] == 1600
    assert (first["tasks"]["running"], first["tasks"]["finished"], first["tasks"]["failed"]) == (4, 1238, 2)


async def test_the_overview_tells_what_a_job_waits_for(site: Site) -> None:
    site.gateway.change(job_id(1), waiting="no task manager is registered")

    jobs = msgspec.json.decode((await site.get("/v1/jobs/overview")).body, type=MultipleJobsDetails).jobs

    assert jobs[0].emberkeep.waiting == "no task manager is registered"
    assert (jobs[0].emberkeep.executors, jobs[0].emberkeep.executors_wanted) == (2, 3)


async def test_details_have_what_dynamic_allocation_wants(site: Site) -> None:
    assert (await site.get(J1)).json()["emberkeep"]["dynamic-allocation"] is None
    status = site.gateway.views[job_id(1)].status_report
    assert status is not None
    scaling = Scaling(wanted=1, minimum=0, maximum=None, changed_ms=NOW_MS)
    site.gateway.change(job_id(1), status_report=msgspec.structs.replace(status, scaling=scaling))
    own = (await site.get(J1)).json()["emberkeep"]
    shown = {"wanted": 1, "minimum": 0, "maximum": None, "changed": NOW_MS, "autoscaled": False, "reason": ""}
    assert own["dynamic-allocation"] == shown
    assert own["executors-wanted"] == 1, "not the slots that it still holds"


async def test_details_have_the_priority_of_a_job(site: Site) -> None:
    site.gateway.change(job_id(1), priority=100, gang=True)
    own = (await site.get(J1)).json()["emberkeep"]
    assert (own["priority"], own["gang"]) == (100, True)


@pytest.mark.req("RES-6")
async def test_details_have_what_a_job_gives_back(site: Site) -> None:
    assert (await site.get(J1)).json()["emberkeep"]["reclaim"] is None
    status = site.gateway.views[job_id(1)].status_report
    assert status is not None
    order = Reclaim(ceiling=2, reason="job 7 waits")
    site.gateway.change(job_id(1), status_report=msgspec.structs.replace(status, reclaim=order))
    assert (await site.get(J1)).json()["emberkeep"]["reclaim"] == {"ceiling": 2, "reason": "job 7 waits"}


async def test_details_and_the_list_have_the_alarms_of_the_watchdog(site: Site) -> None:
    alarm = Alarm(kind=AlarmKind.NO_COMMIT, query="delays", since_ms=NOW_MS, message="nothing was committed")
    site.gateway.change(job_id(1), alarms=(alarm,))
    shown = [{"kind": "no-commit", "query": "delays", "since": NOW_MS, "message": "nothing was committed"}]
    assert (await site.get(J1)).json()["emberkeep"]["alarms"] == shown
    listed = {job["jid"]: job["emberkeep"]["alarms"] for job in (await site.get("/v1/jobs/overview")).json()["jobs"]}
    assert listed[job_id(1)] == shown
    assert [alarms for job, alarms in listed.items() if job != job_id(1) and alarms] == []


async def test_details_have_the_flows_of_a_pipeline(site: Site) -> None:
    assert (await site.get(J1)).json()["emberkeep"]["flows"] == []
    status = site.gateway.views[job_id(1)].status_report
    assert status is not None
    flow = FlowProgress(name="shop.orders", state="FAILED", changed_ms=NOW_MS, message="no column x")
    site.gateway.change(job_id(1), status_report=msgspec.structs.replace(status, flows=(flow,)))
    assert (await site.get(J1)).json()["emberkeep"]["flows"] == [
        {"name": "shop.orders", "state": "FAILED", "since": NOW_MS, "message": "no column x"}
    ]


async def test_detail_of_a_running_job(site: Site) -> None:
    job = msgspec.json.decode((await site.get(J1)).body, type=JobDetailsInfo)

    assert job.timestamps[JobStatus.CREATED] == NOW_MS - 754_000
    assert job.timestamps[JobStatus.FAILED] == 0
    assert job.emberkeep.driver is not None
    assert (job.emberkeep.driver.taskmanager_id, job.emberkeep.driver.pid) == ("tm-127.0.0.2-1", 4711)
    assert [(executor.id, executor.registered) for executor in job.emberkeep.executors] == [
        ("1", True),
        ("2", True),
        ("3", False),
    ]
    assert job.emberkeep.queries[0].batch_id == 41
    assert job.emberkeep.queries[0].backlog_rows == 1_200
    assert job.emberkeep.queries[0].backlog_seconds == pytest.approx(1_200 / 1987.25)
    assert job.emberkeep.queries[0].backlog == BacklogInfo(
        rows=1_200, files=None, bytes=None, time_behind=None, unknown_sources=0
    )
    assert [(attempt.attempt, attempt.exit_code) for attempt in job.emberkeep.attempts] == [(1, 137), (2, None)]


@pytest.mark.parametrize(
    "status", [JobStatus.RESTARTING, JobStatus.RUNNING, JobStatus.FAILING, JobStatus.CANCELLING, JobStatus.CANCELED]
)
async def test_nothing_of_an_attempt_that_is_over_is_told_as_running(site: Site, status: JobStatus) -> None:
    """A job stays RUNNING, FAILING or CANCELLING until its result is recorded."""
    is_last = status is not JobStatus.RESTARTING
    site.gateway.add(job_view(job_id(1), "etl", status, status_report=status_report(), last_attempt_over=is_last))
    listed = msgspec.json.decode((await site.get("/v1/jobs/overview")).body, type=MultipleJobsDetails).jobs[0]
    assert (listed.emberkeep.executors, listed.tasks.running) == (0, 0)
    assert listed.emberkeep.executors_wanted == (3 if status is JobStatus.RESTARTING else 0)
    job = msgspec.json.decode((await site.get(J1)).body, type=JobDetailsInfo).emberkeep
    assert job.executors == []
    assert [one.id for one in job.ended_executors] == ["1"]
    assert job.work is not None
    assert (job.active_stages, job.work.stages_active, job.work.tasks_total) == (0, 0, job.work.tasks_finished)
    (query,) = job.queries
    assert query.status == ("interrupted" if status is JobStatus.RESTARTING else "ended")
    assert query.batch_id == 41
    assert (query.input_rows_per_second, query.processed_rows_per_second) == (0.0, 0.0)


async def test_a_job_that_is_being_cancelled_shows_its_executors_until_its_driver_has_ended(site: Site) -> None:
    site.gateway.add(job_view(job_id(1), "etl", JobStatus.CANCELLING, status_report=status_report()))
    listed = msgspec.json.decode((await site.get("/v1/jobs/overview")).body, type=MultipleJobsDetails).jobs[0]
    assert (listed.emberkeep.executors, listed.emberkeep.executors_wanted) == (2, 3)


async def test_a_backlog_without_rows_is_told_as_the_source_counts_it(site: Site) -> None:
    site.gateway.add(job_view(job_id(9), "files", status_report=status_report(queries=(query_of_files(),))))
    job = msgspec.json.decode((await site.get(f"/v1/jobs/{job_id(9)}")).body, type=JobDetailsInfo)
    (query,) = job.emberkeep.queries
    assert (query.backlog_rows, query.backlog_seconds) == (None, None)
    assert query.backlog == BacklogInfo(rows=None, files=12, bytes=2048, time_behind=None, unknown_sources=0)


async def test_executors_have_their_share_of_garbage_collection_if_spark_says_it(site: Site) -> None:
    executors = (await site.get(J1)).json()["emberkeep"]["executors"]
    times = {one["id"]: (one["task-time"], one["gc-time"]) for one in executors}
    assert times.pop("1") == (400_000, 50_000)
    assert set(times.values()) == {(None, None)}


async def test_a_job_has_its_reserved_standby_if_it_wants_one(site: Site) -> None:
    for standby, shown in (
        (None, None),
        (StandbyView(TaskManagerId("tm-2"), ""), {"taskmanager-id": "tm-2", "ready": True, "why-not": ""}),
        (StandbyView(None, "no room"), {"taskmanager-id": None, "ready": False, "why-not": "no room"}),
    ):
        site.gateway.change(job_id(1), standby=standby)
        shown_as = (await site.get(J1)).json()["emberkeep"]["reserved-standby"]
        assert shown_as == shown


async def test_an_attempt_has_its_recovery_trace_if_that_is_known(site: Site) -> None:
    site.gateway.change(job_id(1), traces=(recovery_trace(),))
    first, second = (await site.get(J1)).json()["emberkeep"]["attempts"]
    assert first["recovery"] is None
    assert second["recovery"] == {
        "cause": "lost",
        "began": NOW_MS - 10_000,
        "delay": 1000,
        "start": "cold",
        "why-cold": "another heap size",
        "milestones": [
            {"milestone": "detected", "after": 0},
            {"milestone": "placed", "after": 1250},
            {"milestone": "process-started", "after": 1500},
            {"milestone": "context-up", "after": 4000},
        ],
    }


async def test_of_an_attempt_of_an_earlier_leader_nothing_may_be_known(site: Site) -> None:
    site.gateway.change(job_id(1), traces=(RecoveryTrace(attempt=2, began_ms=5, milestones=()),))
    recovery = (await site.get(J1)).json()["emberkeep"]["attempts"][1]["recovery"]
    assert (recovery["began"], recovery["cause"], recovery["milestones"]) == (-1, None, [])


async def test_detail_of_a_job_of_an_earlier_life(site: Site) -> None:
    """Only its result is left: no graph, no report."""
    site.gateway.add(job_view(job_id(9), "old", JobStatus.FAILED, graph=None, status_report=None))

    job = msgspec.json.decode((await site.get(f"/v1/jobs/{job_id(9)}")).body, type=JobDetailsInfo)
    config = (await site.get(f"/v1/jobs/{job_id(9)}/config")).json()

    assert (job.state, job.emberkeep.exit_code, job.emberkeep.driver) == (JobStatus.FAILED, 1, None)
    assert job.emberkeep.root_cause.startswith("ValueError")
    assert config["emberkeep"] is None


async def test_an_unknown_job_is_absent(site: Site) -> None:
    for path in ("", "/exceptions", "/checkpoints", "/config", "/logs", "/events"):
        assert (await site.get(f"/v1/jobs/{job_id(77)}{path}")).problem().status == 404, path


async def test_exceptions_come_newest_first_and_say_when_there_are_more(site: Site) -> None:
    body = msgspec.json.decode((await site.get(f"{J1}/exceptions?maxExceptions=1")).body, type=JobExceptions)

    assert body.truncated
    assert body.exception_history.truncated
    assert [entry.exception_name for entry in body.exception_history.entries] == ["DriverLost"]
    assert body.root_exception is not None
    assert "killed by signal 9" in body.root_exception
    assert body.exception_history.entries[0].failure_labels == {"attempt": "1"}


async def test_exceptions_of_a_job_without_any(site: Site) -> None:
    site.gateway.change(job_id(1), exceptions=())

    body = (await site.get(f"{J1}/exceptions")).json()

    assert (body["root-exception"], body["exceptionHistory"]["entries"]) == (None, [])


async def test_a_message_without_traceback_is_its_own_stacktrace(site: Site) -> None:
    entry = ExceptionEntry(timestamp_ms=1, attempt=1, kind="ExecutorLost", message="gone")
    site.gateway.change(job_id(1), exceptions=(entry,))

    body = (await site.get(f"{J1}/exceptions")).json()

    assert body["exceptionHistory"]["entries"][0]["stacktrace"] == "gone"


@pytest.mark.req("HA-8")
async def test_checkpoints_have_the_fields_that_flinks_tools_read(site: Site) -> None:
    pointers = JobPointers(attempt=2, queries=(batch(7, 2), batch(41)), savepoints=(savepoint(1), savepoint(2)))
    site.gateway.change(job_id(1), pointers=pointers)

    body = (await site.get(f"{J1}/checkpoints")).json()

    assert body["counts"] == {"restored": 0, "total": 52, "in_progress": 0, "completed": 52, "failed": 0}
    completed = body["latest"]["completed"]
    assert (completed["id"], completed["status"], completed["is_savepoint"]) == (41, "COMPLETED", False)
    assert completed["external_path"] == batch(41).location
    assert completed["latest_ack_timestamp"] == completed["trigger_timestamp"] + completed["end_to_end_duration"]
    assert completed["emberkeep"] == {"query": "query 1", "query-id": "id 1", "manifest-sha256": ""}
    assert body["latest"]["savepoint"]["external_path"] == savepoint(2).path
    assert body["latest"]["savepoint"]["emberkeep"]["manifest-sha256"] == savepoint(2).manifest_sha256
    assert [entry["is_savepoint"] for entry in body["history"]] == [False, False, True, True]


@pytest.mark.req("HA-8")
async def test_checkpoints_of_a_job_without_any(site: Site) -> None:
    body = (await site.get(f"{J1}/checkpoints")).json()

    assert (body["latest"]["completed"], body["latest"]["savepoint"], body["history"]) == (None, None, [])
    assert body["counts"]["completed"] == 0


async def test_the_configuration_hides_secrets(site: Site) -> None:
    answer = await site.get(f"{J1}/config")

    assert b"hunter2" not in answer.body
    body = answer.json()
    assert body["execution-config"]["restart-strategy"] == "fixed-delay"
    assert body["emberkeep"]["spark-conf"] == {
        "spark.sql.shuffle.partitions": "8",
        "spark.hadoop.fs.s3a.secret.key": "******",
    }


async def test_the_restart_strategy_is_the_clusters_unless_the_job_has_one(site: Site) -> None:
    site.gateway.change(job_id(1), graph=job_graph(job_id(1), "flights", options={}))

    assert (await site.get(f"{J1}/config")).json()["execution-config"]["restart-strategy"] == "exponential-delay"


async def test_cancel_is_accepted_and_repeatable(site: Site) -> None:
    first = await site.request("PATCH", f"{J1}?mode=cancel")
    second = await site.request("PATCH", f"{J1}?grace=0")

    assert (first.status, first.json(), second.status) == (202, {}, 202)
    assert site.gateway.cancelled == [(job_id(1), None), (job_id(1), 0.0)]


async def test_cancelling_an_ended_job_is_a_conflict(site: Site) -> None:
    answer = await site.request("PATCH", f"/v1/jobs/{job_id(2)}")

    assert answer.problem().status == 409
    assert site.gateway.cancelled == []


@pytest.mark.parametrize(
    ("query", "field"), [("mode=stop", "mode"), ("grace=-1", "grace"), ("grace=nan", "grace"), ("grace=x", "grace")]
)
async def test_cancel_refuses_what_it_does_not_know(site: Site, query: str, field: str) -> None:
    answer = await site.request("PATCH", f"{J1}?{query}")

    assert (answer.status, answer.problem().field) == (400, field)
    assert site.gateway.cancelled == []


async def test_nothing_of_an_ended_job_is_active_although_its_last_report_came_before_the_end(site: Site) -> None:
    site.gateway.add(job_view(job_id(1), "etl", JobStatus.CANCELED, status_report=status_report()))
    shown = (await site.get(f"/v1/jobs/{job_id(1)}")).json()
    work = shown["emberkeep"]["work"]
    assert (work["tasks-finished"], work["tasks-running"], work["jobs-active"], work["time-left"]) == (1238, 0, 0, None)
    (listed,) = [job for job in (await site.get("/v1/jobs/overview")).json()["jobs"] if job["jid"] == job_id(1)]
    assert (listed["tasks"]["running"], listed["tasks"]["total"]) == (0, 1238)


async def test_a_job_has_the_counts_and_stages_of_its_attempt(site: Site) -> None:
    site.gateway.add(job_view(job_id(1), "etl"))
    work = (await site.get(f"/v1/jobs/{job_id(1)}")).json()["emberkeep"]["work"]
    (stage,) = work.pop("stages")
    assert work == {
        "jobs-active": 1,
        "jobs-completed": 11,
        "stages-active": 1,
        "stages-completed": 19,
        "tasks-total": 1600,
        "tasks-running": 4,
        "tasks-finished": 1238,
        "tasks-failed": 2,
        "task-time": 800_000,
        "gc-time": 16_000,
        "shuffle-read": 2 * 1024**2,
        "shuffle-write": 3 * 1024**2,
        "memory-bytes-spilled": 9 * 1024**2,
        "disk-bytes-spilled": 4 * 1024**2,
        "time-left": 800_000 * 362 // (1238 * 4),
    }
    assert (stage["stage-id"], stage["stage-attempt"], stage["finished"], stage["skew"]) == (20, 1, 38, 5.0)
    assert stage["submission-time"] == -1
    assert (stage["disk-bytes-spilled"], stage["time-left"]) == (2 * 1024**2, 1200 * 362 // 4)
    assert (stage["longest-running"], stage["overdue"]) == (0, False)
