import asyncio
from collections.abc import Callable, Iterator

import msgspec
import pytest

from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.client import follow, log_copy
from emberkeep.client.follow import JobFollower
from emberkeep.client.rest_client import RestClient
from emberkeep.jobs.model import FailureKind, JobStatus
from emberkeep.protocol.rest_jobs import AttemptInfo, JobDetailsInfo
from tests.unit.client.fake_job_manager import FakeJobManager, FakeLog, job_info

JOB = JobId("a" * 32)


class Recorder:
    """Remembers what a follower found; raises ``breaks`` on output when set."""

    def __init__(self) -> None:
        self.stdout = b""
        self.stderr = b""
        self.notices: list[str] = []
        self.states: list[JobStatus] = []
        self.breaks = False

    def output(self, data: bytes, *, error: bool) -> None:
        if self.breaks:
            raise BrokenPipeError
        if error:
            self.stderr += data
        else:
            self.stdout += data

    def progress(self, job: JobDetailsInfo) -> None:
        if not self.states or self.states[-1] is not job.state:
            self.states.append(job.state)

    def notice(self, text: str) -> None:
        self.notices.append(text)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeJobManager]:
    monkeypatch.setattr(log_copy, "_OVER_PATIENCE", 0.3)
    monkeypatch.setattr(follow, "POLL", 0.02)
    with FakeJobManager().serving() as server:
        yield server


def end(fake: FakeJobManager, state: JobStatus = JobStatus.FINISHED, attempt: int = 1) -> None:
    fake.jobs[JOB] = job_info(JOB, state=state, attempt=attempt)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110 - the state of another thread
            await asyncio.sleep(0.01)


async def test_output_is_passed_on_while_it_is_written(fake: FakeJobManager) -> None:
    out, err = FakeLog(1, "driver-stdout", b"one\n"), FakeLog(1, "driver-stderr")
    fake.jobs[JOB] = job_info(JOB, attempt=0, state=JobStatus.CREATED)
    recorder = Recorder()
    async with RestClient(fake.endpoint) as client:
        following = asyncio.create_task(JobFollower(client, JOB, recorder).run())
        await until(lambda: recorder.states == [JobStatus.CREATED])
        fake.logs[JOB] = [out, err]
        fake.jobs[JOB] = job_info(JOB)
        await until(lambda: recorder.stdout == b"one\n")
        err.data = b"\xff warning\n"
        await until(lambda: recorder.stderr == b"\xff warning\n")
        out.data += b"two\n"
        out.complete = err.complete = True
        end(fake)
        async with asyncio.timeout(120):
            assert (await following).state is JobStatus.FINISHED
    assert recorder.stdout == b"one\ntwo\n"
    assert recorder.states == [JobStatus.CREATED, JobStatus.RUNNING, JobStatus.FINISHED]
    assert recorder.notices == []


async def test_the_output_goes_on_with_the_next_attempt(fake: FakeJobManager) -> None:
    fake.jobs[JOB] = job_info(JOB)
    fake.logs[JOB] = [FakeLog(1, "driver-stdout", b"first", complete=True), FakeLog(1, "driver-stderr", complete=True)]
    recorder = Recorder()
    async with RestClient(fake.endpoint) as client:
        following = asyncio.create_task(JobFollower(client, JOB, recorder).run())
        await until(lambda: recorder.stdout == b"first")
        fake.jobs[JOB] = job_info(JOB, state=JobStatus.RESTARTING)
        await until(lambda: recorder.states[-1] is JobStatus.RESTARTING)
        fake.logs[JOB] += [
            FakeLog(2, "driver-stdout", b" second", complete=True),
            FakeLog(2, "driver-stderr", complete=True),
        ]
        end(fake, attempt=2)
        async with asyncio.timeout(120):
            await following
    assert recorder.stdout == b"first second"
    assert recorder.notices == ["attempt 2 of the job starts"]


async def test_a_job_that_never_started_ends_without_output(fake: FakeJobManager) -> None:
    fake.jobs[JOB] = job_info(JOB, state=JobStatus.CANCELED, attempt=0)
    async with RestClient(fake.endpoint) as client, asyncio.timeout(120):
        assert (await JobFollower(client, JOB, Recorder()).run()).state is JobStatus.CANCELED


async def test_an_attempt_that_left_no_log_is_passed_over(fake: FakeJobManager) -> None:
    end(fake, JobStatus.FAILED)
    recorder = Recorder()
    async with RestClient(fake.endpoint) as client, asyncio.timeout(120):
        assert (await JobFollower(client, JOB, recorder).run()).state is JobStatus.FAILED
    assert recorder.notices == []


async def test_a_log_that_never_completes_does_not_hold_up_the_end(fake: FakeJobManager) -> None:
    fake.logs[JOB] = [FakeLog(1, "driver-stdout", b"some"), FakeLog(1, "driver-stderr")]
    end(fake)
    recorder = Recorder()
    async with RestClient(fake.endpoint) as client, asyncio.timeout(120):
        await JobFollower(client, JOB, recorder).run()
    assert recorder.stdout == b"some"


