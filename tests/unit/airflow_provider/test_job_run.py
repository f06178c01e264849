"""A task's job over a JobManager's API, with processes of the same task that come in between."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from emberkeep.base.errors import Conflict, Fatal
from emberkeep.base.ids import JobId
from emberkeep.client.declarations.declaration import Declaration, prepared_job
from emberkeep.client.rest_client import RestClient
from emberkeep.client.submission.preparation import PreparedJob
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.rest_savepoints import SavepointEntry
from emberkeep_airflow.job_run import call, cancelled, chosen, followed, submitted
from emberkeep_airflow.savepoints import SavepointWait
from emberkeep_airflow.task_jobs import Start, Take, TaskIdentity
from emberkeep_airflow.task_log import TaskLog
from tests.unit.airflow_provider.test_task_log import Lines
from tests.unit.client.fake_job_manager import NOW, FakeJobManager, FakeLog, job_info

TASK = TaskIdentity("etl", "run", "count")
ONE = TASK.job_id(1)


@pytest.fixture
def fake() -> Iterator[FakeJobManager]:
    with FakeJobManager().serving() as server:
        yield server


@pytest.fixture
def job(tmp_path: Path) -> PreparedJob:
    (tmp_path / "app.py").write_text("print('hi')\n")
    declared = prepared_job(
        Declaration(version=1, name="count", script="app.py"), tmp_path, {}, offload_min_size=1_000_000
    )
    keyed = msgspec.structs.replace(declared.submission, jobid=ONE, idempotency_key=TASK.idempotency_key(1))
    return replace(declared, submission=keyed)


def log() -> TaskLog:
    return TaskLog(Lines(), "")


def test_two_processes_of_a_task_submit_one_job(fake: FakeJobManager, job: PreparedJob) -> None:
    async def both() -> tuple[JobId, JobId]:
        async with RestClient(fake.endpoint) as first, RestClient(fake.endpoint) as second:
            one, other = await asyncio.gather(submitted(first, job, log()), submitted(second, job, log()))
            return one, other

    assert asyncio.run(both()) == (ONE, ONE)
    assert [each.jobid for each in fake.submissions] == [ONE]


def test_a_job_that_another_process_has_submitted_and_that_has_ended_is_taken(
    fake: FakeJobManager, job: PreparedJob
) -> None:
    fake.jobs[ONE] = job_info(ONE, state=JobStatus.FINISHED)  # it takes no uploads any more
    assert call(fake.endpoint, lambda client: submitted(client, job, log())) == ONE
    assert not fake.submissions


def test_another_conflict_is_an_error(fake: FakeJobManager, job: PreparedJob) -> None:
    fake.failures.append(409)
    with pytest.raises(Conflict):
        call(fake.endpoint, lambda client: submitted(client, job, log()))


def test_the_end_of_a_job_that_is_being_cancelled_is_awaited(fake: FakeJobManager) -> None:
    fake.jobs[ONE] = job_info(ONE, state=JobStatus.CANCELLING)
    notices: list[str] = []

    def notice(text: str) -> None:
        notices.append(text)
        fake.jobs[ONE] = job_info(ONE, state=JobStatus.CANCELED)

    assert call(fake.endpoint, lambda client: chosen(client, TASK, ONE, notice)) == Start(2)
    assert len(notices) == 1


def test_a_running_job_is_taken_and_followed(fake: FakeJobManager) -> None:
    fake.jobs[ONE] = job_info(ONE, attempt=2)
    fake.logs[ONE] = [
        FakeLog(attempt, "driver-stdout", f"line {attempt}\n".encode(), complete=True) for attempt in (1, 2)
    ]
    assert call(fake.endpoint, lambda client: chosen(client, TASK, "", print)) == Take(ONE)
    fake.jobs[ONE] = job_info(ONE, state=JobStatus.FINISHED, attempt=2)
    for newest_only, expected in ((True, ["line 2"]), (False, ["line 1", "line 2"])):
        lines = Lines()
        output = TaskLog(lines, "")
        ended = call(fake.endpoint, lambda c, o=output, n=newest_only: followed(c, ONE, o, newest_only=n))  # type: ignore[misc]
        assert ended.state is JobStatus.FINISHED
        assert [line for line in lines.written if line.startswith("line")] == expected


def test_a_job_is_cancelled_unless_it_has_ended(fake: FakeJobManager) -> None:
    fake.jobs[ONE] = job_info(ONE)
    assert call(fake.endpoint, lambda client: cancelled(client, ONE))
    fake.jobs[ONE] = job_info(ONE, state=JobStatus.FINISHED)
    assert not call(fake.endpoint, lambda client: cancelled(client, ONE))
    assert not call(fake.endpoint, lambda client: cancelled(client, TASK.job_id(7)))
    assert fake.cancels == [(ONE, None)]


def savepoint(path: str, created: int, retired: int = -1) -> SavepointEntry:
    return SavepointEntry(
        path=path,
        job_id=ONE,
        job_name="count",
        job_status=JobStatus.RUNNING,
        created=created,
        trigger_id="",
        manifest_sha256="",
        retired=retired,
    )


def test_the_newest_savepoint_since_a_moment_is_found(fake: FakeJobManager) -> None:
    fake.jobs[ONE] = job_info(ONE, name="count")
    wait = SavepointWait("count", NOW)
    assert call(fake.endpoint, wait.look) == ""
    fake.savepoints = [savepoint("/s/old", NOW - 1), savepoint("/s/retired", NOW + 3, retired=NOW)]
    assert call(fake.endpoint, wait.look) == ""
    fake.savepoints += [savepoint("/s/1", NOW), savepoint("/s/2", NOW + 1)]
    assert call(fake.endpoint, wait.look) == "/s/2"
    assert call(fake.endpoint, SavepointWait(ONE, 0).look) == "/s/2"


def test_a_job_that_has_ended_makes_no_more_savepoints(fake: FakeJobManager) -> None:
    fake.jobs[ONE] = job_info(ONE, name="count", state=JobStatus.CANCELED)
    fake.savepoints = [savepoint("/s/1", NOW)]
    assert call(fake.endpoint, SavepointWait("count", NOW).look) == "/s/1"
    with pytest.raises(Fatal, match="CANCELED, without such a savepoint"):
        call(fake.endpoint, SavepointWait("count", NOW + 1).look)
