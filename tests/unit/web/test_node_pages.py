"""The page of a node: what runs there, why it is blocked, how far its evacuation is, and what has happened to it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest

from emberkeep.base.errors import Absent, Unavailable
from emberkeep.base.ids import TaskManagerId
from emberkeep.blocklist.model import BlockAction, BlockedNode, BlockedTaskManager, Blocklist
from emberkeep.chronicle.occurrence import Occurrence, What
from emberkeep.jobmanager.views.cluster import Evacuation, TaskManagerView
from emberkeep.jobmanager.views.evacuation import EvacuationCounts
from emberkeep.web.nodes import EvacuationProgress, JobOnNode, jobs_on, node_line, progress
from tests.support.chronicle.memory import MemoryChronicle
from tests.unit.rest.fake_gateway import FakeGateway, driver_report, job_id, job_view, task_manager_view
from tests.unit.rest.server import Site, running_site
from tests.unit.security.callers.test_owners_and_namespaces import TokenPerName, bearer
from tests.unit.web.test_capacity import NOTHING_LEAVES, node

NODE = "rack 1/node-001"


def leaving(executors: int, drivers: int) -> Evacuation:
    return msgspec.structs.replace(NOTHING_LEAVES, executors=executors, shuffle_blocks=3, drivers_moving=drivers)


def evacuated(*holders: int, drivers: int = 0, name: str = "tm-1") -> TaskManagerView:
    view = node(1, *holders, blocked=True, evacuated=True, evacuation=leaving(0, drivers))
    report = msgspec.structs.replace(
        view.report, drivers=tuple(driver_report(job_id(number)) for number in range(1, drivers + 1))
    )
    return msgspec.structs.replace(
        view, report=report, info=msgspec.structs.replace(view.info, id=TaskManagerId(name), node_id=NODE)
    )


class TestCounts:
    def test_what_has_moved_is_counted_from_the_begin_of_the_evacuation(self) -> None:
        counts = EvacuationCounts()
        seen = [
            progress(counts.counted([evacuated(*holders, drivers=drivers)]))
            for holders, drivers in (((7, 7, 8), 2), ((0, 7, 8), 1), ((0, 0, 0), 0))
        ]

        assert seen == [EvacuationProgress(moved=moved, total=5) for moved in (0, 2, 5)]
        assert [each.text for each in seen if each] == [
            "0 of 5 executors and drivers have moved",
            "2 of 5 executors and drivers have moved",
            "nothing runs here any longer",
        ]

    def test_a_driver_that_may_still_start_there_has_not_moved(self) -> None:
        view = msgspec.structs.replace(evacuated(0), evacuation=leaving(0, 1))

        assert progress(EvacuationCounts().counted([view])) == EvacuationProgress(moved=0, total=1)

    def test_another_evacuation_counts_anew(self) -> None:
        counts = EvacuationCounts()
        counts.counted([evacuated(7, 7)])
        assert progress(counts.counted([node(1, 7, 7)])) is None

        assert progress(counts.counted([evacuated(7, 0)])) == EvacuationProgress(moved=0, total=1)

    def test_a_look_at_one_task_manager_does_not_end_the_others(self) -> None:
        counts = EvacuationCounts()
        counts.counted([evacuated(7, 7), evacuated(8, name="tm-2")])
        counts.counted([evacuated(0, name="tm-2")], all_of_them=False)

        views = counts.counted([evacuated(0, 7), evacuated(0, name="tm-2")])

        assert progress(views) == EvacuationProgress(moved=2, total=3)


def test_the_jobs_of_a_node_are_listed_with_their_slots_and_drivers() -> None:
    views = [evacuated(7, 7, 8, drivers=1), evacuated(8, 8, name="tm-2")]

    assert jobs_on(views, {job_id(7): "etl", job_id(8): "ads"}) == [
        JobOnNode(job_id=job_id(8), name="ads", slots=3, drivers=0),
        JobOnNode(job_id=job_id(7), name="etl", slots=2, drivers=0),
        JobOnNode(job_id=job_id(1), name="", slots=0, drivers=1),
    ]


def test_a_node_that_nobody_knows_is_absent() -> None:
    with pytest.raises(Absent):
        node_line("node-9", Blocklist(), [task_manager_view(2)])


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    gateway = FakeGateway()
    gateway.add(job_view(job_id(7), "etl"))
    (view,) = EvacuationCounts().counted([evacuated(7, 7, drivers=1)])
    assert view.evacuation is not None
    view = msgspec.structs.replace(view, evacuation=msgspec.structs.replace(view.evacuation, total=5))
    gateway.add_task_managers(view, task_manager_view(2))
    entry = BlockedNode(
        id=NODE,
        action=BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS,
        start_ms=1,
        end_ms=2**50,
        causes=("its disk fails",),
    )
    await gateway.block(entry, merge=False)
    async with running_site(tmp_path, gateway) as running:
        chronicle = running.api.chronicle
        assert isinstance(chronicle, MemoryChronicle)
        chronicle.begin(3, "store")
        for number, (where, task_manager) in enumerate(((NODE, ""), ("node-2", ""), ("", "tm-1"), ("", "tm-9"))):
            chronicle.note(
                Occurrence(what=What.BLOCKED, message=f"event {number}", node=where, task_manager=task_manager)
            )
        yield running


async def text_of(site: Site, path: str) -> str:
    answer = await site.get(path)
    assert answer.status == 200
    return " ".join(re.sub(r"<[^>]+>", " ", answer.body.decode()).split())


async def test_the_page_of_a_node_shows_all_of_it(site: Site) -> None:
    path = f"/nodes/{quote(NODE, safe='')}"
    page = await site.get(path)
    text = await text_of(site, path)

    assert f"<h1>{NODE}</h1>" in page.body.decode()
    assert "EVACUATED" in text
    assert "its disk fails" in text
    assert "2 of 5 executors and drivers have moved" in text
    assert 'max="5" value="2" aria-label="Executors and drivers that have moved"' in page.body.decode()
    assert "drivers moving: 1" in text
    assert 'href="/taskmanagers/tm-1"' in page.body.decode()
    assert "2 of 2" in text, "slots of the job"
    assert "event 0" in text
    assert "event 2" in text, "of the node's task manager"
    assert "event 1" not in text
    assert "event 3" not in text
    assert 'data-unblocks="rack 1/node-001" data-kind="nodes" data-cause="its disk fails"' in page.body.decode()


async def test_lists_link_to_it_and_show_its_progress(site: Site) -> None:
    for path in ("/nodes", "/", "/taskmanagers", "/taskmanagers/tm-1"):
        assert 'href="/nodes/rack%201%2Fnode-001"' in (await site.get(path)).body.decode()
    for path in ("/nodes", "/"):
        assert "2 of 5 executors and drivers have moved" in await text_of(site, path)


async def test_a_blocked_node_can_be_evacuated_from_its_page(site: Site) -> None:
    assert "data-merges" not in (await site.get("/nodes/node-2")).body.decode()
    entry = BlockedNode(id="node-2", action=BlockAction.MARK_BLOCKED, start_ms=1, end_ms=2**50, causes=("x",))
    await site.gateway.block(entry, merge=False)

    assert (
        'data-blocks="node-2" data-kind="nodes" data-evacuates data-merges'
        in (await site.get("/nodes/node-2")).body.decode()
    )


async def test_the_page_is_useful_without_events(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unreadable(*_: object) -> None:
        raise Unavailable("the events cannot be read now")

    monkeypatch.setattr(site.api.chronicle, "read", unreadable)

    assert "the events cannot be read now" in await text_of(site, "/nodes/node-2")
    assert "the events cannot be read now" in await text_of(site, "/taskmanagers/tm-1")


async def test_the_page_of_a_task_manager_shows_its_events_and_those_of_its_node(site: Site) -> None:
    text = await text_of(site, "/taskmanagers/tm-1")

    assert [number for number in range(4) if f"event {number}" in text] == [0, 2]


async def test_pages_name_the_histories_that_are_plotted(site: Site) -> None:
    for path in ("/taskmanagers/tm-1", f"/nodes/{quote(NODE, safe='')}"):
        page = (await site.get(path)).body.decode()
        assert 'data-sources="/v1/taskmanagers/tm-1/usage "' in page
        assert "/static/usage.js" in page
        assert re.findall(r'data-mark="([^"]+)"', page) == ["blocked", "blocked"]


async def test_an_unknown_node_is_not_found(site: Site) -> None:
    assert (await site.get("/nodes/node-9")).status == 404


async def test_a_task_manager_is_blocked_evacuated_and_unblocked_on_its_page(site: Site) -> None:
    (name,) = (view.info.id for view in await site.gateway.task_managers() if view.info.node_id != NODE)
    path, button = f"/taskmanagers/{name}", f'data-blocks="{name}" data-kind="taskmanagers"'

    page = (await site.get(path)).body.decode()
    assert f"{button}>Block…" in page
    assert f"{button} data-evacuates>Evacuate…" in page

    entry = BlockedTaskManager(id=name, action=BlockAction.MARK_BLOCKED, start_ms=1, end_ms=2**50, causes=("noise",))
    await site.gateway.block(entry, merge=False)
    page = (await site.get(path)).body.decode()
    assert f"{button} data-evacuates data-merges>Evacuate…" in page
    assert f'data-unblocks="{name}" data-kind="taskmanagers" data-cause="noise"' in page
    assert "noise" in await text_of(site, path)


async def test_the_page_of_a_task_manager_says_why_its_node_gets_no_work(site: Site) -> None:
    assert f"Its node is blocked: {NODE}" in await text_of(site, "/taskmanagers/tm-1")
    assert "2 of 5 executors and drivers have moved" in await text_of(site, "/taskmanagers/tm-1")


async def test_only_operators_get_the_buttons(tmp_path: Path) -> None:
    gateway = FakeGateway()
    gateway.add_task_managers(task_manager_view(2))
    async with running_site(tmp_path, gateway, tokens=TokenPerName()) as site:
        for path in ("/nodes", "/nodes/node-2", "/taskmanagers/tm-127.0.0.2-1"):
            for name, sees in (("carol", False), ("olga", True)):
                answer = await site.get(path, headers=bearer(name))
                assert answer.status == 200
                assert (b"data-blocks" in answer.body) is sees, (path, name)