async def test_lines_that_are_not_kept_are_told(fake: FakeJobManager) -> None:
    lost = FakeLog(1, "driver-stdout", b"some", complete=True, kept_until=1_769_882_400_000)
    fake.logs[JOB] = [lost, FakeLog(1, "driver-stderr", complete=True)]
    end(fake)
    recorder = Recorder()
    async with RestClient(fake.endpoint) as client, asyncio.timeout(120):
        await JobFollower(client, JOB, recorder).run()

    assert recorder.stdout == b"some"
    (notice,) = recorder.notices
    assert notice.startswith(
        "the rest of driver-stdout of attempt 1 is missing: task manager tm-1 does not have it now"
    )
    assert notice.endswith(" are not kept")


async def test_a_lost_log_is_told(fake: FakeJobManager) -> None:
    out = FakeLog(1, "driver-stdout", b"some")
    fake.logs[JOB] = [out, FakeLog(1, "driver-stderr", complete=True)]
    fake.jobs[JOB] = job_info(JOB)
    recorder = Recorder()
    async with RestClient(fake.endpoint) as client:
        following = asyncio.create_task(JobFollower(client, JOB, recorder).run())
        await until(lambda: recorder.stdout == b"some")
        fake.logs[JOB] = []
        out.data += b"never seen"  # wakes the waiting request
        end(fake, JobStatus.FAILED)
        async with asyncio.timeout(120):
            await following
    assert (
        "the rest of driver-stdout of attempt 1 cannot be read: no log 'tm-1~1-driver-stdout' exists here"
        in recorder.notices
    )


async def test_a_job_manager_that_goes_and_comes_back_costs_two_lines(fake: FakeJobManager) -> None:
    fake.logs[JOB] = [FakeLog(1, f"driver-{kind}", complete=True) for kind in ("stdout", "stderr")]
    fake.jobs[JOB] = job_info(JOB)
    recorder = Recorder()
    async with RestClient(fake.endpoint, patience=0) as client:
        following = asyncio.create_task(JobFollower(client, JOB, recorder).run())
        await until(lambda: recorder.states)
        fake.failures = [503] * 5
        await until(lambda: not fake.failures)
        end(fake)
        async with asyncio.timeout(120):
            await following
    assert recorder.notices == [
        "told to fail; the job continues without the JobManager, trying again",
        "the JobManager is back",
    ]


async def test_a_job_manager_that_stays_away_ends_it(fake: FakeJobManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_UNREACHABLE_LIMIT", 0.1)
    fake.failures = [503] * 1000
    async with RestClient(fake.endpoint, patience=0) as client, asyncio.timeout(120):
        with pytest.raises(RetryLater, match="told to fail"):
            await JobFollower(client, JOB, Recorder()).run()


async def test_output_that_nobody_takes_ends_it(fake: FakeJobManager) -> None:
    fake.logs[JOB] = [FakeLog(1, "driver-stdout", b"some")]
    fake.jobs[JOB] = job_info(JOB)
    recorder = Recorder()
    recorder.breaks = True
    async with RestClient(fake.endpoint) as client, asyncio.timeout(120):
        with pytest.raises(BrokenPipeError):
            await JobFollower(client, JOB, recorder).run()


async def test_following_may_begin_at_a_later_attempt(fake: FakeJobManager) -> None:
    fake.logs[JOB] = [
        FakeLog(attempt, f"driver-{kind}", str(attempt).encode(), complete=True)
        for attempt in (1, 2)
        for kind in ("stdout", "stderr")
    ]
    fake.jobs[JOB] = msgspec.structs.replace(job_info(JOB, attempt=2), state=JobStatus.FINISHED)
    recorder = Recorder()
    async with RestClient(fake.endpoint) as client, asyncio.timeout(120):
        await JobFollower(client, JOB, recorder, first_attempt=2).run()
    assert recorder.stdout == b"2"


@pytest.mark.req("SAFE-22")
async def test_why_an_attempt_failed_is_told_once(fake: FakeJobManager) -> None:
    def attempt(number: int, kind: FailureKind | None, cause: str = "") -> AttemptInfo:
        return AttemptInfo(
            attempt=number,
            taskmanager_id=TaskManagerId("tm-1"),
            start_time=1,
            end_time=2,
            exit_code=1,
            failure_kind=kind,
            root_cause=cause,
        )

    failed = [attempt(1, FailureKind.SETUP, "no Java"), attempt(2, FailureKind.MOVED)]
    fake.jobs[JOB] = job_info(JOB, state=JobStatus.RESTARTING, attempts=failed)
    recorder = Recorder()
    async with RestClient(fake.endpoint) as client:
        following = asyncio.create_task(JobFollower(client, JOB, recorder).run())
        await until(lambda: recorder.notices)
        failed.append(attempt(3, FailureKind.SETUP, "told by who follows"))
        fake.jobs[JOB] = job_info(JOB, state=JobStatus.FAILED, attempts=failed)
        async with asyncio.timeout(120):
            await following
    assert recorder.notices == ["attempt 1 of the job failed on tm-1: no Java"]


async def test_an_ended_log_that_cannot_be_read_is_said_and_ends_the_wait(fake: FakeJobManager) -> None:
    fake.logs[JOB] = [
        FakeLog(1, "driver-stdout", b"one\n", complete=True),
        FakeLog(1, "driver-stderr", problem="a newer release has written it"),
    ]
    end(fake)
    recorder = Recorder()
    async with RestClient(fake.endpoint) as client, asyncio.timeout(120):
        await JobFollower(client, JOB, recorder).run()

    assert recorder.stdout == b"one\n"
    assert recorder.notices == ["driver-stderr of attempt 1 cannot be read: a newer release has written it"]
