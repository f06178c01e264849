"""The page and the REST API show the work of a job that ended under an earlier leader."""

from __future__ import annotations

from pathlib import Path

import msgspec

from emberkeep.jobmanager.views.ended_work import with_work
from emberkeep.jobmanager.views.jobs import view_of_result
from emberkeep.jobs.model import JobStatus
from emberkeep.jobs.progress.course import Course
from emberkeep.jobs.progress.work import AttemptWork, ExecutorWork, StageProgress
from tests.unit.formats.golden_samples import RESULT
from tests.unit.rest.fake_gateway import FakeGateway, status_report
from tests.unit.rest.server import Site, running_site

STAGE = StageProgress(
    stage_id=4, stage_attempt=0, name="collect at app.py:5", status="COMPLETE", tasks=8, active=0, completed=8, failed=1
)
REPORT = status_report(
    work=AttemptWork(
        completed_stages=1,
        total_tasks=9,
        active_tasks=1,
        completed_tasks=8,
        stages=(msgspec.structs.replace(STAGE, stage_id=5, status="ACTIVE"), STAGE),
        executors=(ExecutorWork(executor_id="7", task_ms=9000, gc_ms=90, host="10.0.0.5", tasks=8, failed=1),),
    ),
    course=Course(
        began_ms=1_795_000_000_000,
        tasks=(3, 8),
        executors=(1, 2),
        task_ms=(3_000, 9_000),
        gc_ms=(30, 90),
        shuffle_read=(1_024, 1_024),
        shuffle_written=(2_048, 4_096),
        spilled_memory=(0, 512),
        spilled_disk=(0, 64),
    ),
)
ENDED = with_work(RESULT, REPORT)


def under_the_next_leader() -> FakeGateway:
    gateway = FakeGateway()
    gateway.add(view_of_result(ENDED))
    return gateway


def test_nothing_is_active_in_what_is_kept() -> None:
    assert ENDED.work is not None
    assert (ENDED.work.work.active_tasks, ENDED.work.work.stages) == (0, (STAGE,))


def test_without_a_report_a_result_has_no_work() -> None:
    assert with_work(RESULT, None) is RESULT
    assert with_work(RESULT, status_report(work=None)) is RESULT
    assert view_of_result(RESULT).status_report is None


async def page(site: Site) -> str:
    return (await site.get(f"/jobs/{RESULT.job_id}")).body.decode()


async def test_the_page_shows_stages_executors_and_the_course(tmp_path: Path) -> None:
    async with running_site(tmp_path, under_the_next_leader()) as site:
        text = await page(site)
        assert "collect at app.py:5" in text
        assert "8 of 8 tasks done" in text
        assert '<td data-label="Host">10.0.0.5</td>' in text
        assert 'data-tasks="3 8" data-executors="1 2" data-task-time="3000 9000" data-gc-time="30 90"' in text
        assert 'data-shuffle-read="1024 1024" data-shuffle-write="2048 4096"' in text
        assert 'data-spilled-memory="0 512" data-spilled-disk="0 64"' in text


async def test_the_rest_api_has_them_too(tmp_path: Path) -> None:
    async with running_site(tmp_path, under_the_next_leader()) as site:
        job = msgspec.json.decode((await site.get(f"/v1/jobs/{RESULT.job_id}")).body)["emberkeep"]
        assert [stage["stage-id"] for stage in job["work"]["stages"]] == [4]
        assert job["course"] == {
            "began": 1_795_000_000_000,
            "interval": 10_000,
            "tasks-finished": [3, 8],
            "executors": [1, 2],
            "task-time": [3_000, 9_000],
            "gc-time": [30, 90],
            "shuffle-read": [1_024, 1_024],
            "shuffle-write": [2_048, 4_096],
            "memory-bytes-spilled": [0, 512],
            "disk-bytes-spilled": [0, 64],
        }
        assert job["ended-executors"] == [
            {"id": "7", "host": "10.0.0.5", "tasks-finished": 8, "tasks-failed": 1, "task-time": 9000, "gc-time": 90}
        ]


async def test_the_newest_sample_of_a_job_that_runs_is_not_shown_before_it_is_whole(tmp_path: Path) -> None:
    gateway = FakeGateway()
    running = msgspec.structs.replace(view_of_result(ENDED), status=JobStatus.RUNNING, ended_ms=None, exit_code=None)
    gateway.add(running)
    async with running_site(tmp_path, gateway) as site:
        assert 'data-tasks="3" data-executors="1" data-task-time="3000"' in await page(site)
