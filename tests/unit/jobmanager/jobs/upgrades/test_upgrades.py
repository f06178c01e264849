"""Upgrades as the JobManager's neighbours see them: what is refused, what is kept, and what is noted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from emberkeep.base.errors import Absent, Conflict, InvalidInput, OverQuota
from emberkeep.base.ids import JobId
from emberkeep.base.request_context import called_by
from emberkeep.chronicle.occurrence import What
from emberkeep.jobmanager.service import JobManagerService
from emberkeep.jobmanager.views.upgrades import UpgradeWish
from emberkeep.jobs.checkpoints import LOCATION_LIMIT
from emberkeep.jobs.model import AttemptOutcome, FailureKind, JobGraph, JobStatus
from emberkeep.jobs.upgrades.model import UpgradePhase
from emberkeep.jobs.upgrades.ports import UPGRADE_BYTES
from emberkeep.lifecycle.model import Procedure, ProcedurePhase
from tests.support.simulator.scripts import STREAM
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import FakeJobMaster, graph
from tests.unit.jobmanager.jobs.test_procedures import progress, request, told
from tests.unit.jobmanager.memory_store import FailingStore

OLD, NEW, BACK = (graph(number).job_id for number in (1, 2, 3))
UPGRADE = f"{7:032x}"
FAILS = AttemptOutcome(exit_code=1, kind=FailureKind.SCRIPT, message="no such column")


def wish(new: JobGraph | None = None, upgrade_id: str = UPGRADE) -> UpgradeWish:
    return UpgradeWish(
        upgrade_id=upgrade_id, new=new or graph(2), back=graph(3), batches=1, within_ms=60_000, restarts=0
    )


async def stops(cluster: SmallCluster, master: FakeJobMaster) -> None:
    """Let the old job's driver make the savepoint, and end."""
    async with asyncio.timeout(60):
        while (asked := (await master.beat()).procedure) is None:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.1)
    assert (asked.trigger_id, asked.procedure) == (UPGRADE, Procedure.SUSPEND)
    await told(master, progress(asked, ProcedurePhase.COMPLETED))
    await ends(cluster, master, AttemptOutcome(exit_code=0))


async def ends(cluster: SmallCluster, master: FakeJobMaster, outcome: AttemptOutcome) -> None:
    await master.ends(outcome)
    (host,) = cluster.host(master.job_id, master.attempt)
    host.exits(master.job_id, master.attempt, outcome)
    await host.beat()


async def in_phase(service: JobManagerService, *phases: UpgradePhase) -> str:
    """Wait until the upgrade is in one of these phases; return its text."""
    async with asyncio.timeout(600):
        while (view := await service.gateway.upgrade_of(OLD)).upgrade.phase not in phases:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return view.text


def refused(error: type[Exception], match: str, prepare: Callable[[SmallCluster], object], asked: UpgradeWish) -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            await cluster.add()
            await cluster.run_job()
            done = prepare(cluster)
            if asyncio.iscoroutine(done):
                await done
            with pytest.raises(error, match=match):
                await service.gateway.upgrade(OLD, asked)
            assert len(cluster.store.disk.upgrades) <= 1  # type: ignore[attr-defined]

    in_virtual_time(scenario)


async def canceled(cluster: SmallCluster) -> None:
    await cluster.service.gateway.cancel(OLD, grace=0.0)
    for host in cluster.host(OLD, 1):
        host.exits(OLD, 1, AttemptOutcome(exit_code=130))
        await host.beat()
    await cluster.reaches(OLD, JobStatus.CANCELED)


