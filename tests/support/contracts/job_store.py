"""Contract of job stores: tests for every implementation of ``jobs.ports.JobStore``.

A test module gives a subclass of ``JobStoreContract`` (its name begins with "Test") a fixture ``place``.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

import msgspec
import pytest

from emberkeep.base.errors import Absent, Conflict, Fatal, Unavailable
from emberkeep.base.ids import InstanceId, JobId, TaskManagerId
from emberkeep.blocklist.model import BlockAction, BlockedNode, BlockedTaskManager, Blocklist, Removal
from emberkeep.jobs.checkpoints import (
    QUERIES_KEPT,
    SAVEPOINTS_KEPT,
    JobPointers,
    QueryCheckpoint,
    SavepointPointer,
)
from emberkeep.jobs.model import (
    DriverHome,
    EntryPoint,
    EntryPointKind,
    JobGraph,
    JobResources,
    JobResult,
    JobStatus,
)
from emberkeep.jobs.ports import JobStore, StoredJob, Trouble
from emberkeep.jobs.upgrades.model import Upgrade, UpgradePhase
from emberkeep.lifecycle.model import Procedure, ProcedureRequest


class Place(Protocol):
    """Durable storage under test."""

    def store(self) -> JobStore:
        """Return the store of a new JobManager process, not opened yet."""

    def crash(self) -> None:
        """Let the leader die without closing its store. Stores made from now on read what it has written."""

    def depose(self) -> None:
        """Let the leader lose the lock without notice."""

    def away(self) -> AbstractContextManager[None]:
        """While the context is open, no graph can be read."""

    def damage(self, job_id: JobId) -> str:
        """Truncate the graph of a job. Return a part of the text that names its place."""

    async def damage_pointers(self, job_id: JobId) -> object:
        """Truncate the record of a job's checkpoints."""

    async def damage_blocklist(self) -> None:
        """Truncate the stored blocklist."""


def upgrade(number: int, **changes: object) -> Upgrade:
    """Return the record of an upgrade that differs by ``number``."""
    made = Upgrade(
        upgrade_id=f"{number:032x}",
        job_id=job(number).job_id,
        name=f"job {number}",
        new_id=job(number + 1000).job_id,
        back_id=job(number + 2000).job_id,
        batches=3,
        within_ms=600_000,
        restarts=2,
        phase=UpgradePhase.STOPPING,
        phase_ms=number,
        began_ms=number,
        target_directory="/savepoints",
        stop_deadline_ms=number + 1,
        new=job(number + 1000),
        back=job(number + 2000),
    )
    return msgspec.structs.replace(made, **changes)


def job(number: int, **changes: object) -> JobGraph:
    """Return a job graph that differs by ``number``."""
    graph = JobGraph(
        job_id=JobId(f"{number:032x}"),
        name=f"job {number}",
        entry_point=EntryPoint(kind=EntryPointKind.SCRIPT, name="app.py"),
        arguments=("ä", str(number)),
        artefacts=(),
        spark_conf={"spark.x": "1"},
        options={},
        working_directory="/",
        resources=JobResources(
            driver_memory_mb=512,
            driver_overhead_mb=128,
            executors=2,
            executor_cores=1,
            executor_memory_mb=512,
            executor_overhead_mb=128,
        ),
        python="3.11",
        submitted_ms=1_700_000_000_000 - number,
        idempotency_key=f"key {number}",
    )
    return msgspec.structs.replace(graph, **changes)


def result_of(graph: JobGraph, status: JobStatus = JobStatus.FINISHED) -> JobResult:
    return JobResult(
        job_id=graph.job_id,
        name=graph.name,
        status=status,
        exit_code=0,
        root_cause="",
        submitted_ms=graph.submitted_ms,
        ended_ms=1_700_000_000_500,
        attempts=(),
        exceptions=(),
        idempotency_key=graph.idempotency_key,
    )


