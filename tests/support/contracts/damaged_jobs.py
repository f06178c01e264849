"""Contract of durable job stores for damaged records: a store keeps their bytes, for a person to inspect.

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
    """Durable storage under test."""

    def store(self) -> JobStore:
        """Return the store of a new JobManager process, not opened yet."""

    async def damage_attempt(self, job_id: JobId) -> bytes:
        """Truncate the record of a job's newest attempt and return the remaining bytes."""

    async def damage_pointers(self, job_id: JobId) -> bytes:
        """Truncate the record of a job's checkpoints and return the remaining bytes."""

    async def records(self, job_id: JobId) -> list[bytes]:
        """Return all stored records of a job that has ended, except its result."""


class DamagedJobsContract:
    """Tests of damaged records, in addition to ``JobStoreContract``."""

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
