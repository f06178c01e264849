"""The savepoint sensor."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, TaskDeferred

from airflow_provider.tests.conftest import Task
from emberkeep.jobs.model import JobStatus
from emberkeep_airflow.sensor import EmberkeepSavepointSensor, moment_ms
from tests.unit.airflow_provider.test_job_run import ONE, savepoint
from tests.unit.client.fake_job_manager import NOW, FakeJobManager, job_info

AFTER = datetime.fromtimestamp(NOW / 1000, UTC).isoformat()


def sensor(**given: Any) -> EmberkeepSavepointSensor:
    return EmberkeepSavepointSensor(task_id="savepoint", job="count", after=AFTER, **given)


@pytest.fixture(autouse=True)
def job(fake: FakeJobManager) -> None:
    fake.jobs[ONE] = job_info(ONE, name="count")


def test_a_sensor_finds_the_newest_savepoint(fake: FakeJobManager, task: Task) -> None:
    fake.savepoints = [savepoint("/s/old", NOW - 1)]
    assert not sensor().poke(task.context()).is_done
    fake.savepoints.append(savepoint("/s/new", NOW))
    found = sensor().poke(task.context())
    assert (found.is_done, found.xcom_value) == (True, "/s/new")
    assert sensor(deferrable=True).execute(task.context()) == "/s/new"


def test_a_sensor_defers(fake: FakeJobManager, task: Task) -> None:
    with pytest.raises(TaskDeferred) as caught:
        sensor(deferrable=True, poke_interval=7, timeout=70).execute(task.context())
    assert caught.value.trigger.serialize()[1] == {
        "emberkeep_conn_id": "emberkeep_default",
        "job": "count",
        "after_ms": NOW,
        "poll_interval": 7,
    }
    assert caught.value.timeout.total_seconds() == 70
    assert sensor().execute_complete(task.context(), {"savepoint": "/s/1"}) == "/s/1"
    with pytest.raises(AirflowException, match="it has ended"):
        sensor().execute_complete(task.context(), {"problem": "it has ended"})


def test_a_sensor_fails_for_a_job_that_makes_no_more(fake: FakeJobManager, task: Task) -> None:
    fake.jobs[ONE] = job_info(ONE, name="count", state=JobStatus.CANCELED)
    with pytest.raises(AirflowException, match="without such a savepoint"):
        sensor().poke(task.context())


def test_moments_have_zones() -> None:
    assert moment_ms("") == 0
    assert moment_ms("2026-01-01T00:00:00+01:00") == moment_ms("2025-12-31T23:00:00") == 1_767_222_000_000
    with pytest.raises(AirflowException, match="'yesterday' is not a moment"):
        moment_ms("yesterday")
