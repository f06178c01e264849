"""Contract of the JobManager's REST service, as the client sees it: the real one, and the fake that its tests use.

A test module gives a subclass of ``RestServiceContract`` (its name begins with "Test") a fixture ``stage``.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import msgspec
import pytest

from emberkeep.base.errors import Absent, Conflict, InvalidInput
from emberkeep.base.ids import JobId
from emberkeep.blobs.errors import NotUploaded
from emberkeep.blobs.model import BlobContent, permanent
from emberkeep.blocklist.model import PERMANENT, BlockAction
from emberkeep.client.calls.logs import job_log_path, job_manager_log_path
from emberkeep.client.endpoint import Endpoint
from emberkeep.client.errors import NotAuthorised
from emberkeep.client.rest_client import RestClient
from emberkeep.jobs.model import Artefact, ArtefactRole, EntryPoint, EntryPointKind, JobResources, JobStatus
from emberkeep.protocol.rest_blocklist import BlockRequest
from emberkeep.protocol.rest_submission import JobSubmission
from emberkeep.protocol.rest_task_managers import TaskManagerState

UNKNOWN = JobId("f" * 32)
CONTENT = b"print('hello')"
SCRIPT = permanent(hashlib.sha256(CONTENT).hexdigest())
LOG = "jobmanager.log"


class Stage(Protocol):
    """A JobManager that serves, and what happens around it."""

    endpoint: Endpoint

    async def task_manager(self, name: str) -> None:
        """Let a task manager register."""

    async def cancellation_ends(self, job_id: JobId) -> None:
        """Wait until a cancelled job, which has no driver, is canceled."""

    def write_log(self, data: bytes) -> None:
        """Replace the content of the JobManager's own log, which is ``LOG``."""


def job(number: int, **changes: object) -> JobSubmission:
    made = JobSubmission(
        name=f"job {number}",
        entry_point=EntryPoint(kind=EntryPointKind.MODULE, name="m"),
        arguments=[],
        artefacts=[],
        spark_conf={},
        options={},
        working_directory="/",
        resources=JobResources(
            driver_memory_mb=512,
            driver_overhead_mb=128,
            executors=1,
            executor_cores=1,
            executor_memory_mb=512,
            executor_overhead_mb=128,
        ),
        python="3.11",
        idempotency_key=f"key-{number}",
        jobid=f"{number:032x}",
    )
    return msgspec.structs.replace(made, **changes)


def with_script(number: int) -> JobSubmission:
    script = Artefact(role=ArtefactRole.SCRIPT, name="app.py", sha256=SCRIPT.sha256, size=len(CONTENT))
    return job(number, entry_point=EntryPoint(kind=EntryPointKind.SCRIPT, name="app.py"), artefacts=[script])


def block(**changes: object) -> BlockRequest:
    return msgspec.structs.replace(BlockRequest(action=BlockAction.MARK_BLOCKED, cause=" a  bad\ndisk "), **changes)


async def upload(client: RestClient, owner: JobId) -> None:
    await client.blobs.open_group(owner, [BlobContent(sha256=SCRIPT.sha256, size=len(CONTENT))])
    await client.blobs.upload(owner, SCRIPT, lambda: CONTENT, len(CONTENT))


