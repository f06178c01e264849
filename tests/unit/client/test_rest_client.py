import hashlib
import socket
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from emberkeep.base.errors import Absent, Conflict, EmberkeepError, Fatal, InvalidInput, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import permanent
from emberkeep.blocklist.model import BlockAction, EvacuatedDrivers
from emberkeep.client.endpoint import Endpoint
from emberkeep.client.errors import NotAuthorised, Unreachable
from emberkeep.client.rest_client import RestClient
from emberkeep.jobs.model import EntryPoint, EntryPointKind, JobResources
from emberkeep.protocol.rest_blocklist import BlockRequest
from emberkeep.protocol.rest_submission import JobSubmission
from tests.unit.client.fake_job_manager import TOKEN, FakeJobManager, FakeLog, job_info, task_manager_info

JOB = JobId("a" * 32)


@pytest.fixture
def fake() -> Iterator[FakeJobManager]:
    with FakeJobManager().serving() as server:
        yield server


def submission(key: str = "key") -> JobSubmission:
    return JobSubmission(
        name="n",
        entry_point=EntryPoint(kind=EntryPointKind.MODULE, name="m"),
        arguments=[],
        artefacts=[],
        spark_conf={},
        options={},
        working_directory="/",
        resources=JobResources(
            driver_memory_mb=1,
            driver_overhead_mb=1,
            executors=1,
            executor_cores=1,
            executor_memory_mb=1,
            executor_overhead_mb=1,
        ),
        python="3.11",
        idempotency_key=key,
    )


async def test_typed_answers(fake: FakeJobManager) -> None:
    fake.jobs[JOB] = job_info(JOB, "mine")
    async with RestClient(fake.endpoint) as client:
        assert (await client.job(JOB)).name == "mine"
        assert [job.jid for job in await client.jobs()] == [JOB]
        assert (await client.overview()).slots_total == 2
        assert await client.task_managers() == []


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidInput),
        (404, Absent),
        (409, Conflict),
        (413, InvalidInput),
        (500, Fatal),
        (503, RetryLater),
        (504, RetryLater),
    ],
)
async def test_problems_become_errors(fake: FakeJobManager, status: int, kind: type[EmberkeepError]) -> None:
    fake.failures = [status]
    async with RestClient(fake.endpoint, patience=0) as client:
        with pytest.raises(kind, match="told to fail") as caught:
            await client.overview()
    assert caught.value.hint == "try this"
    if isinstance(caught.value, InvalidInput):
        assert caught.value.field == "some.field"


async def test_a_passing_failure_is_waited_out(fake: FakeJobManager) -> None:
    fake.failures = [503, 503]
    async with RestClient(fake.endpoint) as client:
        assert (await client.overview()).slots_total == 2
    assert fake.requests == ["GET /v1/overview"] * 3


async def test_a_repeated_submission_starts_one_job(fake: FakeJobManager) -> None:
    fake.failures = [503]
    async with RestClient(fake.endpoint) as client:
        first = await client.submit(submission())
        second = await client.submit(submission())
        other = await client.submit(submission("another"))
    assert first.created
    assert not second.created
    assert first.jobid == second.jobid != other.jobid
    assert len(fake.submissions) == 2


async def test_content_is_sent_whole_also_when_repeated(fake: FakeJobManager) -> None:
    data = bytes(range(256)) * 1000
    key = permanent(hashlib.sha256(data).hexdigest())
    async with RestClient(fake.endpoint) as client:
        fake.failures = [503]
        await client.blobs.upload(JOB, key, lambda: data, len(data))
        assert [blob.key for blob in (await client.blobs.all(JOB)).blobs] == [str(key)]
        with pytest.raises(InvalidInput, match="another hash"):
            await client.blobs.upload(JOB, permanent("0" * 64), lambda: data, len(data))
    assert fake.blobs == {(JOB, str(key)): data}


async def test_standbys_redirect_to_the_leader_and_the_token_goes_along(fake: FakeJobManager) -> None:
    with FakeJobManager().serving() as standby:
        standby.redirect_to = fake.url
        async with RestClient(standby.endpoint) as client:
            job = await client.submit(submission())
            await client.cancel(job.jobid, grace=0)
    assert fake.cancels == [(job.jobid, "0")]
    assert standby.requests == ["POST /v1/jobs"]  # the leader is remembered


async def test_a_circle_of_redirects_ends(fake: FakeJobManager) -> None:
    fake.redirect_to = fake.url
    async with RestClient(fake.endpoint, patience=0) as client:
        with pytest.raises(RetryLater, match="in a circle"):
            await client.overview()


async def test_a_redirect_elsewhere_is_refused(fake: FakeJobManager) -> None:
    fake.redirect_to = "file://"
    async with RestClient(fake.endpoint, patience=0) as client:
        with pytest.raises(Fatal, match="not a web address"):
            await client.overview()


async def test_a_wrong_token_is_told(fake: FakeJobManager) -> None:
    async with RestClient(Endpoint(fake.url, "wrong")) as client:
        with pytest.raises(NotAuthorised, match=r"token is missing .*security\.token-file"):
            await client.overview()


async def test_nothing_that_listens_is_unreachable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        async with RestClient(Endpoint(url, TOKEN, "--url"), patience=0) as client:
            with pytest.raises(Unreachable, match=r"\(from --url\) cannot be reached: .*refused"):
                await client.overview()


