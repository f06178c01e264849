"""What every durable job store must keep of jobs whose records were damaged: their bytes, for somebody to look at.

A test module gives a subclass of ``DamagedJobsContract`` a fixture ``place``.
"""

from __future__ import annotations

from typing import Protocol

import pytest

from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobStatus
from emberkeep.jobs.ports import JobStore, Trouble
from tests.support.contracts.job_store import batch, job, result_of


class DurablePlace(Protocol):
    """A durable place under test."""

    def store(self) -> JobStore:
        """A JobManager's view of it, not opened yet."""

    async def damage_attempt(self, job_id: JobId) -> bytes:
        """Tear the record of a job's newest attempt; returns what is left of it."""

    async def damage_pointers(self, job_id: JobId) -> bytes:
        """Tear the record of a job's checkpoints; returns what is left of it."""

    async def records(self, job_id: JobId) -> list[bytes]:
        """All records that the place holds of a job that is over, but its result."""


class DamagedJobsContract:
    """As for ``JobStoreContract``."""

    @pytest.mark.req("SAFE-3")
    async def test_the_bytes_of_a_damaged_attempt_are_kept(self, place: DurablePlace) -> None:
        store = place.store()
        await store.open()
        await store.create(job(1))
        await store.record_attempt(job(1).job_id, 1)
        torn = await place.damage_attempt(job(1).job_id)
        (stored,) = await store.recover()
        assert stored.trouble is Trouble.DAMAGED
        await store.record_result(result_of(job(1), JobStatus.FAILED))
        await store.expire_results(0)
        assert torn in await place.records(job(1).job_id)
        assert [kept.job_id for kept in await store.damaged()] == [job(1).job_id]
        await store.remove_damaged(job(1).job_id)
        assert await place.records(job(1).job_id) == []
        assert await store.damaged() == []
        await store.close()

    @pytest.mark.req("SAFE-3")
    @pytest.mark.parametrize("with_attempt", [False, True], ids=["alone", "with the attempt"])
    async def test_the_bytes_of_damaged_pointers_outlive_the_result(
        self, place: DurablePlace, with_attempt: bool
    ) -> None:
        store = place.store()
        await store.open()
        for number in (1, 2):
            await store.create(job(number))
            await store.record_checkpoints(job(number).job_id, 0, (batch(number),))
        torn = await place.damage_pointers(job(1).job_id)
        if with_attempt:
            await place.damage_attempt(job(1).job_id)
        for number in (1, 2):
            await store.record_result(result_of(job(number), JobStatus.FAILED))
        await store.expire_results(0)
        assert torn in await place.records(job(1).job_id)
        assert await place.records(job(2).job_id) == []
        (kept,) = await store.damaged()
        assert kept.job_id == job(1).job_id
        assert any("checkpoints" in lies for lies in kept.places)
        await store.remove_damaged(job(1).job_id)
        assert await place.records(job(1).job_id) == []
        assert await store.damaged() == []
        await store.close()
