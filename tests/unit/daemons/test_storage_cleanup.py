"""Storage shrinks with its jobs, and nothing that a job may still need goes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from emberkeep.base.config import Configuration
from emberkeep.base.errors import Conflict
from emberkeep.base.ids import JobId
from emberkeep.base.state_layout import StateLayout
from emberkeep.daemons import storage_cleanup
from emberkeep.daemons.storage_cleanup import entries, keep_storage_clean, remove_needless
from emberkeep.jobmanager.views import JobView
from emberkeep.jobs.model import JobStatus
from tests.unit.rest.fake_gateway import FakeGateway


def view(job_id: str, status: JobStatus) -> JobView:
    return JobView(
        job_id=JobId(job_id),
        name="job",
        status=status,
        submitted_ms=0,
        ended_ms=None,
        status_times_ms={},
        attempt=1,
        driver_task_manager=None,
        driver_pid=0,
        exit_code=None,
        root_cause="",
        waiting="",
        attempts=(),
        exceptions=(),
        graph=None,
        status_report=None,
        result=None,
    )


def test_checkpoints_go_with_jobs_that_cannot_run_again(tmp_path: Path) -> None:
    layout = StateLayout(tmp_path, Configuration())
    statuses = {status.value: status for status in JobStatus}
    for name in (*statuses, "unknown"):
        (layout.checkpoints / name / "q").mkdir(parents=True)
    listed = entries(layout.checkpoints)
    (layout.checkpoints / "accepted-by-the-next-leader").mkdir()
    remove_needless(listed, [view(name, status) for name, status in statuses.items()])
    left = {path.name for path in layout.checkpoints.iterdir()}
    assert left == {*statuses, "accepted-by-the-next-leader"} - {"FINISHED", "CANCELED"}


def test_a_storage_that_is_not_there_yet_is_clean(tmp_path: Path) -> None:
    assert entries(StateLayout(tmp_path / "absent", Configuration()).checkpoints) == []


@pytest.mark.req("HA-6")
@pytest.mark.anyio
async def test_a_deposed_leader_removes_no_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped between two looks, it goes on when its successor runs a job that it has never heard of."""
    monkeypatch.setattr(storage_cleanup, "_INTERVAL_SECONDS", 0.01)
    layout = StateLayout(tmp_path, Configuration())
    (layout.checkpoints / "of-the-successor").mkdir(parents=True)
    (layout.checkpoints / "over").mkdir()
    confirmations, leads = 0, False

    async def confirm() -> None:
        nonlocal confirmations
        confirmations += 1
        if not leads:
            raise Conflict("epoch 1 is over")

    gateway = FakeGateway()
    cleaning = asyncio.create_task(keep_storage_clean(gateway, layout, confirm))
    async with asyncio.timeout(120):
        while confirmations < 3:  # noqa: ASYNC110 - counted by the task itself
            await asyncio.sleep(0.01)
        assert len(entries(layout.checkpoints)) == 2
        leads = True
        while entries(layout.checkpoints):  # noqa: ASYNC110 - files tell nobody that they are gone
            await asyncio.sleep(0.01)
    cleaning.cancel()
    await asyncio.gather(cleaning, return_exceptions=True)
