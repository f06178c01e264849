"""What has gone wrong in other systems that keep jobs alive over the loss of their leader, one test for each case.

Each name says the lesson, each docstring the case it was learnt from.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from emberkeep.adapters.job_store.embedded import EmbeddedJobStore
from emberkeep.base.errors import Conflict, Fatal, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobContent, permanent
from emberkeep.jobs.model import Artefact, ArtefactRole, AttemptOutcome, FailureKind, JobGraph, JobStatus
from emberkeep.leadership import model as lead
from emberkeep.leadership.machine import LeadershipMachine
from tests.support.contracts.job_store import job, result_of
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import FakeJobMaster, graph
from tests.unit.jobmanager.memory_store import FailingStore

SUCCESS = AttemptOutcome(exit_code=0)
KILLED = AttemptOutcome(exit_code=137, kind=FailureKind.LOST, message="killed by SIGKILL")
SCRIPT = b"print('hello')\n"
SHA = hashlib.sha256(SCRIPT).hexdigest()


class Bench:
    """A JobManager and its surroundings in memory; jobs have a file each."""

    def __init__(self) -> None:
        self.store = FailingStore()
        self.cluster = SmallCluster(self.store, {"blob.retention.interval": "20s"})

    def job(self, number: int) -> JobGraph:
        script = Artefact(role=ArtefactRole.SCRIPT, name="script.py", sha256=SHA, size=len(SCRIPT))
        return msgspec.structs.replace(graph(number), artefacts=(script,))

    async def upload(self, job_id: JobId) -> None:
        async def chunks() -> AsyncIterator[bytes]:
            yield SCRIPT

        if await self.cluster.blobs.open_group(job_id, [BlobContent(sha256=SHA, size=len(SCRIPT))]):
            await self.cluster.blobs.upload(job_id, permanent(SHA), chunks(), size=len(SCRIPT))

    async def run(self, number: int = 1) -> FakeJobMaster:
        """Upload, submit, and bring up the first attempt."""
        graph = self.job(number)
        await self.upload(graph.job_id)
        await self.cluster.service.gateway.submit(graph)
        return await self.cluster.next_jobmaster(graph.job_id, 1)

    def has_files(self, job_id: JobId) -> bool:
        """In the HA store."""
        return permanent(SHA) in self.cluster.shared.blobs(Path("/ha")).get(job_id, {})

    async def passes(self, seconds: float) -> None:
        end = self.cluster.loop.time() + seconds
        await self.cluster.holds(lambda: self.cluster.loop.time() > end)


def virtual(scenario: Callable[[Bench], Awaitable[None]]) -> Callable[[], None]:
    def test() -> None:
        async def run() -> None:
            await scenario(Bench())

        in_virtual_time(run)

    test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
    return test


JOB = graph(1).job_id


@pytest.mark.req("HA-4")
@virtual
async def test_a_leader_that_goes_deletes_nothing_of_jobs_that_have_not_ended(bench: Bench) -> None:
    """FLINK-25486: the JobManager lost its session, ended with the status UNKNOWN, and deleted the HA data of a job
    that was running."""
    cluster = bench.cluster
    async with cluster.leading():
        await cluster.add()
        master = await bench.run()
        await cluster.reaches(JOB, JobStatus.RUNNING)
    assert bench.store.handles == {JOB: 1}
    assert bench.has_files(JOB)
    async with cluster.leading() as service:
        master.service = service
        await cluster.holds(lambda: cluster.task_managers[0].service is service)
        await master.register()
        view = await cluster.view(JOB)
        assert (view.status, view.attempt) == (JobStatus.RUNNING, 1)
        assert bench.has_files(JOB)


@pytest.mark.req("HA-6")
@virtual
async def test_a_deposed_leader_whose_job_finishes_leaves_its_graph_and_files_to_the_next(bench: Bench) -> None:
    """FLINK-8938: at a failover the old leader took the job for ended and removed its graph; the new one found
    nothing to recover."""
    cluster = bench.cluster

    async def leads_until_deposed() -> None:
        async with cluster.leading():
            await cluster.add()
            master = await bench.run()
            bench.store.disk.crash()
            bench.store.disk.epoch += 1  # another one leads, and this one has not heard of it
            with pytest.raises(RetryLater, match="not stored yet"):
                await master.ends(SUCCESS)
            await bench.passes(60.0)

    with pytest.raises(Conflict, match="epoch"):
        await leads_until_deposed()
    assert bench.store.handles == {JOB: 1}
    assert bench.has_files(JOB)
    bench.store.disk.crash()
    cluster.task_managers[0].exits(JOB, 1, SUCCESS)
    async with cluster.leading():
        await cluster.reaches(JOB, JobStatus.FINISHED)
    assert bench.store.handles == {}
    assert [attempt for _, attempt in bench.store.attempts] == [1]


@pytest.mark.req("HA-10")
@virtual
async def test_one_unreadable_job_neither_stops_the_recovery_of_others_nor_vanishes(bench: Bench) -> None:
    """FLINK-5193 and FLINK-8943: one corrupt job graph first kept the dispatcher from starting at all; then such jobs
    were skipped without a word."""
    cluster = bench.cluster
    async with cluster.leading() as service:
        for number in (1, 2, 3):
            await service.gateway.submit(graph(number))
    bench.store.disk.damage(graph(2).job_id)
    async with cluster.leading():
        await cluster.add()
        for number in (1, 3):
            await cluster.next_jobmaster(graph(number).job_id, 1)
            await cluster.reaches(graph(number).job_id, JobStatus.RUNNING)
        failed = await cluster.reaches(graph(2).job_id, JobStatus.FAILED)
        assert graph(2).job_id in failed.root_cause
    assert bench.store.recorded[graph(2).job_id].status is JobStatus.FAILED


@pytest.mark.req("HA-10")
@pytest.mark.anyio
async def test_what_is_left_of_an_unreadable_job_is_kept_for_somebody_to_look_at(tmp_path: Path) -> None:
    """FLINK-8943: a job whose graph could not be read was lost, with the file that might have told why."""
    store = EmbeddedJobStore(tmp_path / "jobs.sqlite", tmp_path / "graphs")
    await store.open()
    await store.create(job(1))
    (path,) = tmp_path.glob(f"graphs/*/{job(1).job_id}.graph")
    torn = path.read_bytes()[:-10]
    path.write_bytes(torn)
    (damaged,) = await store.recover()
    assert (damaged.graph, str(path) in damaged.problem) == (None, True)
    await store.record_result(result_of(job(1), JobStatus.FAILED))
    await store.close()
    await store.open()
    assert await store.recover() == []
    assert path.read_bytes() == torn
    await store.close()


@pytest.mark.req("HA-9")
@virtual
async def test_a_suspended_session_pauses_decisions_and_ends_nothing(bench: Bench) -> None:
    """FLINK-10052 (and 6174): a short loss of the connection to ZooKeeper was treated like the loss of leadership, so
    all jobs were restarted."""
    machine = LeadershipMachine()
    cluster = bench.cluster
    for event in (lead.Connected(), lead.Granted(1), lead.EpochWritten(1, 5)):
        machine.handle(event)
    async with cluster.leading() as service:
        await cluster.add()
        master = await bench.run()
        assert machine.handle(lead.Suspended()) == [lead.PauseService(5)]
        service.pause()
        with pytest.raises(RetryLater, match="confirm"):
            await service.gateway.submit(graph(2))
        with pytest.raises(RetryLater, match="confirm"):
            await service.gateway.cancel(JOB)
        assert (await master.beat()).known
        assert machine.handle(lead.Connected()) == [lead.ConfirmEpoch(5)]
        assert machine.handle(lead.Confirmed(5)) == [lead.ResumeService(5)]
        service.resume()
        view = await cluster.view(JOB)
        assert (view.status, view.attempt) == (JobStatus.RUNNING, 1)
        await service.gateway.submit(graph(2))


@pytest.mark.req("BLOB-18")
@virtual
async def test_files_go_when_a_job_has_ended_for_good_and_not_before(bench: Bench) -> None:
    """FLINK-4150 and FLINK-9381: BLOBs of jobs that were only suspended or restarting were deleted, those of ended ones
    were not."""
    cluster = bench.cluster
    async with cluster.leading():
        await cluster.add()
        master = await bench.run()
        await master.ends(KILLED)
        cluster.task_managers[0].exits(JOB, 1, KILLED)
        second = await cluster.next_jobmaster(JOB, 2)
        for _ in range(60):  # it lives for many intervals of the clean-up
            await bench.passes(1.0)
            await second.beat()
        assert bench.has_files(JOB)
        await second.ends(SUCCESS)
        cluster.task_managers[0].exits(JOB, 2, SUCCESS)
        await cluster.reaches(JOB, JobStatus.FINISHED)
        await cluster.holds(lambda: not bench.has_files(JOB))
        await cluster.holds(lambda: not cluster.files.contents)


@pytest.mark.req("BLOB-18")
@virtual
async def test_the_files_of_a_failed_submission_do_not_stay(bench: Bench) -> None:
    """FLINK-11383: what was uploaded for a job whose submission failed stayed for ever."""
    bench.store.before["create"] = [Fatal("no space left")]
    async with bench.cluster.leading() as service:
        await bench.upload(JOB)
        assert bench.has_files(JOB)
        with pytest.raises(Fatal):
            await service.gateway.submit(bench.job(1))
        await bench.cluster.holds(lambda: not bench.has_files(JOB) and not bench.cluster.files.contents)
    assert bench.store.handles == {}


@pytest.mark.req("HA-5")
@virtual
async def test_a_driver_that_succeeds_while_nobody_leads_has_succeeded(bench: Bench) -> None:
    """Ray 65608: after the head had changed, a job whose process had ended with code 0 was reported as FAILED."""
    cluster = bench.cluster
    async with cluster.leading():
        await cluster.add()
        await bench.run()
        await cluster.reaches(JOB, JobStatus.RUNNING)
    cluster.task_managers[0].exits(JOB, 1, SUCCESS)
    await bench.passes(60.0)
    async with cluster.leading():
        view = await cluster.reaches(JOB, JobStatus.FINISHED)
        assert (view.exit_code, view.attempt, view.root_cause) == (0, 1, "")
    assert bench.store.recorded[JOB].status is JobStatus.FINISHED


@virtual
async def test_a_job_that_cannot_be_taken_in_does_not_hold_up_the_next(bench: Bench) -> None:
    """Kyuubi pull request 7409: an error while one batch was opened ended the only thread that opened batches; all
    later ones stayed PENDING, and nothing said so."""
    cluster = bench.cluster
    async with cluster.leading() as service:
        task_manager = await cluster.add()
        bench.store.before["create"] = [Fatal("no space left")]
        with pytest.raises(Fatal):
            await asyncio.wait_for(service.gateway.submit(graph(1)), 60.0)
        task_manager.refusal = Fatal("script.py is missing")
        await service.gateway.submit(graph(2))
        await cluster.holds(lambda: len(task_manager.started) >= 2)
        task_manager.refusal = None
        await service.gateway.submit(graph(3))
        await cluster.next_jobmaster(graph(3).job_id, 1)
        await cluster.reaches(graph(3).job_id, JobStatus.RUNNING)


@virtual
async def test_a_mistake_in_the_programme_ends_the_leader_instead_of_leaving_jobs_waiting(bench: Bench) -> None:
    """Kyuubi pull request 7409, the other half: what nobody has thought of must be seen. The process ends, and the next
    leader recovers the job."""
    cluster = bench.cluster

    async def leads() -> None:
        async with cluster.leading() as service:
            await cluster.add()
            await service.gateway.submit(graph(1))
            await bench.passes(60.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.store, "record_attempt", mistake)
        with pytest.raises(ZeroDivisionError):
            await leads()
    async with cluster.leading():
        await cluster.next_jobmaster(JOB, 1)


async def mistake(*_: object) -> None:
    raise ZeroDivisionError


@pytest.mark.req("HA-2")
@pytest.mark.anyio
async def test_submissions_at_the_same_time_spoil_no_state_files(tmp_path: Path) -> None:
    """Livy's state store in files: sessions that were created at the same time wrote over each other's files, and
    could not be recovered."""
    root = tmp_path / "live"
    store = EmbeddedJobStore(root / "jobs.sqlite", root / "graphs")
    await store.open()
    numbers = range(40)
    ending = [number for number in numbers if number % 4 == 0]

    async def live(number: int) -> None:
        await store.create(job(number, options={"x": "y" * 10_000}))
        await store.record_attempt(job(number).job_id, 1)
        if number in ending:
            await store.record_result(result_of(job(number)))

    await asyncio.gather(*(live(number) for number in numbers))
    with pytest.raises(Conflict):
        await EmbeddedJobStore(root / "jobs.sqlite", root / "graphs").open()
    shutil.copytree(root, tmp_path / "after the crash")
    await store.close()
    root = tmp_path / "after the crash"
    store = EmbeddedJobStore(root / "jobs.sqlite", root / "graphs")
    await store.open()
    stored = {entry.job_id: entry for entry in await store.recover()}
    assert stored.keys() == {job(number).job_id for number in numbers if number not in ending}
    assert all(entry.attempt == 1 and entry.graph is not None for entry in stored.values())
    assert {result.job_id for result in await store.results()} == {job(number).job_id for number in ending}
    await store.close()
