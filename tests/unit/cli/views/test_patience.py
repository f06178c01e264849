"""Commands that wait go on while no JobManager answers."""

from __future__ import annotations

import time

import pytest

from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import JobId
from emberkeep.cli.cluster.task_manager_stop import end_task_manager
from emberkeep.cli.jobs.cancel import cancel_job
from emberkeep.cli.jobs.log_options import LogPrinting, LogReading
from emberkeep.cli.jobs.log_search import print_merged
from emberkeep.cli.jobs.logs import show_job_logs
from emberkeep.cli.nodes import wait as node_wait
from emberkeep.cli.nodes.wait import wait_until_free
from emberkeep.cli.views import patience
from emberkeep.cli.views.asked import Asked
from emberkeep.client.rest_client import RestClient
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol import rest_logs
from tests.unit.client.fake_job_manager import FakeJobManager, FakeLog, job_info, task_manager_info

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
        assert await cancel_job(client, job_info(A).jid, Asked(), wait=True, kill=False) == 0

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
        await end_task_manager(client, "tm-1", Asked(), drain=0.0, wait=True)

    assert "task manager tm-1 has ended" in capfd.readouterr().err


@pytest.mark.parametrize("selection", [{}, {"level": "warn"}], ids=["whole", "search"])
async def test_a_log_is_followed_although_the_leader_changes(
    fake: FakeJobManager, capfd: Output, monkeypatch: pytest.MonkeyPatch, selection: dict[str, str | list[str]]
) -> None:
    fake.jobs = {A: job_info(A)}
    fake.logs[A] = [FakeLog(1, "driver-stdout", b"26/01/31 18:00:00 WARN A: odd\n", complete=True)]
    printing = LogPrinting(LogReading(follow=True, byte_range="0-"), selection)
    async with RestClient(fake.endpoint, patience=0) as client:
        listed = client.logs.of_job

        async def then_lost(job_id: JobId) -> rest_logs.LogList:
            found = await listed(job_id)
            fake.failures = list(OUTAGE)
            return found

        monkeypatch.setattr(client.logs, "of_job", then_lost)
        await show_job_logs(client, JobId(A), printing, attempt=None, executor=None)

    out, err = capfd.readouterr()
    assert "WARN A: odd" in out
    assert err.count("told to fail; still waiting") == 1


async def test_merged_logs_are_followed_although_the_leader_changes(fake: FakeJobManager, capfd: Output) -> None:
    fake.jobs = {A: job_info(A)}
    fake.merged = [
        rest_logs.MergedLogRecords(
            attempt=1, records=[], previous="", next="", at_start=True, at_end=True, complete=True
        )
    ]
    fake.failures = list(OUTAGE)
    async with RestClient(fake.endpoint, patience=0) as client:
        await print_merged(client, JobId(A), None, LogPrinting(LogReading(follow=True), {}))
    assert capfd.readouterr().err.count("told to fail; still waiting") == 1


async def test_after_a_while_it_is_an_error(fake: FakeJobManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_UNREACHABLE_LIMIT", 0.0)
    fake.failures = list(OUTAGE)
    async with RestClient(fake.endpoint, patience=0) as client:
        with pytest.raises(RetryLater):
            await patience.Patience(time.monotonic() + 60).of(client.jobs)