class TestRefusals:
    def test_a_job_that_has_ended(self) -> None:
        refused(Conflict, "has ended: it is CANCELED", canceled, wish())

    def test_a_job_that_is_busy(self) -> None:
        refused(
            Conflict,
            "is busy with a savepoint or a stop",
            lambda cluster: cluster.service.gateway.request_procedure(OLD, request(1, Procedure.SAVEPOINT)),
            wish(),
        )

    def test_a_job_that_is_being_upgraded(self) -> None:
        refused(
            Conflict,
            "which goes on",
            lambda cluster: cluster.service.gateway.upgrade(OLD, wish(graph(4), f"{8:032x}")),
            wish(),
        )

    def test_an_id_that_is_taken(self) -> None:
        refused(Conflict, "is taken", lambda cluster: cluster.service.gateway.submit(graph(2)), wish())

    def test_an_upgrade_id_that_was_a_trigger_id_of_the_job(self) -> None:
        async def saved(cluster: SmallCluster) -> None:
            master = FakeJobMaster(cluster.service, OLD, 1)
            await cluster.service.gateway.request_procedure(OLD, request(7, Procedure.SAVEPOINT))
            await told(master, progress(request(7, Procedure.SAVEPOINT), ProcedurePhase.COMPLETED))

        refused(Conflict, "was used for another request to job", saved, wish())

    def test_an_option_that_is_not_known(self) -> None:
        refused(InvalidInput, "nonsense", lambda _: None, wish(graph(2, options={"nonsense": "1"})))

    def test_a_graph_that_is_too_large(self) -> None:
        large = msgspec.structs.replace(graph(2), arguments=("x" * UPGRADE_BYTES,))
        refused(InvalidInput, f"{UPGRADE_BYTES} are allowed", lambda _: None, wish(large))

    def test_an_unknown_job_and_a_job_without_an_upgrade(self) -> None:
        async def scenario() -> None:
            cluster = SmallCluster(FailingStore())
            async with cluster.leading() as service:
                await cluster.add()
                await cluster.run_job()
                for job_id in (OLD, JobId("f" * 32)):
                    with pytest.raises(Absent):
                        await service.gateway.upgrade_of(job_id)
                    with pytest.raises(Absent):
                        await service.gateway.cancel_upgrade(job_id)
                with pytest.raises(Absent):
                    await service.gateway.upgrade(JobId("f" * 32), wish())

        in_virtual_time(scenario)


@pytest.mark.req("SEC-16")
def test_the_place_in_the_quota_is_kept_between_the_versions() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore(), {"security.quota.jobs-per-namespace": "1"})
        async with cluster.leading() as service:
            await cluster.add()
            await service.gateway.submit(msgspec.structs.replace(graph(1), namespace="a"))
            master = await cluster.next_jobmaster(OLD, 1)
            await service.gateway.upgrade(OLD, wish(msgspec.structs.replace(graph(2), namespace="a")))
            await stops(cluster, master)
            while (await service.gateway.upgrade_of(OLD)).upgrade.phase is not UpgradePhase.WATCHING:
                with pytest.raises(OverQuota):
                    await service.gateway.submit(msgspec.structs.replace(graph(9), namespace="a"))
                await asyncio.sleep(0.05)
            view = await cluster.view(NEW)
            assert (view.status.is_globally_terminal, view.started_from) == (False, f"/savepoints/{UPGRADE[-4:]}")

    in_virtual_time(scenario)


def test_a_bad_version_is_left_and_the_events_of_all_jobs_say_so() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            await cluster.add()
            master = await cluster.run_job()
            with called_by("ana"):
                await service.gateway.upgrade(OLD, wish())
                repeated = await service.gateway.upgrade(OLD, wish())
            assert repeated.upgrade.phase is UpgradePhase.STOPPING
            await stops(cluster, master)
            await in_phase(service, UpgradePhase.WATCHING)
            await ends(cluster, await cluster.next_jobmaster(NEW, 1), FAILS)
            text = await in_phase(service, UpgradePhase.RETURNED)
            assert (
                text == f"the old code was started again, as job {BACK[:8]}, because the new job failed: no such column"
            )
            back = await cluster.view(BACK)
            assert back.upgrade is not None
            assert (back.name, back.started_from) == ("job 1", f"/savepoints/{UPGRADE[-4:]}")
            noted = {
                job_id: [each.message for each in cluster.chronicle.stream(job_id) if each.what == What.UPGRADE]
                for job_id in (OLD, NEW, BACK)
            }
            assert noted[OLD][0] == "ana asked to upgrade the job to new code"
            assert noted[OLD][-1] == noted[BACK][-1] == f"upgrade: {text}"
            assert "has started with the new code" in noted[NEW][0]
        async with cluster.leading() as service:
            assert (await service.gateway.upgrade_of(BACK)).text == text, "the next leader knows how it has ended"

    in_virtual_time(scenario)


def test_a_new_job_that_a_person_stops_is_done_although_its_time_is_over() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            await cluster.add()
            master = await cluster.run_job()
            await service.gateway.upgrade(OLD, wish())
            await stops(cluster, master)
            await in_phase(service, UpgradePhase.WATCHING)
            new = await cluster.next_jobmaster(NEW, 1)
            asked = request(1, Procedure.DRAIN)
            await service.gateway.request_procedure(NEW, asked)
            for _ in range(70):  # longer than the watch
                await new.beat()
                await asyncio.sleep(1)
            await told(new, progress(asked, ProcedurePhase.COMPLETED))
            for _ in range(5):
                await new.beat()
                await asyncio.sleep(1)
            assert await in_phase(service, UpgradePhase.WATCHING)
            await ends(cluster, new, AttemptOutcome(exit_code=0))
            await in_phase(service, UpgradePhase.DONE)

    in_virtual_time(scenario)