@pytest.mark.anyio
class RestServiceContract:
    """Tests of what RestClient and the JobManager say to each other."""

    @pytest.fixture
    async def client(self, stage: Stage) -> AsyncIterator[RestClient]:
        async with RestClient(stage.endpoint) as client:
            yield client

    # --- who may ask, who answers -------------------------------------------------------------------------------------

    async def test_without_the_token_nothing_is_said(self, stage: Stage) -> None:
        async with RestClient(dataclasses.replace(stage.endpoint, token="x" * 40)) as client:
            with pytest.raises(NotAuthorised):
                await client.jobs()

    async def test_the_leader_says_who_it_is(self, client: RestClient) -> None:
        leader, own = await client.leadership(), (await client.overview()).emberkeep
        assert leader.epoch == own.epoch > 0
        assert 0 < leader.started_ms <= leader.now_ms + 1_000  # the time of an answer has whole seconds
        assert urlsplit(client.endpoint.url).netloc == own.job_manager

    # --- jobs ---------------------------------------------------------------------------------------------------------

    async def test_a_submission_is_accepted_once(self, client: RestClient) -> None:
        first = await client.submit(job(1))
        assert (first.jobid, first.job_url, first.created) == (job(1).jobid, f"/v1/jobs/{job(1).jobid}", True)
        again = await client.submit(job(1))
        assert (again.jobid, again.created) == (first.jobid, False)
        other = await client.submit(job(2, idempotency_key=job(1).idempotency_key))
        assert (other.jobid, other.created) == (first.jobid, False)
        assert [found.jid for found in await client.jobs()] == [first.jobid]

    async def test_an_id_belongs_to_one_submission(self, client: RestClient) -> None:
        await client.submit(job(1))
        with pytest.raises(Conflict, match="is taken by another submission"):
            await client.submit(job(1, idempotency_key="another"))

    async def test_jobs_are_listed_newest_first(self, client: RestClient) -> None:
        for number in (2, 3, 1):
            submitted = await client.submit(job(number))
            assert (await client.job(submitted.jobid)).name == f"job {number}"
        assert [found.name for found in await client.jobs()] == ["job 1", "job 3", "job 2"]

    async def test_a_new_job_has_neither_exceptions_nor_checkpoints_nor_logs(self, client: RestClient) -> None:
        job_id = (await client.submit(job(1))).jobid
        assert (await client.exceptions(job_id)).all_exceptions == []
        assert (await client.checkpoints(job_id)).history == []
        logs = await client.logs.of_job(job_id)
        assert (logs.logs, logs.unreachable) == ([], [])

    async def test_an_unknown_job_is_absent(self, client: RestClient) -> None:
        for ask in (
            lambda: client.job(UNKNOWN),
            lambda: client.cancel(UNKNOWN),
            lambda: client.exceptions(UNKNOWN),
            lambda: client.checkpoints(UNKNOWN),
            lambda: client.logs.of_job(UNKNOWN),
        ):
            with pytest.raises(Absent, match=f"there is no job {UNKNOWN}"):
                await ask()
        with pytest.raises(Absent):
            await client.logs.read_at(job_log_path(UNKNOWN, "tm-1~1-driver-stdout"), 0)

    async def test_a_job_is_canceled_once_or_twice(self, stage: Stage, client: RestClient) -> None:
        job_id = (await client.submit(job(1))).jobid
        await client.cancel(job_id)
        await client.cancel(job_id, grace=0.0)
        await stage.cancellation_ends(job_id)
        assert (await client.job(job_id)).state is JobStatus.CANCELED
        await client.cancel(job_id)

    # --- BLOBs --------------------------------------------------------------------------------------------------------

    async def test_a_job_needs_its_files(self, client: RestClient) -> None:
        submission = with_script(1)
        with pytest.raises(NotUploaded):
            await client.submit(submission)
        await upload(client, JobId(submission.jobid))
        assert (await client.submit(submission)).created

    async def test_only_what_is_missing_is_asked_for(self, client: RestClient) -> None:
        owner, content = JobId(job(1).jobid), BlobContent(sha256=SCRIPT.sha256, size=len(CONTENT))
        assert await client.blobs.open_group(owner, [content]) == [SCRIPT.sha256]
        await upload(client, owner)
        assert await client.blobs.open_group(owner, [content]) == []

    async def test_content_with_another_hash_is_refused(self, client: RestClient) -> None:
        owner = JobId(job(1).jobid)
        await client.blobs.open_group(owner, [BlobContent(sha256=SCRIPT.sha256, size=3)])
        with pytest.raises(InvalidInput):
            await client.blobs.upload(owner, SCRIPT, lambda: b"abc", 3)
        assert await client.blobs.open_group(owner, [BlobContent(sha256=SCRIPT.sha256, size=3)]) == [SCRIPT.sha256]

    async def test_a_blob_is_listed_verified_and_downloaded(self, client: RestClient, tmp_path: Path) -> None:
        owner = JobId(with_script(1).jobid)
        await upload(client, owner)
        await client.submit(with_script(1))
        listed = await client.blobs.all(owner)
        (info,) = listed.blobs
        assert (info.jobid, info.key, info.size, listed.bytes) == (owner, str(SCRIPT), len(CONTENT), len(CONTENT))
        assert (info.local, info.ha, info.state) == (True, True, "referenced")
        assert info.references == ["job"]
        assert await client.blobs.all() == listed
        check = await client.blobs.verify(owner)
        assert check.checked >= 1
        assert check.problems == []
        assert (await client.blobs.collect()).deleted == 0
        assert await client.blobs.download(owner, SCRIPT, tmp_path / "app.py") == len(CONTENT)
        assert (tmp_path / "app.py").read_bytes() == CONTENT

    async def test_an_unknown_blob_is_absent(self, client: RestClient, tmp_path: Path) -> None:
        with pytest.raises(Absent):
            await client.blobs.download(UNKNOWN, SCRIPT, tmp_path / "nothing")

    async def test_a_job_that_has_ended_takes_no_uploads(self, stage: Stage, client: RestClient) -> None:
        job_id = (await client.submit(job(1))).jobid
        await client.cancel(job_id)
        await stage.cancellation_ends(job_id)
        with pytest.raises(Conflict, match="has ended"):
            await client.blobs.open_group(job_id, [BlobContent(sha256=SCRIPT.sha256, size=3)])

    # --- task managers ------------------------------------------------------------------------------------------------

    async def test_task_managers_are_listed_and_shown(self, stage: Stage, client: RestClient) -> None:
        assert await client.task_managers() == []
        await stage.task_manager("tm-1")
        (listed,) = await client.task_managers()
        shown = await client.task_manager("tm-1")
        assert listed.id == shown.id == "tm-1"
        assert shown.emberkeep.state is TaskManagerState.ALIVE
        assert (await client.overview()).taskmanagers == 1

    async def test_an_unknown_task_manager_is_absent(self, client: RestClient) -> None:
        with pytest.raises(Absent, match="no task manager tm-9 is registered"):
            await client.task_manager("tm-9")

    # --- the blocklist ------------------------------------------------------------------------------------------------

    async def test_a_node_is_blocked_and_unblocked(self, client: RestClient) -> None:
        made = await client.block("a", block())
        assert (made.action, made.cause, made.end_timestamp) == (BlockAction.MARK_BLOCKED, "a bad disk", PERMANENT)
        listed = await client.blocklist()
        assert (listed.blocked_nodes["a"].cause, listed.blocked_task_managers) == ("a bad disk", {})
        await client.unblock("a")
        assert (await client.blocklist()).blocked_nodes == {}
        with pytest.raises(Absent, match="a is not blocked"):
            await client.unblock("a")

    async def test_a_task_manager_is_blocked_apart_from_its_node(self, client: RestClient) -> None:
        await client.block("a", block(), task_manager=True)
        listed = await client.blocklist()
        assert (list(listed.blocked_task_managers), listed.blocked_nodes) == (["a"], {})

    async def test_a_second_entry_is_refused_or_merged(self, client: RestClient) -> None:
        await client.block("a", block())
        with pytest.raises(Conflict, match="is blocked already"):
            await client.block("a", block(cause="heat"))
        made = await client.block("a", block(cause="heat", allow_merge=True))
        assert made.cause == "a bad disk; heat"

    async def test_an_end_in_the_past_is_refused(self, client: RestClient) -> None:
        with pytest.raises(InvalidInput, match="in the past") as refused:
            await client.block("a", block(end_timestamp=1))
        assert refused.value.field == "endTimestamp"

    # --- logs ---------------------------------------------------------------------------------------------------------

    async def test_a_log_is_listed_and_read(self, stage: Stage, client: RestClient) -> None:
        stage.write_log(b"0123456789")
        (listed,) = (await client.logs.of_job_manager()).logs
        path = job_manager_log_path(listed.name)
        assert (listed.name, listed.size) == (LOG, 10)
        assert (await client.logs.read_at(path, 0)).data == b"0123456789"
        read = await client.logs.read_at(path, 7)
        assert (read.data, read.offset, read.next_offset, read.complete) == (b"789", 7, 10, False)
        for wanted, data in (("2-4", b"234"), ("8-", b"89"), ("-3", b"789"), ("-99", b"0123456789"), ("8-99", b"89")):
            assert (await client.logs.read_range(path, wanted)).data == data

    async def test_at_the_end_of_a_log_nothing_more_is_read(self, stage: Stage, client: RestClient) -> None:
        stage.write_log(b"0123")
        read = await client.logs.read_at(job_manager_log_path(LOG), 4, wait=0.05)
        assert (read.data, read.next_offset, read.complete) == (b"", 4, False)

    async def test_a_log_that_was_replaced_is_read_from_its_start(self, stage: Stage, client: RestClient) -> None:
        stage.write_log(b"0123")
        read = await client.logs.read_at(job_manager_log_path(LOG), 100)
        assert (read.data, read.offset) == (b"0123", 0)

    async def test_a_range_that_is_none_is_refused(self, stage: Stage, client: RestClient) -> None:
        stage.write_log(b"0123")
        with pytest.raises(InvalidInput):
            await client.logs.read_range(job_manager_log_path(LOG), "4-2")

    async def test_an_unknown_log_is_absent(self, client: RestClient) -> None:
        with pytest.raises(Absent, match=r"no log 'jobmanager\.log\.9' exists here"):
            await client.logs.read_at(job_manager_log_path("jobmanager.log.9"), 0)

    # --- the storage --------------------------------------------------------------------------------------------------

    async def test_the_storage_of_this_cluster_has_no_problem(self, client: RestClient) -> None:
        status = await client.storage.status()
        assert (status.owned, status.problem, status.data) == (True, "", [])
        assert await client.storage.adopt() == status
        assert await client.storage.purge() == status
        own = (await client.overview()).emberkeep
        assert (own.storage_problem, own.storage_unneeded) == ("", 0)
