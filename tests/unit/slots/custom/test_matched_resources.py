"""Slots with custom resources: which task manager gives them, and what is said when none can."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.base.ids import TaskManagerId
from emberkeep.slots.custom.addresses import ResourceAddresses
from emberkeep.slots.custom.amounts import amounts
from emberkeep.slots.ledger import DriverNeed
from emberkeep.slots.model import ResourceProfile
from tests.unit.slots.test_slot_manager import Rig

pytestmark = pytest.mark.req("RES-1")

WITH_GPU = ResourceProfile(cores=1, memory_mb=1024, custom=amounts({"gpu": 1}))
TWO_GPUS = ResourceProfile(cores=4, memory_mb=8192, custom=amounts({"gpu": 2}))
NEED = DriverNeed(512, "")


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_only_task_managers_with_the_resource_give_slots_that_need_it(rig: Rig) -> None:
    rig.add("tm-1")
    rig.add("tm-2", total=TWO_GPUS)
    job_id = rig.job(4, WITH_GPU)
    found = rig.match()
    assert [allotted.info.id for allotted in found] == ["tm-2", "tm-2"]
    assert rig.slots.missing(job_id) == (
        "2 of 4 slots (1 core, 1024 MiB and 1 gpu each) are missing: 6 of 8 slots are free, but no task manager has "
        "1 core, 1024 MiB and 1 gpu free"
    )


def test_a_resource_is_given_again_when_a_report_shows_its_slot_no_longer(rig: Rig) -> None:
    registered = rig.add("tm-1", total=TWO_GPUS)
    first = rig.job(2, WITH_GPU)
    given = [allotted.allocation for allotted in rig.match()]
    rig.report(registered, *given)
    second = rig.job(1, WITH_GPU)
    assert not rig.match()
    rig.slots.jobs.end_attempt(first, 1, 0.0)
    assert not rig.match(), "the task manager still reports both slots"
    rig.report(registered, given[0])
    assert [allotted.allocation.job_id for allotted in rig.match()] == [second]


def test_slots_without_the_resource_do_not_take_it(rig: Rig) -> None:
    rig.add("tm-1", total=TWO_GPUS)
    rig.job(2)
    rig.match()
    rig.job(2, WITH_GPU)
    assert len(rig.match()) == 2


def test_a_job_that_asks_for_more_than_any_node_has_waits_with_the_reason(rig: Rig) -> None:
    rig.add("tm-1")
    rig.add("tm-2", total=TWO_GPUS)
    wanted = msgspec.structs.replace(WITH_GPU, custom=amounts({"gpu": 3}))
    job_id = rig.job(1, wanted)
    assert not rig.match()
    assert rig.slots.missing(job_id) == (
        "1 of 1 slot (1 core, 1024 MiB and 3 gpu) is missing: no task manager that is large enough offers 3 gpu "
        "(taskmanager.resources.*; offered: 2 gpu; none)"
    )
    assert rig.slots.obstacle(NEED, wanted) == (
        "no task manager that is large enough for an executor (1 core, 1024 MiB and 3 gpu) offers 3 gpu "
        "(taskmanager.resources.*; offered: 2 gpu; none)"
    )
    assert not rig.slots.obstacle(NEED, WITH_GPU)


def test_a_node_with_the_resource_may_be_too_small(rig: Rig) -> None:
    rig.add("tm-1", total=TWO_GPUS)
    wanted = msgspec.structs.replace(WITH_GPU, cores=5)
    assert rig.slots.obstacle(NEED, wanted).startswith("no task manager is large enough for an executor (5 cores")


def test_no_task_manager_is_started_for_a_resource_that_it_would_not_offer(rig: Rig) -> None:
    rig.job(1, WITH_GPU)
    rig.match()
    demand = rig.slots.supply().demand
    assert [requirement.profile for requirement, _ in demand.slots] == [WITH_GPU]
    assert TaskManagerId("tm-1") not in {each.id for each in rig.slots.supply().standing}


def test_what_a_task_manager_reports_reads_back_and_older_readers_see_their_shape() -> None:
    plain = msgspec.json.encode(ResourceProfile(cores=1, memory_mb=2))
    assert plain == b'{"cores":1,"memory_mb":2}'
    assert msgspec.json.decode(msgspec.json.encode(TWO_GPUS), type=ResourceProfile) == TWO_GPUS
    held = ResourceAddresses(name="gpu", addresses=("0",))
    assert msgspec.json.decode(msgspec.json.encode(held), type=ResourceAddresses) == held
