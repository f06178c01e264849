"""Commands that wait go on while no JobManager answers."""

from __future__ import annotations

import time

import pytest

from emberkeep.base.errors import RetryLater
from emberkeep.cli.cluster.task_manager_stop import end_task_manager
from emberkeep.cli.jobs.cancel import cancel_job
from emberkeep.cli.nodes import wait as node_wait
from emberkeep.cli.nodes.wait import wait_until_free
from emberkeep.cli.views import patience
from emberkeep.client.rest_client import RestClient
from emberkeep.jobs.model import JobStatus
from tests.unit.client.fake_job_manager import FakeJobManager, job_info, task_manager_info

Output = pytest.CaptureFixture[str]
A = "a1" * 16
OUTAGE = [503] * 3


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_PAUSE", 0.01)


async def test_a_cancelled_job_is_waited_for_although_the_leader_changes(fake: FakeJobManager, capfd: Output) -> None:
    fake.jobs = {A: job_info(A)}

    def cancelled(job_id: str, grace: str | None) -> None:
        fake.jobs[A] = job_info(A, state=JobStatus.CANCELED)
        fake.failures = list(OUTAGE)

    fake.on_cancel = cancelled
    async with RestClient(fake.endpoint, patience=0) as client:
        assert await cancel_job(client, job_info(A).jid, wait=True, kill=False) == 0

    err = capfd.readouterr().err
    assert err.count("told to fail; still waiting") == 1
    assert "CANCELED" in err


async def test_a_node_is_waited_for_although_the_leader_changes(
    fake: FakeJobManager, capfd: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_wait, "UNHEARD_SECONDS", 0.0)
    fake.failures = list(OUTAGE)
    async with RestClient(fake.endpoint, patience=0) as client:
        assert await wait_until_free(client, "node-1", task_manager=False)

        fake.failures = [503] * 1000
        with pytest.raises(RetryLater):
            await wait_until_free(client, "node-1", task_manager=False, patience=0.0)

    assert "no slot of node-1 is in use" in capfd.readouterr().err


async def test_the_end_of_a_task_manager_is_waited_for_although_the_leader_changes(
    fake: FakeJobManager, capfd: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.task_managers = [task_manager_info("tm-1")]
    async with RestClient(fake.endpoint, patience=0) as client:

        async def stopped(name: str, *, drain: float) -> None:
            fake.task_managers = []
            fake.failures = list(OUTAGE)

        monkeypatch.setattr(client, "stop_task_manager", stopped)
        await end_task_manager(client, "tm-1", drain=0.0, wait=True)

    assert "task manager tm-1 has ended" in capfd.readouterr().err


async def test_after_a_while_it_is_an_error(fake: FakeJobManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_UNREACHABLE_LIMIT", 0.0)
    fake.failures = list(OUTAGE)
    async with RestClient(fake.endpoint, patience=0) as client:
        with pytest.raises(RetryLater):
            await patience.Patience(time.monotonic() + 60).of(client.jobs)
