"""Contract of JobManagerGateway: what the edges see of the leader, and of the fake that their tests use.

A test module gives a subclass of ``GatewayContract`` (its name begins with "Test") a fixture ``stage``.
"""

from __future__ import annotations

from typing import Protocol

import msgspec
import pytest

from emberkeep.base.errors import Absent, Conflict, RetryLater
from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.blobs.errors import NotUploaded
from emberkeep.blocklist.errors import AlreadyBlocked, NotBlocked
from emberkeep.blocklist.model import BlockAction, BlockedNode, EvacuatedDrivers
from emberkeep.jobmanager.views.blocklist import Blocking
from emberkeep.jobmanager.views.cluster import JobManagerGateway, Stranger, Submission
from emberkeep.jobmanager.views.jobs import brief_of
from emberkeep.jobs.model import Artefact, ArtefactRole, JobStatus
from emberkeep.lifecycle.model import Procedure, ProcedureRequest
from tests.support.contracts.job_store import job

UNKNOWN = JobId("f" * 32)
TASK_MANAGER = TaskManagerId("tm-1")


class Stage(Protocol):
    """A gateway, and what happens around it."""

    gateway: JobManagerGateway

    def now_ms(self) -> int:
        """Return the leader's wall clock in Unix milliseconds."""

    async def task_manager(self, name: str, node: str) -> None:
        """Let a task manager register."""

    async def stranger(self, name: str, node: str, lineage: str) -> None:
        """Let a task manager report that follows JobManagers with another job store."""

    async def runs(self, number: int) -> JobId:
        """Submit ``job(number)`` and wait until it runs."""

    async def finishes(self, job_id: JobId) -> None:
        """Let the driver of a running job end with success."""

    async def stops(self, job_id: JobId) -> None:
        """Let the driver of a cancelled job end, and wait until its job has ended."""

    async def passes(self, seconds: float) -> None:
        """Let time pass."""

    async def loses_blocklist(self) -> None:
        """Let the record of the blocklist, which is not empty, become unreadable."""

    async def steps_down(self) -> None:
        """Let the JobManager lose its leadership."""


def request(number: int, procedure: Procedure = Procedure.SAVEPOINT, **changes: object) -> ProcedureRequest:
    made = ProcedureRequest(trigger_id=f"{number:032x}", procedure=procedure, requested_ms=1_000)
    return msgspec.structs.replace(made, **changes)


def node(name: str, **changes: object) -> BlockedNode:
    entry = BlockedNode(id=name, action=BlockAction.MARK_BLOCKED, start_ms=1, causes=("a disk",))
    return msgspec.structs.replace(entry, **changes)


