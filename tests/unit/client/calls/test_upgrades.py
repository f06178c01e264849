"""The cancellation of an upgrade over connections that break."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from emberkeep.base.errors import Conflict
from emberkeep.base.ids import JobId
from emberkeep.client.rest_client import RestClient
from emberkeep.jobs.upgrades.model import UpgradePhase
from emberkeep.protocol.upgrades.rest_upgrades import UpgradeInfo
from tests.unit.client.fake_job_manager import FakeJobManager

JOB = JobId("a" * 32)


@pytest.fixture
def fake() -> Iterator[FakeJobManager]:
    with FakeJobManager().serving() as server:
        yield server


def upgrade(phase: UpgradePhase) -> UpgradeInfo:
    return UpgradeInfo(
        upgrade_id="1" * 32,
        phase=phase,
        text="in words",
        old_job=JOB,
        new_job=JobId("b" * 32),
        back_job=JobId("c" * 32),
        savepoint="/s/1",
        batches=3,
        within=600_000,
        restarts=2,
        began=1,
        phase_began=1,
        ended=0,
        reason="",
        canceled_by="",
    )


@pytest.mark.parametrize("status", [0, 504])
async def test_a_cancellation_whose_reply_was_lost_is_found_in_the_upgrade(fake: FakeJobManager, status: int) -> None:
    fake.upgrades[JOB] = upgrade(UpgradePhase.WATCHING)
    async with RestClient(fake.endpoint) as client:
        fake.unanswered = [status]
        state = await client.upgrades.cancel(JOB)
        assert (state.phase, state.canceled_by) == (UpgradePhase.CANCELLING, "ana")
        with pytest.raises(Conflict, match="too late"):  # this one was not lost
            await client.upgrades.cancel(JOB)


@pytest.mark.parametrize("status", [0, 504])
async def test_a_cancellation_that_was_too_late_is_a_conflict_all_the_same(fake: FakeJobManager, status: int) -> None:
    fake.upgrades[JOB] = upgrade(UpgradePhase.DONE)
    async with RestClient(fake.endpoint) as client:
        fake.unanswered = [status]
        with pytest.raises(Conflict, match="it was too late: the upgrade is DONE"):
            await client.upgrades.cancel(JOB)