@pytest.mark.parametrize("location", ["", "/checkpoints/" + "x" * LOCATION_LIMIT])
def test_a_query_whose_commits_are_not_recorded_can_be_good(location: str) -> None:
    """One to the memory sink has no checkpoint, and one with a very long location is not reported."""

    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            await cluster.add()
            master = await cluster.run_job()
            await service.gateway.upgrade(OLD, msgspec.structs.replace(wish(), batches=3))
            await stops(cluster, master)
            await in_phase(service, UpgradePhase.WATCHING)
            new = await cluster.next_jobmaster(NEW, 1)
            for batch in (0, 1, 2):
                assert await in_phase(service, UpgradePhase.WATCHING)
                query = msgspec.structs.replace(STREAM, batch_id=batch, num_input_rows=5, checkpoint_location=location)
                await new.beat(queries=(query,))
                await asyncio.sleep(2)
            await in_phase(service, UpgradePhase.DONE)

    in_virtual_time(scenario)


def test_nobody_else_starts_what_an_upgrade_starts_itself() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            await cluster.add()
            master = await cluster.run_job()
            await service.gateway.upgrade(OLD, wish())
            for job in (graph(2), graph(3)):
                with pytest.raises(Conflict, match=f"the upgrade {UPGRADE} of job {OLD} goes on, and starts this"):
                    await service.gateway.submit(job)
            await stops(cluster, master)
            restored = msgspec.structs.replace(graph(9), savepoint=f"file:///savepoints/{UPGRADE[-4:]}/")
            with pytest.raises(Conflict, match="starts this itself"):
                await service.gateway.submit(restored)
            await in_phase(service, UpgradePhase.WATCHING)
            with pytest.raises(Conflict, match="starts this itself"):
                await service.gateway.submit(restored)
            await ends(cluster, await cluster.next_jobmaster(NEW, 1), AttemptOutcome(exit_code=0))
            await in_phase(service, UpgradePhase.DONE)
            assert (await service.gateway.submit(restored)).created

    in_virtual_time(scenario)


def test_once_the_new_job_has_ended_no_job_of_the_upgrade_says_that_it_runs() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            await cluster.add()
            master = await cluster.run_job()
            await service.gateway.upgrade(OLD, msgspec.structs.replace(wish(), batches=0))
            await stops(cluster, master)
            await in_phase(service, UpgradePhase.WATCHING)
            new = await cluster.next_jobmaster(NEW, 1)
            await new.beat(queries=(STREAM,))
            assert await in_phase(service, UpgradePhase.DONE) == f"the new code runs as job {NEW[:8]}"
            await ends(cluster, new, FAILS)
            await cluster.reaches(NEW, JobStatus.FAILED)
            for job_id in (OLD, NEW):
                upgrade = (await cluster.view(job_id)).upgrade
                assert upgrade is not None
                assert upgrade.text == f"the new code ran as job {NEW[:8]}; job {NEW[:8]} is FAILED"

    in_virtual_time(scenario)


def test_the_stop_waits_for_the_end_of_a_move_and_has_all_of_its_time_then() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            await cluster.add()
            master = await cluster.run_job()
            move = request(1, Procedure.MOVE)
            await service.gateway.request_procedure(OLD, move)
            began = await service.gateway.upgrade(OLD, msgspec.structs.replace(wish(), limit_ms=5_000))
            for _ in range(20):
                assert (await master.beat()).procedure == move
                await asyncio.sleep(1)
            assert began.upgrade.phase is UpgradePhase.STOPPING
            await master.beat(procedure=progress(move, ProcedurePhase.FAILED, failure="no other node"))
            async with asyncio.timeout(60):
                while (asked := (await master.beat()).procedure) in (None, move):  # noqa: ASYNC110 - virtual time
                    await asyncio.sleep(0.1)
            assert asked is not None
            assert (asked.trigger_id, asked.procedure) == (UPGRADE, Procedure.SUSPEND)
            assert asked.deadline_ms - asked.requested_ms == 5_000
            assert asked.requested_ms >= began.upgrade.began_ms + 20_000

    in_virtual_time(scenario)


def test_a_cancelled_upgrade_goes_back() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            await cluster.add()
            master = await cluster.run_job()
            await service.gateway.upgrade(OLD, wish())
            with called_by("ana"):
                assert (await service.gateway.cancel_upgrade(OLD)).upgrade.canceled_by == "ana"
            await stops(cluster, master)
            assert "ana has cancelled the upgrade" in await in_phase(service, UpgradePhase.RETURNED)
            with pytest.raises(Absent):
                await cluster.view(NEW)

    in_virtual_time(scenario)