@pytest.mark.anyio
class GatewayContract:
    """Tests of JobManagerGateway."""

    async def test_the_leader_says_who_it_is(self, stage: Stage) -> None:
        gateway = stage.gateway
        host, _, port = gateway.address().rpartition(":")
        assert gateway.epoch() > 0
        assert 0 < gateway.started_ms() <= stage.now_ms()
        assert host
        assert port.isdigit()

    # --- jobs ---------------------------------------------------------------------------------------------------------

    async def test_a_submitted_job_is_shown_without_an_attempt(self, stage: Stage) -> None:
        graph = job(1)
        assert await stage.gateway.submit(graph) == Submission(job_id=graph.job_id, created=True)
        view = await stage.gateway.job(graph.job_id)
        assert (view.name, view.graph, view.submitted_ms) == (graph.name, graph, graph.submitted_ms)
        assert view.status in (JobStatus.CREATED, JobStatus.INITIALIZING)
        assert JobStatus.CREATED in view.status_times_ms
        assert (view.ended_ms, view.exit_code, view.root_cause, view.exceptions) == (None, None, "", ())
        assert (view.result, view.procedure) == (None, None)
        assert (view.attempt, view.attempts, view.driver_task_manager, view.driver_pid) == (0, (), None, 0)
        assert view.status_report is None

    async def test_the_same_key_gives_the_same_job(self, stage: Stage) -> None:
        graph = job(1)
        await stage.gateway.submit(graph)
        again = Submission(job_id=graph.job_id, created=False)
        assert await stage.gateway.submit(graph) == again
        assert await stage.gateway.submit(job(2, idempotency_key=graph.idempotency_key)) == again
        assert [view.job_id for view in await stage.gateway.jobs()] == [graph.job_id]

    async def test_an_id_belongs_to_one_submission(self, stage: Stage) -> None:
        await stage.gateway.submit(job(1))
        with pytest.raises(Conflict, match="is taken by another submission"):
            await stage.gateway.submit(job(1, idempotency_key="another"))

    async def test_a_job_without_its_files_is_refused(self, stage: Stage) -> None:
        missing = Artefact(role=ArtefactRole.SCRIPT, name="app.py", sha256="a" * 64, size=3)
        with pytest.raises(NotUploaded):
            await stage.gateway.submit(job(1, artefacts=(missing,)))
        assert await stage.gateway.jobs() == []
        await stage.gateway.submit(job(1))

    async def test_no_job_starts_from_a_savepoint_that_is_being_deleted(self, stage: Stage) -> None:
        await stage.gateway.submit(job(1, savepoint="/s/1"))
        async with stage.gateway.disposing("/s/1"):
            assert (await stage.gateway.submit(job(1, savepoint="/s/1"))).created is False, "it was accepted before"
            for savepoint in ("/s/1", "file:///s/1/"):
                with pytest.raises(RetryLater, match="is being deleted"):
                    await stage.gateway.submit(job(2, savepoint=savepoint))
            await stage.gateway.submit(job(3, savepoint="/s/2"))
        await stage.gateway.submit(job(2, savepoint="/s/1"))

    async def test_jobs_are_listed_newest_first(self, stage: Stage) -> None:
        for number in (2, 1, 3):
            await stage.gateway.submit(job(number))
        listed = await stage.gateway.jobs()
        assert [view.job_id for view in listed] == [job(number).job_id for number in (1, 2, 3)]
        assert listed == [await stage.gateway.job(view.job_id) for view in listed]

    async def test_jobs_are_told_in_brief(self, stage: Stage) -> None:
        gateway = stage.gateway
        running, ended = await stage.runs(1), await stage.runs(3)
        await stage.finishes(ended)
        waiting = (await gateway.submit(job(2, savepoint="/s/1"))).job_id
        briefs = await gateway.briefs()
        assert briefs == [brief_of(view) for view in await gateway.jobs()]
        told = {brief.job_id: brief for brief in briefs}
        assert told[running].status is JobStatus.RUNNING
        assert (told[ended].status, told[ended].ended_ms is None) == (JobStatus.FINISHED, False)
        assert [told[each].has_savepoints for each in (running, waiting)] == [False, True]

    async def test_some_jobs_are_read_in_the_given_order(self, stage: Stage) -> None:
        for number in (1, 2, 3):
            await stage.gateway.submit(job(number))
        wanted = [job(number).job_id for number in (3, 1)]
        found = await stage.gateway.jobs_of([wanted[0], UNKNOWN, wanted[1]])
        assert found == [await stage.gateway.job(job_id) for job_id in wanted]

    async def test_an_unknown_job_is_absent(self, stage: Stage) -> None:
        gateway = stage.gateway
        for asked in (
            lambda: gateway.job(UNKNOWN),
            lambda: gateway.cancel(UNKNOWN),
            lambda: gateway.request_procedure(UNKNOWN, request(1)),
            lambda: gateway.procedure(UNKNOWN, request(1).trigger_id),
        ):
            with pytest.raises(Absent, match=f"there is no job {UNKNOWN}"):
                await asked()

    async def test_a_canceled_job_ends_when_its_driver_does(self, stage: Stage) -> None:
        job_id = await stage.runs(1)
        await stage.gateway.cancel(job_id)
        assert (await stage.gateway.job(job_id)).status in (JobStatus.CANCELLING, JobStatus.CANCELED)
        await stage.gateway.cancel(job_id, grace=0.0)
        await stage.stops(job_id)
        view = await stage.gateway.job(job_id)
        assert (view.status, view.driver_pid, view.procedure) == (JobStatus.CANCELED, 0, None)
        assert view.ended_ms is not None
        assert {JobStatus.CANCELLING, JobStatus.CANCELED} <= view.status_times_ms.keys()
        await stage.gateway.cancel(job_id)

    async def test_a_job_that_has_ended_otherwise_cannot_be_canceled(self, stage: Stage) -> None:
        job_id = await stage.runs(1)
        await stage.finishes(job_id)
        with pytest.raises(Conflict, match=f"job {job_id} has ended: it is FINISHED"):
            await stage.gateway.cancel(job_id)

    # --- procedures ---------------------------------------------------------------------------------------------------

    async def test_a_request_gets_a_directory_and_a_deadline(self, stage: Stage) -> None:
        job_id = await stage.runs(1)
        made = await stage.gateway.request_procedure(job_id, request(1))
        assert made.target_directory
        assert made.deadline_ms > made.requested_ms
        assert made == request(1, target_directory=made.target_directory, deadline_ms=made.deadline_ms)

    async def test_a_request_keeps_its_own_directory_and_deadline(self, stage: Stage) -> None:
        job_id = await stage.runs(1)
        own = request(1, target_directory="/mine", deadline_ms=stage.now_ms() + 5_000)
        assert await stage.gateway.request_procedure(job_id, own) == own

    async def test_a_request_is_shown_and_made_once(self, stage: Stage) -> None:
        job_id = await stage.runs(1)
        made = await stage.gateway.request_procedure(job_id, request(1))
        assert await stage.gateway.request_procedure(job_id, request(1)) == made
        view = await stage.gateway.procedure(job_id, made.trigger_id)
        assert (view.job_id, view.trigger_id, view.request, view.is_over) == (job_id, made.trigger_id, made, False)
        assert (await stage.gateway.job(job_id)).procedure == view

    async def test_a_job_does_one_thing_at_a_time(self, stage: Stage) -> None:
        job_id = await stage.runs(1)
        await stage.gateway.request_procedure(job_id, request(1))
        with pytest.raises(Conflict, match=f"job {job_id} is busy"):
            await stage.gateway.request_procedure(job_id, request(2, Procedure.SUSPEND))
        with pytest.raises(Absent, match=f"job {job_id} has no request {request(2).trigger_id}"):
            await stage.gateway.procedure(job_id, request(2).trigger_id)

    async def test_a_job_that_has_ended_takes_no_request(self, stage: Stage) -> None:
        job_id = await stage.runs(1)
        await stage.finishes(job_id)
        with pytest.raises(Conflict, match=f"job {job_id} has ended: it is FINISHED"):
            await stage.gateway.request_procedure(job_id, request(1))

    # --- task managers ------------------------------------------------------------------------------------------------

    async def test_task_managers_are_listed_by_id(self, stage: Stage) -> None:
        for name, place in (("tm-2", "b"), ("tm-3", "a"), ("tm-1", "b")):
            await stage.task_manager(name, place)
        listed = await stage.gateway.task_managers()
        assert [(view.info.id, view.info.node_id) for view in listed] == [("tm-1", "b"), ("tm-2", "b"), ("tm-3", "a")]
        assert listed == [await stage.gateway.task_manager(view.info.id) for view in listed]
        assert await stage.gateway.task_managers_by_node() == {"a": ["tm-3"], "b": ["tm-1", "tm-2"]}

    async def test_an_unknown_task_manager_is_absent(self, stage: Stage) -> None:
        gateway = stage.gateway
        for asked in (
            lambda: gateway.task_manager(TASK_MANAGER),
            lambda: gateway.stop_task_manager(TASK_MANAGER, drain=0.0),
        ):
            with pytest.raises(Absent, match="no task manager tm-1 is registered"):
                await asked()

    async def test_a_task_manager_is_stopped_once_or_twice(self, stage: Stage) -> None:
        await stage.task_manager("tm-1", "a")
        for drain in (60.0, 0.0):
            await stage.gateway.stop_task_manager(TASK_MANAGER, drain=drain)

    async def test_task_managers_of_another_job_store_are_listed_by_id(self, stage: Stage) -> None:
        assert stage.gateway.strangers() == ()
        for name in ("tm-2", "tm-1"):
            await stage.stranger(name, "a", "another store")
        first, second = stage.gateway.strangers()
        assert (first.id, second.id) == ("tm-1", "tm-2")
        assert first == Stranger(
            id=TASK_MANAGER, address=first.address, node_id="a", pid=first.pid, lineage="another store"
        )
        assert await stage.gateway.task_managers() == []

    # --- the blocklist ------------------------------------------------------------------------------------------------

    async def test_a_blocked_node_is_listed_until_it_is_unblocked(self, stage: Stage) -> None:
        entry = node("a")
        assert await stage.gateway.block(entry, merge=False) == Blocking(entry=entry, merged=False)
        assert (await stage.gateway.blocklist()).entries == (entry,)
        assert await stage.gateway.blocklist_problem() == ""
        await stage.gateway.unblock(entry.place)
        assert (await stage.gateway.blocklist()).entries == ()
        with pytest.raises(NotBlocked):
            await stage.gateway.unblock(entry.place)

    async def test_a_second_entry_is_refused_or_merged(self, stage: Stage) -> None:
        evacuated = node(
            "a", action=BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS, drivers=EvacuatedDrivers.WAIT, causes=("heat",)
        )
        await stage.gateway.block(evacuated, merge=False)
        with pytest.raises(AlreadyBlocked):
            await stage.gateway.block(node("a"), merge=False)
        made = await stage.gateway.block(node("a"), merge=True, keep_drivers=True)
        assert made.merged
        assert (made.entry.action, made.entry.drivers) == (evacuated.action, EvacuatedDrivers.WAIT)
        assert set(made.entry.causes) == {"heat", "a disk"}
        assert (await stage.gateway.blocklist()).entries == (made.entry,)

    async def test_an_entry_ends_in_its_time(self, stage: Stage) -> None:
        await stage.gateway.block(node("a", end_ms=stage.now_ms() + 5_000), merge=False)
        assert (await stage.gateway.blocklist()).entries
        await stage.passes(10.0)
        assert (await stage.gateway.blocklist()).entries == ()

    async def test_a_blocklist_that_cannot_be_read_is_neither_shown_nor_changed(self, stage: Stage) -> None:
        await stage.gateway.block(node("a"), merge=False)
        await stage.loses_blocklist()
        assert await stage.gateway.blocklist_problem()
        gateway = stage.gateway
        for asked in (
            gateway.blocklist,
            lambda: gateway.block(node("b"), merge=True),
            lambda: gateway.unblock(node("a").place),
        ):
            with pytest.raises(RetryLater, match="the blocklist cannot be read"):
                await asked()

    # --- no leader ----------------------------------------------------------------------------------------------------

    async def test_without_a_leader_every_question_is_to_be_repeated(self, stage: Stage) -> None:
        job_id = await stage.runs(1)
        await stage.steps_down()
        gateway = stage.gateway
        for asked in (
            lambda: gateway.submit(job(2)),
            lambda: gateway.cancel(job_id),
            gateway.jobs,
            lambda: gateway.job(job_id),
            lambda: gateway.request_procedure(job_id, request(1)),
            lambda: gateway.procedure(job_id, request(1).trigger_id),
            gateway.task_managers,
            gateway.task_managers_by_node,
            lambda: gateway.task_manager(TASK_MANAGER),
            lambda: gateway.stop_task_manager(TASK_MANAGER, drain=0.0),
            gateway.blocklist_problem,
            gateway.blocklist,
            lambda: gateway.block(node("a"), merge=False),
            lambda: gateway.unblock(node("a").place),
        ):
            with pytest.raises(RetryLater):
                await asked()
