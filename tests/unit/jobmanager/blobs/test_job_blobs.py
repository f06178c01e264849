"""What the life of a job means for its BLOBs: claimed, held, released, deleted, recovered."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from emberkeep.base.errors import InvalidInput, RetryLater, UnknownOutcome
from emberkeep.blobs.errors import NotUploaded
from emberkeep.blobs.model import NO_JOB, BlobContent, permanent
from emberkeep.jobs.model import Artefact, ArtefactRole, AttemptOutcome, FailureKind, JobGraph, JobStatus
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import graph
from tests.unit.jobmanager.memory_store import FailingStore

SCRIPT = b"print('hello')\n"
SHA = hashlib.sha256(SCRIPT).hexdigest()
KEY = permanent(SHA)


def with_script(number: int, **more: object) -> JobGraph:
    artefact = Artefact(role=ArtefactRole.SCRIPT, name="script.py", sha256=SHA, size=len(SCRIPT))
    return msgspec.structs.replace(graph(number, **more), artefacts=(artefact,))  # type: ignore[arg-type]


async def upload(cluster: SmallCluster, job: JobGraph) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield SCRIPT

    if await cluster.blobs.open_group(job.job_id, [BlobContent(sha256=SHA, size=len(SCRIPT))]):
        await cluster.blobs.upload(job.job_id, KEY, chunks(), size=len(SCRIPT))


def in_ha(cluster: SmallCluster, job: JobGraph) -> bool:
    return KEY in cluster.shared.blobs(Path("/ha")).get(job.job_id, {})


async def references(cluster: SmallCluster, job: JobGraph) -> tuple[str, ...]:
    return next((view.references for view in await cluster.blobs.blobs(job.job_id) if view.key == KEY), ())


def virtual(scenario: Callable[[SmallCluster], Awaitable[None]]) -> Callable[[], None]:
    def test() -> None:
        async def run() -> None:
            await scenario(SmallCluster(FailingStore(), {"blob.retention.interval": "20s"}))

        in_virtual_time(run)

    test.__name__ = scenario.__name__
    return test


@pytest.mark.req("BLOB-18")
@pytest.mark.req("BLOB-15")
@virtual
async def test_a_jobs_files_live_as_long_as_it(cluster: SmallCluster) -> None:
    async with cluster.leading() as service:
        job = with_script(1)
        await upload(cluster, job)
        await service.gateway.submit(job)
        assert await references(cluster, job) == ("job",)
        await cluster.holds(lambda: cluster.loop.time() > 200)
        assert in_ha(cluster, job)
        await service.gateway.cancel(job.job_id)
        await cluster.reaches(job.job_id, JobStatus.CANCELED)
        await cluster.holds(lambda: not cluster.shared.contents and not cluster.files.contents)


@virtual
async def test_a_job_whose_files_are_not_there_is_refused(cluster: SmallCluster) -> None:
    async with cluster.leading() as service:
        with pytest.raises(NotUploaded) as error:
            await service.gateway.submit(with_script(1))
        assert error.value.field == "artefacts[0].sha256"
        job = with_script(1)
        bad = msgspec.structs.replace(job.artefacts[0], sha256="../../etc/passwd")
        with pytest.raises(InvalidInput, match="64 lower-case"):
            await service.gateway.submit(msgspec.structs.replace(job, artefacts=(bad,)))
        with pytest.raises(InvalidInput, match="no job"):
            await service.gateway.submit(msgspec.structs.replace(job, job_id=NO_JOB))
        assert not cluster.store.handles  # type: ignore[attr-defined]


@virtual
async def test_a_refused_submission_ends_its_claim(cluster: SmallCluster) -> None:
    store = cluster.store
    assert isinstance(store, FailingStore)
    async with cluster.leading() as service:
        job = with_script(1)
        await upload(cluster, job)
        store.before["create"] = [RetryLater("busy")] * 5
        with pytest.raises(RetryLater):
            await service.gateway.submit(job)
        assert await references(cluster, job) == ()
        await service.gateway.submit(job)
        assert await references(cluster, job) == ("job",)


@virtual
async def test_a_claim_lasts_while_the_job_may_exist(cluster: SmallCluster) -> None:
    store = cluster.store
    assert isinstance(store, FailingStore)
    async with cluster.leading() as service:
        job = with_script(1)
        await upload(cluster, job)
        store.after["create"] = [UnknownOutcome("no answer")]
        store.before["create"] = [RetryLater("busy")] * 200
        with pytest.raises(RetryLater):
            await service.gateway.submit(job)
        store.before["create"] = []
        store.after["create"] = [UnknownOutcome("no answer")] * 5
        with pytest.raises(UnknownOutcome):
            await service.gateway.submit(job)
        assert await references(cluster, job) == ("submission",)
        while await references(cluster, job) == ("submission",):  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(1)
        assert await references(cluster, job) == ("job",)
        await cluster.reaches(job.job_id, JobStatus.CREATED)


@virtual
async def test_a_repeated_submission_changes_nothing_and_holds_nothing(cluster: SmallCluster) -> None:
    async with cluster.leading() as service:
        job = with_script(1)
        again = msgspec.structs.replace(with_script(2), idempotency_key=job.idempotency_key)
        for each in (job, again):
            await upload(cluster, each)
        assert (await service.gateway.submit(job)).created
        assert not (await service.gateway.submit(job)).created
        assert (await service.gateway.submit(again)).job_id == job.job_id
        assert await references(cluster, job) == ("job",)
        assert await references(cluster, again) == ()
        await cluster.holds(lambda: not in_ha(cluster, again))
        assert in_ha(cluster, job)


@virtual
async def test_a_repetition_is_answered_after_the_job_and_its_files_are_gone(cluster: SmallCluster) -> None:
    async with cluster.leading() as service:
        job = with_script(1)
        await upload(cluster, job)
        await service.gateway.submit(job)
        await service.gateway.cancel(job.job_id)
        await cluster.reaches(job.job_id, JobStatus.CANCELED)
        await cluster.holds(lambda: not in_ha(cluster, job))
        assert not (await service.gateway.submit(job)).created


@pytest.mark.req("BLOB-14")
@virtual
async def test_a_lost_attempt_ends_references_to_messages_not_to_files(cluster: SmallCluster) -> None:
    async with cluster.leading() as service:
        task_manager = await cluster.add()
        job = with_script(1)
        await upload(cluster, job)
        await service.gateway.submit(job)
        await cluster.next_jobmaster(job.job_id, 1)
        message = await cluster.blobs.store_bytes(job.job_id, b"message", ["tm-1"])
        task_manager.exits(job.job_id, 1, AttemptOutcome(exit_code=137, kind=FailureKind.LOST))
        await cluster.reaches(job.job_id, JobStatus.RESTARTING)
        views = {view.key: view.references for view in await cluster.blobs.blobs(job.job_id)}
        assert views == {KEY: ("job",), message: ()}


@pytest.mark.req("BLOB-17")
@virtual
async def test_a_new_leader_knows_whose_files_to_keep(cluster: SmallCluster) -> None:
    unfinished, ended, abandoned = with_script(1), with_script(2), with_script(3)
    async with cluster.leading() as service:
        for job in (unfinished, ended, abandoned):
            await upload(cluster, job)
        for job in (unfinished, ended):
            await service.gateway.submit(job)
        await service.gateway.cancel(ended.job_id)
        await cluster.reaches(ended.job_id, JobStatus.CANCELED)
    cluster.files.contents.clear()
    async with cluster.leading():
        assert await references(cluster, unfinished) == ("job",)
        await cluster.holds(lambda: not in_ha(cluster, ended))
        assert in_ha(cluster, abandoned), "it may be submitted yet, or be another cluster's"
        cluster.blobs.give_up(cluster.blobs.unknown_owners())
        await cluster.holds(lambda: not in_ha(cluster, abandoned))
        assert cluster.files.read(await cluster.blobs.path(unfinished.job_id, KEY)) == SCRIPT


@pytest.mark.req("SAFE-3")
@virtual
async def test_of_a_job_whose_graph_is_damaged_everything_is_kept_also_when_it_has_failed(
    cluster: SmallCluster,
) -> None:
    store = cluster.store
    assert isinstance(store, FailingStore)
    job = with_script(1)
    async with cluster.leading() as service:
        await upload(cluster, job)
        await service.gateway.submit(job)
    store.disk.damage(job.job_id)
    store.before["record_result"] = [RetryLater("busy")] * 100
    async with cluster.leading():
        await cluster.holds(lambda: cluster.loop.time() > 300)
        assert in_ha(cluster, job)
        store.before["record_result"] = []
        await cluster.reaches(job.job_id, JobStatus.FAILED)
        end = cluster.loop.time() + 300
        await cluster.holds(lambda: cluster.loop.time() > end)
        assert in_ha(cluster, job)
    async with cluster.leading():
        end = cluster.loop.time() + 300
        await cluster.holds(lambda: cluster.loop.time() > end)
        assert in_ha(cluster, job)
