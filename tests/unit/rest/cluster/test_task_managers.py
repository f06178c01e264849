"""Task managers as Flink's tools and ours read them."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.base.ids import TaskManagerId
from emberkeep.protocol.rest_task_managers import SlotHistory, TaskManagerDetails, UsageInfo
from emberkeep.slots.custom.addresses import ResourceAddresses
from emberkeep.slots.custom.amounts import amounts
from emberkeep.usage.history import Reading
from tests.unit.rest.fake_gateway import NOW_MS, FakeGateway, job_id, task_manager_view
from tests.unit.rest.server import Site


async def test_the_list_has_flinks_fields(site: Site) -> None:
    first = (await site.get("/v1/taskmanagers")).json()["taskmanagers"][0]

    assert first["id"] == "tm-127.0.0.2-1"
    assert (first["path"], first["dataPort"]) == ("127.0.0.2:40001", 40001)
    assert (first["slotsNumber"], first["freeSlots"]) == (2, 1)
    assert first["timeSinceLastHeartbeat"] == NOW_MS - 1200
    assert first["totalResource"] == {
        "cpuCores": 4.0,
        "taskHeapMemory": 8192,
        "taskOffHeapMemory": 0,
        "managedMemory": 0,
        "networkMemory": 0,
        "extendedResources": {},
    }
    assert first["hardware"]["physicalMemory"] == 8192 * 1024**2


async def test_slots_that_are_kept_for_jobs_that_restart_are_counted_by_job(site: Site) -> None:
    view = task_manager_view(5, taken=2)
    kept = tuple(
        msgspec.structs.replace(slot, job_id=job_id(number))
        for slot, number in zip(view.report.allocations * 2, (1, 2, 2), strict=False)
    )
    site.gateway.add_task_managers(msgspec.structs.replace(view, kept=kept))

    detail = msgspec.json.decode((await site.get(f"/v1/taskmanagers/{view.info.id}")).body, type=TaskManagerDetails)

    assert [(each.jid, each.slots) for each in detail.emberkeep.slots_kept] == [(job_id(1), 1), (job_id(2), 2)]


async def test_the_detail_shows_slots_and_drivers(site: Site) -> None:
    body = (await site.get("/v1/taskmanagers/tm-127.0.0.2-1")).body
    detail = msgspec.json.decode(body, type=TaskManagerDetails)

    assert [(slot.index, slot.job_id, slot.resource.cpu_cores) for slot in detail.allocated_slots] == [
        (0, job_id(1), 2.0)
    ]
    assert [(driver.jid, driver.pid) for driver in detail.emberkeep.drivers] == [(job_id(1), 4711)]
    assert (detail.emberkeep.driver_places_total, detail.emberkeep.driver_places_available) == (4, 3)


@pytest.mark.req("RES-1")
async def test_custom_resources_are_shown_with_who_has_them(site: Site, gateway: FakeGateway) -> None:
    view = task_manager_view(7)
    (slot,) = view.report.allocations
    gpus = ResourceAddresses(name="gpu", addresses=("0", "1"))
    with_gpus = msgspec.structs.replace(
        view,
        info=msgspec.structs.replace(
            view.info, total=msgspec.structs.replace(view.info.total, custom=amounts({"gpu": 2})), addresses=(gpus,)
        ),
        free_resources=msgspec.structs.replace(view.free_resources, custom=amounts({"gpu": 1})),
        report=msgspec.structs.replace(
            view.report,
            allocations=(msgspec.structs.replace(slot, addresses=(msgspec.structs.replace(gpus, addresses=("1",)),)),),
        ),
    )
    gateway.add_task_managers(with_gpus)
    body = (await site.get(f"/v1/taskmanagers/{view.info.id}")).body
    detail = msgspec.json.decode(body, type=TaskManagerDetails)
    assert (detail.total_resource.extended_resources, detail.free_resource.extended_resources) == (
        {"gpu": 2.0},
        {"gpu": 1.0},
    )
    assert [slot.addresses for slot in detail.allocated_slots] == [{"gpu": ["1"]}]
    page = (await site.get(f"/taskmanagers/{view.info.id}")).body.decode()
    assert "<dt>gpu free</dt><dd>1 of 2</dd>" in page
    assert '<td data-label="Resources">gpu 1</td>' in page


@pytest.mark.req("LOC-6")
async def test_one_can_be_told_to_end_and_its_work_be_given_time(site: Site, gateway: FakeGateway) -> None:
    assert (await site.request("POST", "/v1/taskmanagers/tm-127.0.0.2-1/stop")).status == 202
    assert (await site.request("POST", "/v1/taskmanagers/tm-127.0.0.2-1/stop?drain=60")).status == 202
    assert gateway.stopped == [("tm-127.0.0.2-1", 0.0), ("tm-127.0.0.2-1", 60.0)]
    assert (await site.request("POST", "/v1/taskmanagers/tm-127.0.0.2-1/stop?drain=-1")).problem().status == 400
    assert (await site.request("POST", "/v1/taskmanagers/tm-127.0.0.2-1/stop?drain=soon")).problem().status == 400
    assert (await site.request("POST", "/v1/taskmanagers/tm-9/stop")).problem().status == 404


async def test_an_unknown_task_manager_is_absent(site: Site) -> None:
    assert (await site.get("/v1/taskmanagers/tm-9")).problem().status == 404
    assert (await site.get("/v1/taskmanagers/tm-9/logs")).problem().status == 404


async def test_the_history_of_a_task_manager_is_read_in_parts(site: Site, gateway: FakeGateway) -> None:
    name = TaskManagerId("tm-127.0.0.2-1")
    assert msgspec.json.decode((await site.get(f"/v1/taskmanagers/{name}/usage")).body, type=UsageInfo) == UsageInfo(
        since=None,
        interval=10_000,
        memory_total_mb=16_384,
        disk_total_mb=102_400,
        samples=[],
        earlier_interval=300_000,
        earlier=[],
    )

    begin = NOW_MS - NOW_MS % 10_000
    load = Reading(cpu_percent=12.5, memory_used_mb=900, disk_free_mb=800, slots=2, slots_taken=2)
    for number in range(3):
        gateway.usages.note(name, load, begin + 10_000 * number)

    whole = (await site.get(f"/v1/taskmanagers/{name}/usage")).json()
    assert (whole["since"], len(whole["samples"])) == (begin, 3)
    assert (await site.get(f"/v1/taskmanagers/{name}/usage?after={begin + 19_999}")).json()["samples"] == [
        {
            "time": begin + 20_000,
            "cpu-percent": 12.5,
            "memory-used-mb": 900,
            "disk-free-mb": 800,
            "slots": 2,
            "slots-taken": 2,
        }
    ]

    gateway.usages.note(name, load, begin + 3_700_000)
    later = (await site.get(f"/v1/taskmanagers/{name}/usage")).json()
    assert [len(later[each]) for each in ("earlier", "samples")] == [1, 1]
    assert later["earlier"][0] == {
        "time": begin - begin % 300_000,
        "cpu-percent": 12.5,
        "memory-used-mb": 900,
        "disk-free-mb": 800,
        "slots": 2,
        "slots-taken": 2,
    }


async def test_the_history_of_all_slots_is_read_in_parts(site: Site, gateway: FakeGateway) -> None:
    nothing = SlotHistory(since=None, interval=10_000, samples=[], earlier_interval=300_000, earlier=[])
    assert msgspec.json.decode((await site.get("/v1/slots/usage")).body, type=SlotHistory) == nothing

    begin = NOW_MS - NOW_MS % 10_000
    for number, taken in enumerate((1, 7, 2)):
        gateway.usages.note_slots(8, taken, begin + 10_000 * number)
    whole = (await site.get("/v1/slots/usage")).json()
    assert whole["since"] == begin
    assert whole["samples"][0] == {"time": begin, "slots": 8, "slots-taken": 1}
    newest = (await site.get(f"/v1/slots/usage?after={begin + 19_999}")).json()["samples"]
    assert newest == [{"time": begin + 20_000, "slots": 8, "slots-taken": 2}]

    gateway.usages.note_slots(4, 0, begin + 3_700_000)
    later = (await site.get("/v1/slots/usage")).json()
    assert later["samples"] == [{"time": begin + 3_700_000, "slots": 4, "slots-taken": 0}]
    assert later["earlier"] == [{"time": begin - begin % 300_000, "slots": 8, "slots-taken": 7}]


@pytest.mark.parametrize(("path", "status"), [("tm-9/usage", 404), ("tm-127.0.0.2-1/usage?after=x", 400)])
async def test_a_history_that_is_not_there_is_refused(site: Site, path: str, status: int) -> None:
    assert (await site.get(f"/v1/taskmanagers/{path}")).status == status
