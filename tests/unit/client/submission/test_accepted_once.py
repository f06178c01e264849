"""A job is accepted once, whatever its JobManager loses between the first upload and the acceptance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emberkeep.base.errors import RetryLater
from emberkeep.blobs.errors import NotUploaded
from emberkeep.client.rest_client import RestClient
from emberkeep.client.submission.job_submission import JobSubmitting
from emberkeep.client.submission.preparation import PreparedJob, Program, prepare
from emberkeep.client.submission.spark_options import SparkOptions
from emberkeep.jobs.model import JobStatus
from tests.support.no_progress import NoProgress
from tests.unit.client.fake_job_manager import FakeJobManager, job_info

pytestmark = pytest.mark.req("SAFE-12")


class AfterUpload(NoProgress):
    """Does something each time that an upload is complete, so many times."""

    def __init__(self, act: Callable[[], None], times: int) -> None:
        self._act = act
        self._left = times

    def end(self) -> None:
        if self._left > 0:
            self._left -= 1
            self._act()


class RefusedUpload(NoProgress):
    """Lets the cluster refuse each file, as it does when it cannot write to its storage."""

    def __init__(self, fake: FakeJobManager) -> None:
        self._fake = fake

    def file(self, name: str) -> None:
        self._fake.failures.append(503)


@pytest.fixture
def fake() -> Iterator[FakeJobManager]:
    with FakeJobManager().serving() as server:
        yield server


@pytest.fixture(params=["in the request", "off-loaded"])
def job(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PreparedJob:
    (tmp_path / "app.py").write_text("print('hi')\n")
    monkeypatch.chdir(tmp_path)
    least = 10 if request.param == "off-loaded" else 1_000_000
    return prepare(Program("app.py", None, ()), SparkOptions(), {}, {}, offload_min_size=least)


async def submitted(
    fake: FakeJobManager, job: PreparedJob, act: Callable[[], None], times: int, silence: float = 60.0
) -> list[str]:
    """Submit while ``act`` spoils the first ``times`` tries; returns what the user was told."""
    notices: list[str] = []
    async with RestClient(fake.endpoint, patience=0.0) as client:
        submitting = JobSubmitting(client, job, AfterUpload(act, times), notices.append, silence=silence)
        assert await submitting.run() == job.submission.jobid
    assert fake.submissions == [job.submission]
    return notices


async def test_what_a_new_leader_lacks_is_uploaded_again(fake: FakeJobManager, job: PreparedJob) -> None:
    uploads = len(job.submission.artefacts) + (job.offload_min_size == 10)
    notices = await submitted(fake, job, fake.blobs.clear, 2)
    assert sum(request.startswith("PUT") for request in fake.requests) == 3 * uploads
    assert fake.requests.count("POST /v1/jobs") == 3
    assert len(notices) == 2
    assert "uploading them again" in notices[0]


async def test_what_is_lost_again_and_again_is_given_up(fake: FakeJobManager, job: PreparedJob) -> None:
    with pytest.raises(NotUploaded, match="not here"):
        await submitted(fake, job, fake.blobs.clear, 1_000_000)
    assert fake.requests.count("POST /v1/jobs") == 11
    assert not fake.submissions


async def test_an_election_after_the_upload_is_waited_for(fake: FakeJobManager, job: PreparedJob) -> None:
    notices = await submitted(fake, job, lambda: fake.failures.append(503), 2)
    assert len(notices) == 1
    assert "trying again for 60 s" in notices[0]


async def test_a_cluster_that_does_not_go_on_is_given_up(fake: FakeJobManager, job: PreparedJob) -> None:
    with pytest.raises(RetryLater):
        await submitted(fake, job, lambda: fake.failures.append(503), 1_000_000, silence=0.0)
    assert not fake.submissions


async def test_a_cluster_that_takes_no_upload_is_given_up(fake: FakeJobManager, job: PreparedJob) -> None:
    notices: list[str] = []
    async with RestClient(fake.endpoint, patience=0.0) as client, asyncio.timeout(60):
        await client.overview()
        submitting = JobSubmitting(client, job, RefusedUpload(fake), notices.append, silence=0.3)
        with pytest.raises(RetryLater, match="told to fail"):
            await submitting.run()
    assert len(notices) == 1, "the same bytes, sent again, are no progress"


async def test_a_cluster_that_has_never_answered_is_not_waited_for(fake: FakeJobManager, job: PreparedJob) -> None:
    fake.failures.append(503)
    with pytest.raises(RetryLater):
        await submitted(fake, job, fake.blobs.clear, 0)
    assert len(fake.requests) <= 1


async def test_a_leader_that_ends_in_the_first_request_is_followed(fake: FakeJobManager, job: PreparedJob) -> None:
    fake.unanswered.append(0)
    notices = await submitted(fake, job, fake.blobs.clear, 0)
    assert "trying again for 60 s" in notices[0]


async def test_a_job_that_ends_before_a_lost_answer_is_missed_is_taken_as_accepted(
    fake: FakeJobManager, job: PreparedJob
) -> None:
    def end(job_id: str) -> None:
        fake.jobs[job_id] = job_info(job_id, state=JobStatus.FINISHED)

    fake.on_submit = end
    await submitted(fake, job, lambda: fake.unanswered.append(0), 1)
    assert fake.requests.count("POST /v1/jobs") == 1