def batch(number: int, query: int = 1, *, query_id: str = "") -> QueryCheckpoint:
    """Return the checkpoint of a committed micro-batch."""
    return QueryCheckpoint(
        query=f"query {query}",
        query_id=query_id or f"id {query}",
        location=f"/checkpoints/ä/{query}",
        batch_id=number,
        triggered_ms=1_700_000_000_000 + 100 * number,
        committed_ms=1_700_000_000_050 + 100 * number,
    )


def savepoint(number: int) -> SavepointPointer:
    return SavepointPointer(path=f"/savepoints/{number}", manifest_sha256=f"{number:064x}", created_ms=1_000 + number)


def procedure(number: int, kind: Procedure = Procedure.SUSPEND) -> ProcedureRequest:
    return ProcedureRequest(
        trigger_id=f"{number:032x}", procedure=kind, target_directory="/savepoints/ä", requested_ms=1_000 + number
    )


def blocklist(revision: int) -> Blocklist:
    """Return a blocklist of one node and one task manager."""
    node = BlockedNode(id="node-ä", action=BlockAction.MARK_BLOCKED, start_ms=1, end_ms=revision, causes=("disk", "ä"))
    manager = BlockedTaskManager(
        id="tm-1", action=BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS, start_ms=2, causes=("slow",)
    )
    return Blocklist(
        revision=revision,
        entries=(node, manager),
        removals=(Removal(place=node.place, revision=1, by_hand=True, at_ms=7),),
        floor=0,
    )


