"""Jobs whose graphs cannot be read are read again: when, and until when."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from emberkeep.base.actors import Actor
from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import JobId
from emberkeep.jobmanager.jobs.unread_jobs import FIRST_PAUSE, LONGEST_PAUSE, UnreadJobs
from emberkeep.jobs.ports import StoredJob, Trouble
from tests.unit.jobmanager.cluster import in_virtual_time
from tests.unit.jobmanager.fakes import graph
from tests.unit.jobmanager.memory_store import FailingStore

A, B = graph(1).job_id, graph(2).job_id
AWAY = StoredJob(job_id=A, attempt=1, graph=None, trouble=Trouble.AWAY, problem="/graph cannot be read now")
READ = StoredJob(job_id=A, attempt=1, graph=graph(1))
OTHER = StoredJob(job_id=B, attempt=1, graph=None, trouble=Trouble.DAMAGED, problem="/graph is damaged")
Reply = StoredJob | RetryLater | None


class LongestPauses(random.Random):
    def random(self) -> float:
        return 1.0


class ScriptedStore(FailingStore):
    """Each read of a job gets the next of its replies; the last one repeats."""

    def __init__(self, replies: dict[JobId, list[Reply]]) -> None:
        super().__init__()
        self.replies = replies
        self.read_at: list[float] = []

    async def recover_job(self, job_id: JobId) -> StoredJob | None:
        self.read_at.append(asyncio.get_running_loop().time())
        replies = self.replies[job_id]
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        if isinstance(reply, RetryLater):
            raise reply
        return reply


class Bench:
    def __init__(self, **replies: list[Reply]) -> None:
        self.store = ScriptedStore({A: replies["a"], B: replies.get("b", [None])})
        self.taken: list[StoredJob] = []
        self.owner = Actor("owner")
        self.jobs = UnreadJobs(self.owner, self.store, LongestPauses(), self.taken.append)

    @property
    def pauses(self) -> list[float]:
        """Seconds before each read."""
        return [
            round(at - before, 6) for before, at in zip([0.0, *self.store.read_at], self.store.read_at, strict=False)
        ]


def reading(bench: Callable[[], Bench], scenario: Callable[[Bench], Awaitable[None]]) -> None:
    async def run() -> None:
        made = bench()
        tasks = [asyncio.create_task(made.owner.run()), asyncio.create_task(made.jobs.run())]
        try:
            await scenario(made)
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    in_virtual_time(run)


def test_a_job_is_read_at_growing_intervals_until_its_graph_is_there() -> None:
    async def scenario(bench: Bench) -> None:
        bench.jobs.add(A)
        await asyncio.sleep(300.0)
        assert bench.pauses == [1.0, 2.0, 4.0, 8.0, 16.0, LONGEST_PAUSE, LONGEST_PAUSE]
        assert bench.taken == [AWAY] * 5 + [READ], "an error of the store shows nothing"

    reading(lambda: Bench(a=[AWAY, AWAY, RetryLater("the store is away"), AWAY, AWAY, AWAY, READ]), scenario)


@pytest.mark.parametrize("found", [OTHER, None], ids=["damaged", "ended"])
def test_a_job_about_which_the_storage_has_answered_is_not_read_again_and_others_are_soon(
    found: StoredJob | None,
) -> None:
    async def scenario(bench: Bench) -> None:
        for job_id in (A, B):
            bench.jobs.add(job_id)
        await asyncio.sleep(8.5)
        assert [stored.job_id for stored in bench.taken] == [A, A, A, *([B] if found else []), A]
        assert bench.pauses == [1.0, 0.0, 2.0, 0.0, 4.0, 0.0, FIRST_PAUSE]

    reading(lambda: Bench(a=[AWAY], b=[RetryLater("away"), RetryLater("away"), found]), scenario)


def test_a_job_that_has_ended_in_the_meantime_is_not_read_again() -> None:
    async def scenario(bench: Bench) -> None:
        bench.jobs.add(A)
        await asyncio.sleep(100.0)
        assert (bench.taken, len(bench.store.read_at)) == ([], 1)
        bench.jobs.add(B)
        bench.jobs.forget(B)
        await asyncio.sleep(100.0)
        assert len(bench.store.read_at) == 1

    reading(lambda: Bench(a=[None]), scenario)