async def test_logs_are_read_in_pieces_until_complete(fake: FakeJobManager) -> None:
    log = FakeLog(1, "driver-stdout", b"0123456789", complete=True)
    fake.logs[JOB] = [log]
    fake.page_size = 4
    async with RestClient(fake.endpoint) as client:
        pieces, offset, complete = [], 0, False
        while not complete:
            chunk = await client.logs.read(JOB, log.id, offset)
            pieces.append(chunk.data)
            offset, complete = chunk.next_offset, chunk.complete
    assert pieces == [b"0123", b"4567", b"89"]


@pytest.mark.req("HA-1")
async def test_another_job_manager_is_asked_when_one_is_gone(fake: FakeJobManager) -> None:
    fake.jobs[JOB] = job_info(JOB, "mine")
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # never listens
        gone = f"http://127.0.0.1:{held.getsockname()[1]}"
        async with RestClient(Endpoint(gone, TOKEN, "cluster.json", (fake.endpoint.url,)), patience=0) as client:
            assert (await client.job(JOB)).name == "mine"
            with pytest.raises(Absent):
                await client.job(JobId("b" * 32))


BLOCK = BlockRequest(action=BlockAction.MARK_BLOCKED, cause="fan  is loud", end_timestamp=5_682_938_400_000)


@pytest.mark.parametrize("status", [504, 502, 0])
@pytest.mark.parametrize("task_manager", [True, False])
async def test_a_change_of_the_blocklist_whose_answer_was_lost_is_found_in_the_list(
    fake: FakeJobManager, status: int, task_manager: bool
) -> None:
    async with RestClient(fake.endpoint) as client:
        fake.unanswered = [status]
        entry = await client.block("n1", BLOCK, task_manager=task_manager)
        assert (entry.cause, entry.end_timestamp) == ("fan is loud", BLOCK.end_timestamp)
        assert len(fake.blocked) == 1
        fake.unanswered = [status]
        await client.unblock("n1", task_manager=task_manager)
        with pytest.raises(Absent):
            await client.unblock("n1", task_manager=task_manager)


@pytest.mark.parametrize("drivers", [None, *EvacuatedDrivers])
async def test_an_evacuation_whose_answer_was_lost_is_found_in_the_list(
    fake: FakeJobManager, drivers: EvacuatedDrivers | None
) -> None:
    asked = msgspec.structs.replace(BLOCK, action=BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS, drivers=drivers)
    async with RestClient(fake.endpoint) as client:
        fake.unanswered = [504]
        assert (await client.block("n1", asked)).cause == "fan is loud"
        if drivers is not None:
            (other,) = set(EvacuatedDrivers) - {drivers}
            fake.unanswered = [504]
            with pytest.raises(Conflict):
                await client.block("n1", msgspec.structs.replace(asked, drivers=other))


@pytest.mark.parametrize(
    "other", [{"cause": "other"}, {"end_timestamp": None}, {"action": BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS}]
)
async def test_somebody_else_s_entry_is_a_conflict_all_the_same(fake: FakeJobManager, other: dict[str, Any]) -> None:
    async with RestClient(fake.endpoint) as client:
        await client.block("n1", msgspec.structs.replace(BLOCK, **other))
        fake.unanswered = [504]
        with pytest.raises(Conflict):
            await client.block("n1", BLOCK)


async def test_only_what_may_have_been_done_is_looked_for_in_the_list(fake: FakeJobManager) -> None:
    async with RestClient(fake.endpoint) as client:
        await client.block("n1", BLOCK)
        fake.failures = [503, 503]
        with pytest.raises(Conflict):
            await client.block("n1", BLOCK)
        fake.failures = [503]
        with pytest.raises(Absent):
            await client.unblock("n2")


@pytest.mark.parametrize("status", [504, 502, 0])
async def test_a_task_manager_that_has_ended_before_its_stop_was_answered_is_stopped(
    fake: FakeJobManager, status: int
) -> None:
    async with RestClient(fake.endpoint) as client:
        fake.task_managers = [task_manager_info("tm-1")]
        fake.unanswered = [status]
        await client.stop_task_manager("tm-1")
        assert fake.task_managers == []
        with pytest.raises(Absent):
            await client.stop_task_manager("tm-1")


@pytest.mark.parametrize("status", [504, 502, 0])
async def test_a_savepoint_whose_deletion_was_not_answered_is_deleted(fake: FakeJobManager, status: int) -> None:
    fake.undisposed = {"/savepoints/1"}
    async with RestClient(fake.endpoint) as client:
        fake.unanswered = [status]
        assert await client.savepoints.dispose("/savepoints/1") == ()
        assert not fake.undisposed
        with pytest.raises(Absent, match="no savepoint there"):
            await client.savepoints.dispose("/savepoints/1")


async def test_a_savepoint_is_deleted_although_the_leader_that_began_it_is_gone(fake: FakeJobManager) -> None:
    fake.undisposed = {"/savepoints/1"}
    async with RestClient(fake.endpoint) as client:
        fake.leaders_gone = 2
        assert await client.savepoints.dispose("/savepoints/1") == ()
        assert not fake.undisposed
        fake.undisposed, fake.leaders_gone = {"/savepoints/2"}, 1000
        with pytest.raises(RetryLater):
            await client.savepoints.dispose("/savepoints/2")
