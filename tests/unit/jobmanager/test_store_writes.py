"""Writes to the job store while it fails: when they are tried again, and what callers learn."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import Awaitable, Callable

import pytest

from emberkeep.base.errors import Conflict, EmberkeepError, Fatal, RetryLater, UnknownOutcome
from emberkeep.blocklist.model import Blocklist
from emberkeep.jobmanager.store_writes import SUBMISSION_TRIES, StoreWrites
from emberkeep.jobs.checkpoints import SavepointPointer
from emberkeep.jobs.model import JobResult, JobStatus
from emberkeep.lifecycle.model import Procedure, ProcedureRequest
from tests.unit.jobmanager.cluster import in_virtual_time
from tests.unit.jobmanager.fakes import graph
from tests.unit.jobmanager.memory_store import FailingStore

JOB = graph(1).job_id
REQUEST = ProcedureRequest(trigger_id="1" * 32, procedure=Procedure.SAVEPOINT, target_directory="/savepoints")
RESULT = JobResult(
    job_id=JOB,
    name="job 1",
    status=JobStatus.FAILED,
    exit_code=1,
    root_cause="the script failed",
    submitted_ms=1,
    ended_ms=2,
    attempts=(),
    exceptions=(),
    idempotency_key="key 1",
)
AWAY, FULL, NO_REPLY = RetryLater("the store is away"), Fatal("no space left"), UnknownOutcome("no reply")
STEP = 0.01  # seconds that the store takes


class LongestPauses(random.Random):
    """Draws the upper end of every pause."""

    def random(self) -> float:
        return 1.0


class Bench:
    """Writes to a store that has one job."""

    def __init__(self) -> None:
        self.store = FailingStore()
        self.failed_at: list[float] = []
        self.replies: list[EmberkeepError] = []  # what callers that wait for a write get instead
        self.writes = StoreWrites(
            self.store, LongestPauses(), lambda: self.failed_at.append(asyncio.get_running_loop().time())
        )

    @property
    def pauses(self) -> list[float]:
        """Seconds between the tries that failed."""
        return [round(after - before - STEP, 6) for before, after in itertools.pairwise(self.failed_at)]

    async def create(self) -> object:
        return await self.writes.create(graph(2), self.replies.append)

    async def record_procedure(self) -> object:
        return await self.writes.record_procedure(JOB, REQUEST, self.replies.append)

    async def record_blocklist(self) -> object:
        return await self.writes.record_blocklist(Blocklist(revision=1), self.replies.append)

    async def record_attempt(self) -> object:
        return await self.writes.record_attempt(JOB, 1, None)

    async def record_result(self) -> None:
        await self.writes.record_result(RESULT)

    async def record_cancel(self) -> object:
        return await self.writes.record_cancel(JOB, self.replies.append)

    async def record_procedure_end(self) -> object:
        return await self.writes.record_procedure_end(JOB, 0, REQUEST.trigger_id, None, stopped=False)


def with_job(scenario: Callable[[Bench], Awaitable[None]]) -> None:
    async def run() -> None:
        bench = Bench()
        await bench.store.open()
        await bench.store.create(graph(1))
        await scenario(bench)

    in_virtual_time(run)


@pytest.mark.parametrize("operation", ["record_attempt", "record_result", "record_procedure_end"])
def test_pauses_between_tries_double_up_to_five_seconds(operation: str) -> None:
    async def scenario(bench: Bench) -> None:
        bench.store.before[operation] = [AWAY] * 9
        await getattr(bench, operation)()
        assert bench.pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
        assert bench.store.calls[operation] == 10

    with_job(scenario)


@pytest.mark.parametrize("operation", ["create", "record_procedure", "record_cancel", "record_blocklist"])
@pytest.mark.parametrize(
    ("failures", "reply"), [([AWAY] * SUBMISSION_TRIES, AWAY), ([AWAY, FULL], FULL)], ids=["away", "full"]
)
def test_a_caller_learns_the_error_of_what_was_not_written(
    operation: str, failures: list[EmberkeepError], reply: EmberkeepError
) -> None:
    async def scenario(bench: Bench) -> None:
        bench.store.before[operation] = list(failures)
        tries = bench.store.calls[operation] + len(failures)
        assert not await getattr(bench, operation)()
        assert bench.replies == [reply]
        assert bench.store.calls[operation] == tries
        assert bench.pauses == [0.1, 0.2, 0.4][: len(failures) - 2]

    with_job(scenario)


@pytest.mark.parametrize("operation", ["create", "record_procedure", "record_cancel", "record_blocklist"])
def test_what_may_be_written_is_tried_until_it_is_written_also_after_its_caller_got_a_reply(operation: str) -> None:
    async def scenario(bench: Bench) -> None:
        bench.store.before[operation] = [NO_REPLY, *[AWAY] * (SUBMISSION_TRIES - 1)]
        assert await getattr(bench, operation)()
        assert [(type(reply), reply.message) for reply in bench.replies] == [(UnknownOutcome, AWAY.message)]
        assert bench.replies[0].hint

    with_job(scenario)


def test_a_cancellation_is_recorded_at_the_last_try() -> None:
    async def scenario(bench: Bench) -> None:
        bench.store.before["record_cancel"] = [AWAY] * (SUBMISSION_TRIES - 1)
        await bench.record_cancel()

    with_job(scenario)


@pytest.mark.parametrize(
    ("failures", "written"),
    [
        ([FULL] * SUBMISSION_TRIES, False),
        ([FULL] * (SUBMISSION_TRIES - 1), True),
        ([AWAY] * 2 * SUBMISSION_TRIES, True),
        ([NO_REPLY, *[FULL] * SUBMISSION_TRIES], True),
    ],
)
def test_the_end_of_a_request_is_left_to_its_caller_only_if_it_was_certainly_not_written(
    failures: list[EmberkeepError], written: bool
) -> None:
    async def scenario(bench: Bench) -> None:
        bench.store.before["record_procedure_end"] = list(failures)
        assert (await bench.record_procedure_end() is not None) == written
        assert bench.store.before["record_procedure_end"] == []

    with_job(scenario)


@pytest.mark.parametrize("applied", [True, False])
def test_an_end_whose_reply_was_lost_counts_as_written_only_if_its_savepoint_is_in_the_store(applied: bool) -> None:
    """A newer attempt that another leader began may be recorded before the next try, which is refused then."""
    made = SavepointPointer(path="/s/1", manifest_sha256="a" * 64, created_ms=1, trigger_id=REQUEST.trigger_id)

    async def scenario(bench: Bench) -> None:
        await bench.record_procedure()
        (bench.store.after if applied else bench.store.before)["record_procedure_end"] = [NO_REPLY]
        ending = asyncio.ensure_future(
            bench.writes.record_procedure_end(JOB, 0, REQUEST.trigger_id, made, stopped=False)
        )
        while not bench.failed_at:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(STEP)
        await bench.record_attempt()
        pointers = await ending
        assert (pointers is not None and pointers.savepoints == (made,)) == applied

    with_job(scenario)


def test_the_number_of_an_attempt_that_may_be_written_is_not_used() -> None:
    async def scenario(bench: Bench) -> None:
        bench.store.before["record_attempt"] = [AWAY, NO_REPLY]
        assert await bench.record_attempt() is False
        assert bench.pauses == [0.1]
        assert await bench.record_attempt() is True

    with_job(scenario)


def test_an_attempt_that_an_earlier_try_has_adopted_is_no_conflict_while_this_leader_is_confirmed() -> None:
    async def scenario(bench: Bench) -> None:
        bench.store.after["record_attempt"] = [NO_REPLY]
        await bench.writes.adopt_attempt(JOB, 1)
        assert bench.store.handles == {JOB: 1}
        bench.store.before["confirm"] = [AWAY, Conflict("epoch 1 is over")]
        with pytest.raises(Conflict, match="epoch 1 is over"):
            await bench.writes.adopt_attempt(JOB, 1)

    with_job(scenario)


@pytest.mark.parametrize("operation", ["create", "record_procedure", "record_cancel"])
def test_what_may_be_written_is_not_called_undone_once_another_jobmanager_leads(operation: str) -> None:
    """The next leader may have found the record, so "try again, nothing has changed" could be wrong."""

    async def scenario(bench: Bench) -> None:
        bench.store.after[operation] = [NO_REPLY]
        writing = asyncio.ensure_future(getattr(bench, operation)())
        while not bench.failed_at:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(STEP)
        bench.store.disk.epoch += 1
        with contextlib.suppress(Conflict):
            assert not await writing
        assert type(bench.replies[0]) is UnknownOutcome
        assert bench.replies[0].hint

    with_job(scenario)
