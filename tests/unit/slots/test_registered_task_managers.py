"""Registered task managers: whose report counts, and who is away or lost."""

from __future__ import annotations

import pytest

from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import InstanceId, TaskManagerId
from emberkeep.slots.ledger import DriverUse, HeldReport
from tests.unit.slots.test_slot_manager import LOST_AFTER, ORPHAN, Rig, info

TM = TaskManagerId("a")
SILENT = LOST_AFTER + 1.0


def away(rig: Rig) -> None:
    """A task manager with a job's driver is silent since second 0, and away since ``SILENT``."""
    registered = rig.add("a")
    job = rig.job()
    rig.report(registered, drivers=(DriverUse(job, 1, 512, live=True),))
    lapsed = rig.slots.task_managers.expire(SILENT, 0.0)
    assert ([each.id for each in lapsed.away], lapsed.lost) == ([TM], ())


def test_a_task_manager_is_away_while_it_is_silent_and_registered() -> None:
    rig = Rig()
    assert not rig.slots.task_managers.is_away(TM), "it is not registered"
    away(rig)
    assert rig.slots.task_managers.is_away(TM)
    rig.slots.task_managers.take_heartbeat(TM, InstanceId("a/1"), rig.sequences["a"], SILENT)
    assert not rig.slots.task_managers.is_away(TM)


def test_its_silence_counts_from_when_this_leader_could_hear_it() -> None:
    rig = Rig()
    away(rig)
    managers = rig.slots.task_managers
    assert managers.expire(ORPHAN + 50.0, None).lost == (), "it does not count now"
    assert managers.expire(ORPHAN + 50.0, 51.0).lost == ()
    assert [each.info.id for each in managers.expire(ORPHAN + 51.0, 51.0).lost] == [TM]


def test_its_own_last_message_counts_if_that_is_later() -> None:
    rig = Rig()
    away(rig)
    assert rig.slots.task_managers.expire(ORPHAN - 1.0, -50.0).lost == ()
    assert [each.info.id for each in rig.slots.task_managers.expire(ORPHAN, -50.0).lost] == [TM]


def test_a_further_task_manager_is_refused_unless_jobs_hold_something_there() -> None:
    rig = Rig(most_task_managers=2)
    rig.add("a")
    rig.add("b")
    with pytest.raises(
        RetryLater, match="2 task managers are registered, the most that this cluster accepts"
    ) as refused:
        rig.add("c")
    assert "jobmanager.max-task-managers" in (refused.value.hint or "")
    managers = rig.slots.task_managers
    assert [member.info.id for member in managers.all()] == ["a", "b"]
    rig.add("a")  # it is registered
    new = info("d")
    managers.register(new, HeldReport(1, (), (DriverUse(rig.job(), 1, 512, live=True),)), 0.0)
    assert [member.info.id for member in managers.all()] == ["a", "b", "d"]


def test_a_report_counts_once() -> None:
    rig = Rig()
    registered = rig.add("a")
    managers, job = rig.slots.task_managers, rig.job()
    driver = (DriverUse(job, 1, 512, live=True),)
    for sequence, drivers in ((5, driver), (5, ()), (4, ())):
        assert managers.take_report(TM, registered.instance, HeldReport(sequence, (), drivers), 1.0)
        member = managers.get(TM)
        assert member is not None
        assert (member.sequence, member.drivers) == (5, driver)