class JobStoreContract:
    """Tests of JobStore."""

    async def test_what_was_answered_is_found_after_a_crash(self, place: Place) -> None:
        store = place.store()
        await store.open()
        for number in range(3):
            assert await store.create(job(number)) == job(number).job_id
        await store.record_attempt(job(1).job_id, 1)
        await store.record_attempt(job(1).job_id, 4)
        await store.record_result(result_of(job(2)))
        place.crash()
        store = place.store()
        await store.open()
        assert await store.recover() == [
            StoredJob(job_id=job(0).job_id, attempt=0, graph=job(0)),
            StoredJob(job_id=job(1).job_id, attempt=4, graph=job(1)),
        ]
        assert await store.results() == [result_of(job(2))]
        await store.close()

    @pytest.mark.req("HA-4")
    async def test_jobs_come_in_the_order_of_acceptance_whatever_their_clocks_say(self, place: Place) -> None:
        store = place.store()
        await store.open()
        for number in (5, 3, 9, 1):
            await store.create(job(number))
        await store.record_result(result_of(job(9)))
        await store.create(job(7))
        assert [stored.job_id for stored in await store.recover()] == [job(n).job_id for n in (5, 3, 1, 7)]
        await store.close()

    async def test_retired_savepoints_are_marked_then_forgotten_and_others_are_left_alone(self, place: Place) -> None:
        store = place.store()
        await store.open()
        await store.create(job(1))
        await store.record_attempt(job(1).job_id, 1)
        first, second = (msgspec.structs.replace(savepoint(number), periodic=True) for number in (1, 2))
        asked_for = savepoint(3)
        await store.record_checkpoints(job(1).job_id, 1, (batch(1),), (first, second, asked_for))
        both = frozenset({first.path, asked_for.path})
        marked = msgspec.structs.replace(first, retired_ms=77)
        for retired_ms in (77, 88):  # a repetition changes nothing
            pointers = await store.record_retention(job(1).job_id, both, frozenset(), retired_ms)
            assert pointers.savepoints == (marked, second, asked_for)
        place.crash()
        store = place.store()
        await store.open()
        ((stored),) = await store.recover()
        assert stored.pointers.savepoints == (marked, second, asked_for)
        for _ in range(2):
            pointers = await store.record_retention(job(1).job_id, frozenset(), both, 99)
            assert pointers.savepoints == (second, asked_for)
            assert pointers.queries == (batch(1),)
        with pytest.raises(Absent):
            await store.record_retention(job(2).job_id, frozenset(), both, 99)
        await store.record_result(result_of(job(1)))
        assert [result.savepoints for result in await store.results()] == [(second, asked_for)]
        await store.close()

    async def test_one_leads_at_a_time_and_the_epoch_grows(self, place: Place) -> None:
        first, second = place.store(), place.store()
        epoch = await first.open()
        with pytest.raises(Conflict, match="another JobManager"):
            await second.open()
        with pytest.raises(Conflict):
            await first.open()
        await first.confirm()
        await first.create(job(1))  # failed opens by other JobManagers did not affect the leader
        lineage = first.lineage
        await first.close()
        assert await second.open() > epoch
        assert lineage, "the store has a name"
        assert second.lineage == lineage, "it stays from leader to leader"
        await second.close()

    @pytest.mark.req("HA-6")
    async def test_a_deposed_leader_changes_nothing(self, place: Place) -> None:
        old, new = place.store(), place.store()
        await old.open()
        await old.create(job(1))
        await old.create(job(2))
        place.depose()
        await new.open()
        for write in (
            old.confirm(),
            old.create(job(3)),
            old.create(job(1)),
            old.record_attempt(job(1).job_id, 1),
            old.record_cancel(job(1).job_id),
            old.record_procedure(job(1).job_id, procedure(1)),
            old.record_procedure_end(job(1).job_id, 0, procedure(1).trigger_id, savepoint(1), stopped=True),
            old.record_checkpoints(job(1).job_id, 0, (batch(1),)),
            old.record_checkpoints(job(1).job_id, 0, ()),
            old.record_retention(job(1).job_id, frozenset(), frozenset(), 1),
            old.record_result(result_of(job(1))),
            old.expire_results(0),
            old.remove_damaged(job(1).job_id),
            old.record_blocklist(blocklist(1)),
        ):
            with pytest.raises(Conflict, match="epoch"):
                await write
        assert [stored.attempt for stored in await new.recover()] == [0, 0]
        assert [(stored.procedure, stored.stopped) for stored in await new.recover()] == [(None, ""), (None, "")]
        assert [stored.pointers for stored in await new.recover()] == [JobPointers(), JobPointers()]
        assert await new.results() == []
        assert await new.blocklist() == Blocklist()
        await new.record_attempt(job(1).job_id, 1)
        await old.close()
        await new.record_attempt(job(1).job_id, 2)
        await new.close()

    async def test_a_repeated_submission_returns_the_first_job(self, place: Place) -> None:
        store = place.store()
        await store.open()
        await store.create(job(1))
        again = job(2, idempotency_key=job(1).idempotency_key)
        assert await store.create(again) == job(1).job_id
        assert await store.create(job(1)) == job(1).job_id
        assert [stored.graph for stored in await store.recover()] == [job(1)]
        await store.record_result(result_of(job(1)))
        assert await store.create(again) == job(1).job_id
        assert await store.recover() == []
        await store.expire_results(0)
        assert await store.create(again) == again.job_id
        await store.close()

    async def test_jobs_without_a_key_are_all_different(self, place: Place) -> None:
        store = place.store()
        await store.open()
        for number in (1, 2):
            graph = job(number, idempotency_key="")
            assert await store.create(graph) == graph.job_id
            assert await store.create(graph) == graph.job_id
        assert len(await store.recover()) == 2
        await store.close()

    async def test_an_id_belongs_to_one_job(self, place: Place) -> None:
        store = place.store()
        await store.open()
        await store.create(job(1))
        with pytest.raises(Conflict):
            await store.create(job(1, idempotency_key="other", name="other"))
        await store.record_result(result_of(job(1)))
        with pytest.raises(Conflict):
            await store.create(job(1, idempotency_key="other"))
        assert await store.recover() == []
        await store.close()

    @pytest.mark.req("HA-7")
    async def test_attempts_only_grow(self, place: Place) -> None:
        store = place.store()
        await store.open()
        await store.create(job(1))
        await store.record_attempt(job(1).job_id, 2)
        for attempt in (0, 1, 2):
            with pytest.raises(Conflict):
                await store.record_attempt(job(1).job_id, attempt)
        assert (await store.recover())[0].attempt == 2
        with pytest.raises(Absent):
            await store.record_attempt(job(2).job_id, 1)
        await store.close()

    @pytest.mark.req("HA-7")
    async def test_where_an_attempt_is_to_be_started_is_kept_with_its_number(self, place: Place) -> None:
        home = DriverHome(task_manager=TaskManagerId("tm-1"), node_id="node-ä", instance=InstanceId("life-1"))
        store = place.store()
        await store.open()
        for number in (1, 2):
            await store.create(job(number))
            await store.record_attempt(job(number).job_id, 1, home)
            await store.record_cancel(job(number).job_id)
        await store.record_attempt(job(2).job_id, 2)
        place.crash()
        store = place.store()
        await store.open()
        assert [stored.home for stored in await store.recover()] == [home, None]
        await store.close()

    async def test_a_cancellation_is_kept_until_the_job_has_ended(self, place: Place) -> None:
        store = place.store()
        await store.open()
        for number in (1, 2):
            await store.create(job(number))
        for _ in range(2):
            await store.record_cancel(job(1).job_id)
        await store.record_attempt(job(1).job_id, 1)
        with pytest.raises(Absent):
            await store.record_cancel(job(3).job_id)
        place.crash()
        store = place.store()
        await store.open()
        recovered = [(stored.attempt, stored.canceled) for stored in await store.recover()]
        assert recovered == [(1, True), (0, False)]
        await store.record_result(result_of(job(1), JobStatus.CANCELED))
        with pytest.raises(Absent):
            await store.record_cancel(job(1).job_id)
        await store.close()

    @pytest.mark.req("HA-4")
    @pytest.mark.req("HA-6")
    async def test_a_result_ends_the_job_once(self, place: Place) -> None:
        store = place.store()
        await store.open()
        await store.create(job(1))
        await store.record_result(result_of(job(1)))
        assert await store.recover() == []
        await store.record_result(result_of(job(1)))
        with pytest.raises(Conflict):
            await store.record_result(result_of(job(1), JobStatus.FAILED))
        with pytest.raises(Absent):
            await store.record_attempt(job(1).job_id, 1)
        with pytest.raises(Absent):
            await store.record_result(result_of(job(2)))
        assert await store.results() == [result_of(job(1))]
        await store.close()

    async def test_only_the_newest_results_are_kept(self, place: Place) -> None:
        store = place.store()
        await store.open()
        for number in (4, 2, 3):
            await store.create(job(number))
        for number in (3, 4, 2):
            await store.record_result(result_of(job(number)))
        assert await store.expire_results(5) == []
        assert await store.expire_results(1) == [job(3).job_id, job(4).job_id]
        assert await store.results() == [result_of(job(2))]
        with pytest.raises(Absent):
            await store.record_result(result_of(job(3)))
        await store.close()

    @pytest.mark.req("HA-8")
    async def test_the_newest_commits_and_savepoints_are_found_after_a_crash(self, place: Place) -> None:
        store = place.store()
        await store.open()
        for number in (1, 2):
            await store.create(job(number))
            await store.record_attempt(job(number).job_id, 1)
        first = await store.record_checkpoints(job(1).job_id, 1, (batch(4), batch(7, 2)))
        assert first == JobPointers(attempt=1, queries=(batch(4), batch(7, 2)))
        await store.record_checkpoints(job(1).job_id, 1, (batch(9),), (savepoint(1),))
        await store.record_checkpoints(job(1).job_id, 1, (), (savepoint(2),))
        place.crash()
        store = place.store()
        await store.open()
        expected = JobPointers(attempt=1, queries=(batch(7, 2), batch(9)), savepoints=(savepoint(1), savepoint(2)))
        assert [stored.pointers for stored in await store.recover()] == [expected, JobPointers()]
        await store.close()

    @pytest.mark.req("HA-8")
    async def test_a_querys_batch_never_goes_back_unless_its_checkpoint_was_begun_anew(self, place: Place) -> None:
        store = place.store()
        await store.open()
        job_id = await store.create(job(1))
        await store.record_checkpoints(job_id, 0, (batch(5),))
        for late in (batch(3), batch(-1), batch(5)):
            assert (await store.record_checkpoints(job_id, 0, (late,))).queries == (batch(5),)
        anew = batch(0, query_id="another")
        assert (await store.record_checkpoints(job_id, 0, (anew,))).queries == (anew,)
        await store.close()

    @pytest.mark.req("HA-7")
    @pytest.mark.req("HA-8")
    async def test_only_the_newest_attempt_reports_checkpoints(self, place: Place) -> None:
        store = place.store()
        await store.open()
        job_id = await store.create(job(1))
        await store.record_attempt(job_id, 1)
        await store.record_checkpoints(job_id, 1, (batch(5),))
        await store.record_attempt(job_id, 2)
        for attempt in (1, 3):
            with pytest.raises(Conflict):
                await store.record_checkpoints(job_id, attempt, (batch(6),))
        assert (await store.recover())[0].pointers == JobPointers(attempt=1, queries=(batch(5),))
        assert (await store.record_checkpoints(job_id, 2, (batch(6),))).attempt == 2
        with pytest.raises(Absent):
            await store.record_checkpoints(job(2).job_id, 1, (batch(6),))
        await store.close()

    @pytest.mark.req("HA-8")
    async def test_savepoints_outlive_the_job_and_expire_with_its_result(self, place: Place) -> None:
        store = place.store()
        await store.open()
        job_id = await store.create(job(1))
        await store.record_checkpoints(job_id, 0, (batch(5),), (savepoint(1), savepoint(2)))
        for _ in range(2):
            await store.record_result(result_of(job(1)))
        with pytest.raises(Absent):
            await store.record_checkpoints(job_id, 0, (batch(6),))
        place.crash()
        store = place.store()
        await store.open()
        (kept,) = await store.results()
        assert kept == msgspec.structs.replace(result_of(job(1)), savepoints=(savepoint(1), savepoint(2)))
        await store.record_result(kept)  # the result that was read is the same result
        assert await store.expire_results(0) == [job_id]
        assert await store.create(job(1)) == job_id
        assert (await store.recover())[0].pointers == JobPointers()
        await store.close()

    async def test_what_a_job_was_asked_to_do_is_kept_over_crashes_and_attempts_until_its_end(
        self, place: Place
    ) -> None:
        store = place.store()
        await store.open()
        for number in (1, 2, 3):
            await store.create(job(number))
            for _ in range(2):
                await store.record_procedure(job(number).job_id, procedure(number))
        await store.record_attempt(job(1).job_id, 1)
        await store.record_cancel(job(1).job_id)
        await store.record_procedure(job(2).job_id, None)
        place.crash()
        store = place.store()
        await store.open()
        assert [(stored.procedure, stored.canceled) for stored in await store.recover()] == [
            (procedure(1), True),
            (None, False),
            (procedure(3), False),
        ]
        with pytest.raises(Absent):
            await store.record_procedure(job(4).job_id, procedure(4))
        await store.record_result(result_of(job(1)))
        with pytest.raises(Absent):
            await store.record_procedure(job(1).job_id, None)
        await store.close()

    @pytest.mark.req("HA-8")
    async def test_a_procedures_end_brings_its_savepoint_and_takes_the_request_away_at_once(self, place: Place) -> None:
        store = place.store()
        await store.open()
        for number in (1, 2, 3):
            await store.create(job(number))
            await store.record_procedure(job(number).job_id, procedure(number))
        await store.record_checkpoints(job(1).job_id, 0, (batch(5),))
        for number, stopped in ((1, True), (2, False)):
            for _ in range(2):
                trigger = procedure(number).trigger_id
                pointers = await store.record_procedure_end(
                    job(number).job_id, 0, trigger, savepoint(number), stopped=stopped
                )
                assert pointers.savepoints == (savepoint(number),)
        other = await store.record_procedure_end(job(3).job_id, 0, procedure(9).trigger_id, None, stopped=False)
        assert other == JobPointers()
        place.crash()
        store = place.store()
        await store.open()
        first, second, third = await store.recover()
        assert (first.procedure, first.stopped) == (None, procedure(1).trigger_id)
        assert (first.pointers.queries, first.pointers.savepoints) == ((batch(5),), (savepoint(1),))
        assert (second.procedure, second.stopped, second.pointers.savepoints) == (None, "", (savepoint(2),))
        assert (third.procedure, third.stopped, third.pointers) == (procedure(3), "", JobPointers())
        await store.record_result(result_of(job(1)))
        assert (await store.results())[0].savepoints == (savepoint(1),)
        with pytest.raises(Absent):
            await store.record_procedure_end(job(1).job_id, 0, procedure(1).trigger_id, savepoint(1), stopped=True)
        await store.close()

    @pytest.mark.req("HA-7")
    async def test_an_older_attempt_ends_no_procedure(self, place: Place) -> None:
        store = place.store()
        await store.open()
        job_id = await store.create(job(1))
        await store.record_attempt(job_id, 1)
        await store.record_procedure(job_id, procedure(1))
        await store.record_attempt(job_id, 2)
        for attempt in (1, 3):
            with pytest.raises(Conflict):
                await store.record_procedure_end(job_id, attempt, procedure(1).trigger_id, savepoint(1), stopped=True)
        (stored,) = await store.recover()
        assert (stored.procedure, stored.stopped, stored.pointers) == (procedure(1), "", JobPointers())
        await store.close()

    async def test_the_next_attempt_carries_a_procedure_on_but_is_the_end_of_a_move(self, place: Place) -> None:
        store = place.store()
        await store.open()
        for number, kind in ((1, Procedure.MOVE), (2, Procedure.DRAIN)):
            await store.create(job(number))
            await store.record_procedure(job(number).job_id, procedure(number, kind))
            await store.record_attempt(job(number).job_id, 1)
        assert [stored.procedure for stored in await store.recover()] == [None, procedure(2, Procedure.DRAIN)]
        await store.close()

    async def test_a_move_that_is_recorded_after_the_next_attempt_is_not_asked_of_it(self, place: Place) -> None:
        store = place.store()
        await store.open()
        job_id = await store.create(job(1))
        await store.record_attempt(job_id, 2)
        for attempt, is_asked in ((1, False), (2, True), (0, True)):
            move = msgspec.structs.replace(procedure(attempt, Procedure.MOVE), attempt=attempt)
            await store.record_procedure(job_id, move)
            assert [stored.procedure for stored in await store.recover()] == [move if is_asked else None]
        await store.close()

    @pytest.mark.req("HA-8")
    async def test_the_record_of_checkpoints_stays_small(self, place: Place) -> None:
        store = place.store()
        await store.open()
        job_id = await store.create(job(1))
        queries = tuple(batch(number, number) for number in range(QUERIES_KEPT + 5))
        savepoints = tuple(savepoint(number) for number in range(SAVEPOINTS_KEPT + 5))
        pointers = await store.record_checkpoints(job_id, 0, queries, savepoints)
        assert (pointers.queries, pointers.savepoints) == (queries[5:], savepoints[5:])
        await store.close()

    @pytest.mark.req("HA-10")
    async def test_unreadable_pointers_keep_no_job_from_running_or_ending(self, place: Place) -> None:
        store = place.store()
        await store.open()
        for number in (1, 2):
            await store.create(job(number))
            await store.record_checkpoints(job(number).job_id, 0, (batch(number),))
        await place.damage_pointers(job(1).job_id)
        spoilt, sound = await store.recover()
        assert (spoilt.graph, spoilt.problem, spoilt.pointers) == (job(1), "", JobPointers())
        assert sound.pointers.queries == (batch(2),)
        with pytest.raises(Fatal, match="checkpoints"):
            await store.record_checkpoints(job(1).job_id, 0, (batch(9),))
        await store.record_result(result_of(job(1)))
        assert [stored.job_id for stored in await store.recover()] == [job(2).job_id]
        assert await store.expire_results(0) == [job(1).job_id]
        assert [kept.job_id for kept in await store.damaged()] == [job(1).job_id]
        await store.remove_damaged(job(1).job_id)
        await store.create(job(1))
        assert (await store.record_checkpoints(job(1).job_id, 0, (batch(9),))).queries == (batch(9),)
        await store.close()

    @pytest.mark.req("HA-10")
    async def test_an_unreadable_graph_spoils_only_its_own_job(self, place: Place) -> None:
        store = place.store()
        await store.open()
        for number in range(3):
            await store.create(job(number))
        await store.record_attempt(job(1).job_id, 1)
        where = place.damage(job(1).job_id)
        first, damaged, last = await store.recover()
        assert (first.graph, last.graph) == (job(0), job(2))
        assert (damaged.graph, damaged.attempt, damaged.trouble) == (None, 1, Trouble.DAMAGED)
        assert where in damaged.problem
        assert await store.recover_job(job(1).job_id) == damaged
        await store.record_result(result_of(job(1), JobStatus.FAILED))
        assert len(await store.recover()) == 2
        await store.close()

    @pytest.mark.req("SAFE-3")
    async def test_what_is_left_of_a_damaged_job_is_kept_until_it_is_removed(self, place: Place) -> None:
        store = place.store()
        await store.open()
        for number in range(3):
            await store.create(job(number))
        where = place.damage(job(1).job_id)
        assert await store.damaged() == []
        for number in range(2):
            await store.record_result(result_of(job(number), JobStatus.FAILED))
        (kept,) = await store.damaged()
        assert (kept.job_id, kept.since_ms > 0) == (job(1).job_id, True)
        assert any(where in lies for lies in kept.places)
        await store.expire_results(0)
        with pytest.raises(Conflict, match="kept"):  # its graph would overwrite the kept bytes
            await store.create(job(1))
        place.crash()
        store = place.store()
        await store.open()
        assert [stored.graph for stored in await store.recover()] == [job(2)]
        await store.remove_damaged(job(2).job_id)
        with place.away(), pytest.raises(Unavailable):
            await store.remove_damaged(job(1).job_id)
        (after,) = await store.damaged()
        assert (after.job_id, after.since_ms) == (kept.job_id, kept.since_ms)
        for _ in range(2):
            await store.remove_damaged(job(1).job_id)
            assert await store.damaged() == []
        await store.create(job(1))
        assert [stored.graph for stored in await store.recover()] == [job(2), job(1)]
        await store.close()

    @pytest.mark.req("SAFE-3")
    async def test_a_deposed_leader_removes_nothing_of_a_damaged_job(self, place: Place) -> None:
        old = place.store()
        await old.open()
        await old.create(job(1))
        place.damage(job(1).job_id)
        await old.record_result(result_of(job(1), JobStatus.FAILED))
        kept = await old.damaged()
        place.depose()
        new = place.store()
        await new.open()
        with pytest.raises(Conflict, match="epoch"):
            await old.remove_damaged(job(1).job_id)
        assert await new.damaged() == kept
        await old.close()
        await new.close()

    @pytest.mark.req("SAFE-1")
    async def test_graphs_that_cannot_be_read_now_are_no_damage_and_are_read_again(self, place: Place) -> None:
        store = place.store()
        await store.open()
        await store.create(job(0))
        await store.create(job(1))
        await store.record_attempt(job(1).job_id, 1)
        before = await store.recover()
        place.crash()
        with place.away():
            store = place.store()
            await store.open()
            found = await store.recover()
            assert [(stored.graph, stored.trouble) for stored in found] == [(None, Trouble.AWAY)] * 2
            assert [stored.attempt for stored in found] == [0, 1]
            assert all("cannot be read now" in stored.problem for stored in found)
            assert [stored.idempotency_key for stored in found] == [job(n).idempotency_key for n in (0, 1)]
            assert await store.recover_job(job(1).job_id) == found[1]
            await store.record_attempt(job(1).job_id, 2)
            await store.record_cancel(job(0).job_id)
            await store.record_result(result_of(job(0), JobStatus.CANCELED))
            assert await store.recover_job(job(0).job_id) is None
        newest = msgspec.structs.replace(before[1], attempt=2)
        assert await store.recover_job(job(1).job_id) == newest
        assert await store.recover() == [newest]
        await store.close()

    @pytest.mark.req("BLK-17")
    async def test_the_blocklist_that_was_recorded_last_is_found_after_a_crash(self, place: Place) -> None:
        store = place.store()
        await store.open()
        assert await store.blocklist() == Blocklist()
        for revision in (1, 2):
            await store.record_blocklist(blocklist(revision))
        place.crash()
        store = place.store()
        await store.open()
        assert await store.blocklist() == blocklist(2)
        await store.record_blocklist(Blocklist(revision=3))
        assert await store.blocklist() == Blocklist(revision=3)
        await store.close()

    @pytest.mark.req("BLK-17")
    async def test_a_torn_blocklist_is_an_error_not_an_empty_list(self, place: Place) -> None:
        store = place.store()
        await store.open()
        await store.record_blocklist(blocklist(1))
        await place.damage_blocklist()
        with pytest.raises(Fatal, match="blocklist"):
            await store.blocklist()
        await store.record_blocklist(blocklist(2))
        assert await store.blocklist() == blocklist(2)
        await store.close()

    async def test_a_closed_store_does_nothing(self, place: Place) -> None:
        store = place.store()
        for _ in range(2):
            with pytest.raises(Conflict):
                await store.create(job(1))
            with pytest.raises(Conflict):
                await store.recover()
            await store.open()
            await store.close()
            await store.close()

    # --- upgrades -----------------------------------------------------------------------------------------------------

    async def test_the_next_leader_reads_the_newest_record_of_each_upgrade(self, place: Place) -> None:
        store = place.store()
        await store.open()
        assert await store.upgrades() == []
        await store.record_upgrade(upgrade(2))
        await store.record_upgrade(upgrade(1))
        watched = upgrade(1, phase=UpgradePhase.WATCHING, savepoint="/s/1", bases={"/c/1": 4}, canceled_by="ana")
        await store.record_upgrade(watched)
        await store.record_upgrade(watched)  # repeated
        place.crash()
        successor = place.store()
        await successor.open()
        assert await successor.upgrades() == [watched, upgrade(2)]
        await successor.remove_upgrades([upgrade(1).upgrade_id, upgrade(9).upgrade_id])
        assert await successor.upgrades() == [upgrade(2)]
        await successor.close()

    @pytest.mark.req("HA-9")
    async def test_a_deposed_leader_writes_no_upgrade(self, place: Place) -> None:
        store = place.store()
        await store.open()
        await store.record_upgrade(upgrade(1))
        place.depose()
        successor = place.store()
        await successor.open()
        with pytest.raises(Conflict):
            await store.record_upgrade(upgrade(1, phase=UpgradePhase.STARTING))
        with pytest.raises(Conflict):
            await store.remove_upgrades([upgrade(1).upgrade_id])
        assert await successor.upgrades() == [upgrade(1)]
        await successor.close()
