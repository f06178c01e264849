"""The triggers: what they report, and that they end nothing but on a user's order."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from airflow.triggers.base import BaseTrigger

from emberkeep.jobs.model import JobStatus
from emberkeep_airflow import triggers
from emberkeep_airflow.triggers import EmberkeepJobTrigger, EmberkeepSavepointTrigger
from tests.integration.conditions import until
from tests.unit.airflow_provider.test_job_run import ONE, savepoint
from tests.unit.client.fake_job_manager import NOW, FakeJobManager, job_info


def job_trigger(**given: Any) -> EmberkeepJobTrigger:
    return EmberkeepJobTrigger("emberkeep_default", ONE, 0.02, **given)


async def first_event(trigger: BaseTrigger) -> dict[str, Any]:
    events = [event async for event in trigger.run()]
    assert len(events) == 1
    payload: dict[str, Any] = events[0].payload
    return payload


def again(trigger: BaseTrigger) -> BaseTrigger:
    """Return the trigger as another triggerer makes it."""
    path, arguments = trigger.serialize()
    made: BaseTrigger = getattr(triggers, path.rpartition(".")[2])(**arguments)
    return made


@pytest.mark.parametrize("state", [JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED])
def test_the_end_of_a_job_fires(fake: FakeJobManager, state: JobStatus) -> None:
    fake.jobs[ONE] = job_info(ONE)

    async def run() -> dict[str, Any]:
        waiting = asyncio.create_task(first_event(again(job_trigger(deadline=time.time() + 600, cancel_on_kill=False))))
        await asyncio.to_thread(until, lambda: fake.requests.count(f"GET /v1/jobs/{ONE}") >= 3, "three looks")
        assert not waiting.done()
        fake.jobs[ONE] = job_info(ONE, state=state)
        return await waiting

    assert asyncio.run(run()) == {"job_id": ONE, "state": state.value}
    assert not fake.cancels


def test_no_pause_between_looks_is_no_deadline(fake: FakeJobManager) -> None:
    fake.jobs[ONE] = job_info(ONE)

    async def run() -> dict[str, Any]:
        waiting = asyncio.create_task(first_event(EmberkeepJobTrigger("emberkeep_default", ONE, 0.0)))
        await asyncio.to_thread(until, lambda: fake.requests.count(f"GET /v1/jobs/{ONE}") >= 2, "two looks")
        fake.jobs[ONE] = job_info(ONE, state=JobStatus.FINISHED)
        return await waiting

    assert asyncio.run(run()) == {"job_id": ONE, "state": "FINISHED"}


def test_the_deadline_fires(fake: FakeJobManager) -> None:
    fake.jobs[ONE] = job_info(ONE)
    assert asyncio.run(first_event(job_trigger(deadline=time.time()))) == {"job_id": ONE, "timed_out": True}


def test_a_job_that_the_cluster_does_not_know_fires(fake: FakeJobManager) -> None:
    assert "there is no job" in asyncio.run(first_event(job_trigger()))["problem"]


def test_a_leader_that_is_away_is_waited_for(fake: FakeJobManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triggers, "_PATIENCE", 0.0)
    fake.failures += [503, 503, 503]
    fake.jobs[ONE] = job_info(ONE, state=JobStatus.FINISHED)
    assert asyncio.run(first_event(job_trigger()))["state"] == "FINISHED"
    monkeypatch.setattr(triggers, "_SILENCE", 0.0)
    fake.failures += [503]
    assert "told to fail" in asyncio.run(first_event(job_trigger()))["problem"]


def test_a_user_who_ends_the_task_cancels_the_job(fake: FakeJobManager) -> None:
    fake.jobs[ONE] = job_info(ONE)
    asyncio.run(again(job_trigger(cancel_on_kill=False)).on_kill())
    assert not fake.cancels
    asyncio.run(again(job_trigger()).on_kill())
    assert fake.cancels == [(ONE, None)]


def test_a_triggerer_that_ends_cancels_nothing(fake: FakeJobManager) -> None:
    fake.jobs[ONE] = job_info(ONE)

    async def run() -> None:
        waiting = asyncio.create_task(first_event(job_trigger()))
        await asyncio.to_thread(until, lambda: fake.requests, "a look")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await job_trigger().cleanup()

    asyncio.run(run())
    assert not fake.cancels


def test_a_savepoint_fires(fake: FakeJobManager) -> None:
    fake.jobs[ONE] = job_info(ONE, name="count")
    trigger = again(EmberkeepSavepointTrigger("emberkeep_default", "count", NOW, 0.02))

    async def run() -> dict[str, Any]:
        waiting = asyncio.create_task(first_event(trigger))
        await asyncio.to_thread(until, lambda: fake.requests.count("GET /v1/savepoints") >= 2, "two looks")
        fake.savepoints = [savepoint("/s/1", NOW)]
        return await waiting

    assert asyncio.run(run()) == {"savepoint": "/s/1"}
    fake.jobs[ONE] = job_info(ONE, name="count", state=JobStatus.FAILED)
    fake.savepoints = []
    assert "without such a savepoint" in asyncio.run(first_event(trigger))["problem"]
