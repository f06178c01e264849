"""The capacity map: which job holds which slot of which node."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from emberkeep.base.ids import AllocationId, TaskManagerId
from emberkeep.jobmanager.views.cluster import Evacuation, TaskManagerView
from emberkeep.slots.model import Allocation
from emberkeep.watchdog.model import Alarm, AlarmKind
from emberkeep.web.capacity import MOST_JOBS, MOST_NODES, MOST_SLOTS, Run, capacity_map, job_mark
from tests.unit.rest.fake_gateway import PROFILE, FakeGateway, job_id, job_view, task_manager_view
from tests.unit.rest.server import Site, running_site

NOTHING_LEAVES = Evacuation(
    executors=0,
    executors_waiting=0,
    shuffle_blocks=0,
    cached_blocks=0,
    at_least=False,
    drivers_moving=0,
    drivers_staying=0,
)


def node(number: int, *holders: int, slots: int | None = None, **changes: object) -> TaskManagerView:
    """A task manager on its own node. ``holders``: the number of the job in each slot; 0 for none."""
    view = task_manager_view(2)
    allocations = tuple(
        Allocation(
            id=AllocationId(f"{number:016x}{index:016x}"),
            slot_index=index,
            job_id=job_id(holder),
            attempt=1,
            profile=PROFILE,
            job_master="127.0.0.2:41001",
        )
        for index, holder in enumerate(holders)
        if holder
    )
    info = msgspec.structs.replace(
        view.info,
        id=TaskManagerId(f"tm-{number}"),
        node_id=f"node-{number:03}",
        slots=len(holders) if slots is None else slots,
    )
    report = msgspec.structs.replace(view.report, allocations=allocations)
    return msgspec.structs.replace(view, info=info, report=report, **changes)


def test_neighbouring_slots_of_a_job_are_one_run() -> None:
    (shown,) = capacity_map([node(1, 7, 7, 0, 8)], {job_id(7): "etl"}).nodes
    etl = job_mark(job_id(7), "etl", 2)
    assert shown.runs == (
        Run(mark=etl, slots=2),
        Run(mark=None, slots=1),
        Run(mark=job_mark(job_id(8), "", 1), slots=1),
    )
    assert (shown.slots, shown.taken) == (4, 3)


def test_a_job_looks_the_same_wherever_it_is_shown() -> None:
    mark = job_mark(job_id(7))
    assert job_mark(job_id(7), "etl", 5).colour == mark.colour
    looks = {(one.colour, one.pattern) for one in (job_mark(job_id(n << 96)) for n in range(64))}
    assert looks == {(colour, pattern) for colour in range(1, 9) for pattern in range(1, 5)}


def test_nodes_that_need_attention_come_first() -> None:
    gone = msgspec.structs.replace(NOTHING_LEAVES, executors=2, shuffle_blocks=10, drivers_moving=1, left=3, total=5)
    shown = capacity_map(
        [
            node(1, 0),
            node(2, 0, away=True),
            node(3, 0, blocked=True),
            node(4, 7, blocked=True, evacuated=True, evacuation=gone),
        ],
        {},
    ).nodes
    assert [(one.node, one.state) for one in shown] == [
        ("node-002", "away"),
        ("node-003", "blocked"),
        ("node-004", "evacuated"),
        ("node-001", ""),
    ]
    assert shown[2].leaving == (
        "executors leaving: 2, with 10 shuffle and 0 cached blocks",
        "drivers moving: 1",
    )


def test_the_slots_of_all_task_managers_of_a_node_are_together() -> None:
    other = node(1, 0, 9)
    other = msgspec.structs.replace(other, info=msgspec.structs.replace(other.info, id=TaskManagerId("tm-b")))
    (shown,) = capacity_map([node(1, 9, 0), other], {}).nodes
    assert shown.task_managers == ("tm-1", "tm-b")
    assert [(run.mark is not None, run.slots) for run in shown.runs] == [(True, 1), (False, 2), (True, 1)]


def test_an_allocation_beyond_the_slots_is_not_drawn() -> None:
    (shown,) = capacity_map([node(1, 7, 7, 7, slots=2)], {}).nodes
    assert (shown.slots, shown.taken) == (2, 2)


def test_the_map_is_bounded_and_says_what_it_leaves_out() -> None:
    busiest = [1] * (MOST_SLOTS + 10)
    managers = [node(0, *busiest), *(node(n, 3 + n % 40) for n in range(1, 200))]
    shown = capacity_map(managers, {})
    assert (len(shown.nodes), shown.nodes_hidden) == (MOST_NODES, 200 - MOST_NODES)
    assert (len(shown.jobs), shown.jobs_hidden) == (MOST_JOBS, 41 - MOST_JOBS)
    assert shown.jobs[0] == job_mark(job_id(1), "", len(busiest))
    assert (sum(run.slots for run in shown.nodes[0].runs), shown.nodes[0].hidden) == (MOST_SLOTS, 10)


def kept_slot(job: int, index: int) -> Allocation:
    (found,) = node(9, *[0] * index, job, slots=8).report.allocations
    return msgspec.structs.replace(found, slot_index=index)


def test_a_slot_that_is_kept_for_a_job_that_restarts_is_not_free() -> None:
    (shown,) = capacity_map([node(1, 8, 0, 0, 0, kept=(kept_slot(7, 2),))], {job_id(7): "etl"}).nodes
    etl = job_mark(job_id(7), "etl", 0, 1)
    assert shown.runs == (
        Run(mark=job_mark(job_id(8), "", 1), slots=1),
        Run(mark=None, slots=1),
        Run(mark=etl, slots=1, kept=True),
        Run(mark=None, slots=1),
    )
    assert (shown.slots, shown.taken, shown.kept) == (4, 2, 1)
    assert capacity_map([node(1, 8, 0, kept=(kept_slot(7, 1),))], {job_id(7): "etl"}).jobs[-1] == etl


def test_kept_slots_whose_place_is_unknown_or_taken_are_drawn_where_there_is_room() -> None:
    nowhere = msgspec.structs.replace(kept_slot(7, 0), slot_index=-1)
    (shown,) = capacity_map([node(1, 8, 0, kept=(kept_slot(7, 0), nowhere))], {}).nodes
    assert [(run.kept, run.slots) for run in shown.runs] == [(False, 1), (True, 1)]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with running_site(tmp_path, FakeGateway()) as running:
        yield running


async def overview(site: Site) -> str:
    answer = await site.get("/")
    assert answer.status == 200
    return answer.body.decode()


async def test_each_cell_leads_to_its_job_and_each_node_to_its_page(site: Site) -> None:
    site.gateway.add(job_view(job_id(7), "etl"))
    site.gateway.add_task_managers(node(1, 7, 7, 0))
    text = await overview(site)
    (label,) = re.findall(rf'<a href="/jobs/{job_id(7)}" title="[^"]*" aria-label="([^"]*)">', text)
    assert label == f"etl {job_id(7)[:8]}: 2 slots"
    assert 'aria-label="1 free"' in text
    assert '<a class="name" href="/nodes/node-001">node-001</a>' in text


async def test_kept_slots_are_marked_with_their_job(site: Site) -> None:
    site.gateway.add(job_view(job_id(7), "etl"))
    site.gateway.add_task_managers(node(1, 7, 0, 0, kept=(kept_slot(7, 1),)))
    text = await overview(site)
    labels = re.findall(rf'<a href="/jobs/{job_id(7)}" title="[^"]*" aria-label="([^"]*)">', text)
    assert labels == [f"etl {job_id(7)[:8]}: 1 slot", f"etl {job_id(7)[:8]}: 1 slot kept for its restart"]
    assert "2 of 3 slots (1 kept)" in text
    assert ", 1 and 1 kept</li>" in text

    page = (await site.get("/taskmanagers/tm-1")).body.decode()
    assert re.search(rf'1 slot is kept for <a href="/jobs/{job_id(7)}">etl</a>, which restarts', page)


async def test_an_evacuated_node_that_is_empty_says_so(site: Site) -> None:
    site.gateway.add_task_managers(node(1, 0, blocked=True, evacuated=True, evacuation=NOTHING_LEAVES))
    text = await overview(site)
    assert "EVACUATED" in text
    assert "nothing runs here any longer" in text


async def test_a_large_cluster_is_shown_in_bounded_space(site: Site) -> None:
    alarm = Alarm(kind=AlarmKind.NO_COMMIT, query="", since_ms=1, message="nothing was committed")
    site.gateway.add(*(job_view(job_id(n), f"job-{n}", submitted_ms=n) for n in range(1, 1001)))
    site.gateway.change(job_id(5), alarms=(alarm,))
    site.gateway.add_task_managers(*(node(n, *(5 * n + k + 1 for k in range(5))) for n in range(200)))
    text = await overview(site)
    assert f"{200 - MOST_NODES} more nodes are not shown here" in text
    assert "950 more are not shown here" in text
    running = text.partition('<section id="running"')[2]
    assert re.findall(r'href="/jobs/([0-9a-f]{32})"', running)[0] == job_id(5), "what needs a person comes first"
    assert len(text) < 500_000
