"""The pages: complete, escaped, and no script or style inside them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import TaskManagerId
from emberkeep.blocklist.model import BlockAction, BlockedNode, BlockedTaskManager
from emberkeep.chronicle.occurrence import Occurrence, What
from emberkeep.jobmanager.views.election import ElectionView, ZooKeeperConnection
from emberkeep.jobmanager.views.procedures import ProcedureView
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.model import Artefact, ArtefactRole, ExceptionEntry, JobStatus
from emberkeep.jobs.periodic.model import PeriodicSettings, PeriodicView
from emberkeep.jobs.progress.flows import FlowProgress
from emberkeep.lifecycle.model import Procedure, ProcedurePhase, ProcedureProgress, ProcedureRequest
from emberkeep.protocol.messages.job_master_reports import Scaling
from emberkeep.slots.model import Reclaim
from emberkeep.slots.reserved.choices import StandbyView
from emberkeep.watchdog.model import Alarm, AlarmKind
from tests.support.chronicle.memory import MemoryChronicle
from tests.support.contracts.job_store import batch, savepoint
from tests.unit.rest.fake_gateway import (
    FakeGateway,
    driver_report,
    job_id,
    job_view,
    query_of_files,
    recovery_trace,
    status_report,
    task_manager_view,
    wish_of,
)
from tests.unit.rest.server import Site, running_site

EVIL = """<script>alert(1)</script>"'><img src=x onerror=alert(2)>"""
PAGES = [
    "/",
    "/jobs",
    "/jobs?state=RUNNING",
    f"/jobs/{job_id(1)}",
    f"/jobs/{job_id(2)}",
    f"/jobs/{job_id(3)}",
    f"/jobs/{job_id(4)}",
    "/taskmanagers",
    "/nodes",
    "/savepoints",
    f"/savepoints?job={job_id(1)}&kind=unknown&text=script",
    "/nodes/node-2",
    "/events",
    "/events?type=leader-started",
    "/blobs",
    f"/blobs?job={job_id(1)}&state=referenced",
    "/leadership",
    f"/jobs/{job_id(1)}/events",
    f"/jobs/{job_id(1)}/events?type=exception",
    "/taskmanagers/tm-127.0.0.2-1",
    f"/jobs/{job_id(1)}/logs/tm-127.0.0.2-1~driver",
    f"/jobs/{job_id(1)}/logs",
    "/taskmanagers/tm-127.0.0.2-1/logs/taskmanager.log",
    "/jobmanager/logs/jobmanager.log",
]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    gateway = FakeGateway()
    query = status_report().queries[0]
    evil_report = status_report(
        queries=(msgspec.structs.replace(query, name=EVIL, status=EVIL, watermark=EVIL),), app_id=EVIL
    )
    evil_entry = ExceptionEntry(timestamp_ms=1, attempt=1, kind=EVIL, message=EVIL, traceback=EVIL, task_manager=EVIL)
    evil_pointers = JobPointers(
        queries=(msgspec.structs.replace(batch(41), query=EVIL, location=EVIL),),
        savepoints=(msgspec.structs.replace(savepoint(1), path=EVIL),),
    )
    gateway.add(
        job_view(
            job_id(1),
            EVIL,
            waiting=EVIL,
            root_cause=EVIL,
            exceptions=(evil_entry,),
            status_report=evil_report,
            pointers=evil_pointers,
        ),
        job_view(job_id(2), "etl", JobStatus.FINISHED),
        job_view(job_id(3), "waiting", JobStatus.CREATED, attempts=(), exceptions=(), status_report=None, attempt=0),
        job_view(job_id(4), "old", JobStatus.FAILED, graph=None),
    )
    gateway.add_task_managers(task_manager_view(2, drivers=(driver_report(job_id(1)),)))
    gateway.add_task_managers(task_manager_view(3), task_manager_view(4))
    for kind, name in ((BlockedNode, "node-2"), (BlockedNode, EVIL), (BlockedTaskManager, "tm-9")):
        entry = kind(id=name, action=BlockAction.MARK_BLOCKED, start_ms=1, end_ms=2**50, causes=(EVIL,))
        await gateway.block(entry, merge=False)
    gateway.election = ElectionView(
        servers=EVIL, connection=ZooKeeperConnection.SUSPENDED, queue=(gateway.address(), EVIL), known=(EVIL * 2,)
    )
    async with running_site(tmp_path, gateway) as running:
        await running.blobs.store_bytes(job_id(1), b"a message", [EVIL])
        note_events(running)
        yield running


def note_events(site: Site) -> None:
    """Give job 1 a life with two attempts, and the cluster two leaders."""
    chronicle = site.api.chronicle
    assert isinstance(chronicle, MemoryChronicle)
    for epoch in (2, 3):
        chronicle.begin(epoch, "store")
        chronicle.note(Occurrence(what=What.LEADER_STARTED, message=EVIL, details={"address": EVIL, "name": EVIL}))
    evil = partial(Occurrence, job_id=job_id(1), by=EVIL, message=EVIL, task_manager=EVIL)
    running, restarting = {"status": "RUNNING"}, {"status": "RESTARTING", "reason": EVIL}
    for what, attempt, details in (
        (What.SUBMITTED, 0, {}),
        (What.ATTEMPT_STARTED, 1, {}),
        (What.STATUS, 1, running),
        (What.ATTEMPT_ENDED, 1, {"cause": "lost"}),
        (What.STATUS, 1, restarting),
        (What.ATTEMPT_STARTED, 2, {}),
        (What.STATUS, 2, running),
        (What.SLOTS_MISSING, 2, {}),
        (What.EXCEPTION, 2, {}),
    ):
        chronicle.note(evil(what=what, attempt=attempt, details=details))


class Markup(HTMLParser):
    """Collects tags with attributes, and checks that they are balanced."""

    VOID = frozenset({"meta", "link", "img", "input", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        self.ids.extend(value for name, value in attributes if name == "id" and value)
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, (tag, self.getpos())


@pytest.mark.parametrize("path", PAGES)
async def test_a_wide_table_can_be_scrolled_with_the_keyboard(site: Site, path: str) -> None:
    """It can be focused itself, or something in it."""
    page = (await site.get(path)).body.decode()
    for table in re.findall(r'<div class="scroll">(.*?)</table>', page, re.DOTALL):
        assert "<a " in table or "<button" in table, table[:300]


@pytest.mark.parametrize("path", PAGES)
async def test_pages_hold_no_code_and_no_foreign_markup(site: Site, path: str) -> None:
    answer = await site.get(path)

    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert "unsafe" not in answer.headers["Content-Security-Policy"]
    page = Markup(answer.body.decode())
    assert len(page.ids) == len(set(page.ids))
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (tag, attributes)
        if tag == "script":
            assert (attributes.get("type"), (attributes["src"] or "")[:8]) == ("module", "/static/")
        if tag == "img":
            assert attributes["src"] == "/static/icon.svg"
        assert tag != "style"


@pytest.mark.parametrize(
    "path", ["/", "/jobs", f"/jobs/{job_id(1)}", "/taskmanagers/tm-127.0.0.2-1", "/blobs", "/leadership"]
)
async def test_names_from_outside_are_escaped(site: Site, path: str) -> None:
    text = (await site.get(path)).body.decode()

    assert "&lt;script&gt;alert(1)" in text
    assert "<script>alert" not in text
    assert "<img src=x" not in text


async def test_every_link_leads_somewhere(site: Site) -> None:
    for path in PAGES:
        page = Markup((await site.get(path)).body.decode())
        for _, attributes in page.tags:
            link = attributes.get("href") or attributes.get("src")
            if link is None or link.startswith("#") or "/logs/" in link or "%3Cscript" in link:
                continue  # logs are on task managers, which are not there; nor is the one with the evil name
            expected = 303 if "/spark-ui" in link else 200
            assert (await site.get(link)).status == expected, (path, link)


async def test_static_files_are_served_with_a_tag(site: Site) -> None:
    first = await site.get("/static/emberkeep.css")
    again = await site.get("/static/emberkeep.css", headers={"If-None-Match": first.headers["ETag"]})

    assert first.headers["Content-Type"].startswith("text/css")
    assert (again.status, again.body) == (304, b"")
    assert (await site.get("/static/pages.py")).status == 404


async def test_what_pages_load_exists(site: Site) -> None:
    for path in PAGES:
        text = (await site.get(path)).body.decode()
        for name in re.findall(r"/static/[\w.-]+", text):
            assert (await site.get(name)).status == 200, name


async def test_a_running_job_can_be_cancelled_and_is_followed(site: Site) -> None:
    running = (await site.get(f"/jobs/{job_id(1)}")).body.decode()
    ended = (await site.get(f"/jobs/{job_id(2)}")).body.decode()

    assert 'data-opens="cancel"' in running
    assert f'data-events="/v1/jobs/{job_id(1)}/events"' in running
    assert 'data-opens="cancel"' not in ended
    assert "data-events" not in ended


async def test_nothing_of_an_ended_job_is_shown_as_running(site: Site) -> None:
    site.gateway.add(job_view(job_id(1), "etl", JobStatus.CANCELED, status_report=status_report()))
    page = (await site.get(f"/jobs/{job_id(1)}")).body.decode()
    assert "<dd>0 running · " in page
    assert "0 of 3" not in page
    assert "0 of 11 Spark jobs active" in page


async def test_nothing_of_an_attempt_that_was_lost_is_shown_as_running(site: Site) -> None:
    site.gateway.add(job_view(job_id(1), "etl", JobStatus.RESTARTING, status_report=status_report()))
    page = (await site.get(f"/jobs/{job_id(1)}")).body.decode()
    assert "<dd>0 running · " in page
    assert "0 of 11 Spark jobs active" in page
    assert 'Executors <span class="tally">0 of 3' in page
    assert "Processing new data" not in page
    assert "0 of 3</td>" in (await site.get("/jobs?state=RESTARTING")).body.decode()


async def test_the_driver_of_an_attempt_that_has_ended_is_where_the_last_one_ran(site: Site) -> None:
    site.gateway.add(job_view(job_id(1), "etl"))
    path = f"/jobs/{job_id(1)}"
    assert "last on" not in (await site.get(path)).body.decode()

    first, newest = site.gateway.views[job_id(1)].attempts
    ended = (first, msgspec.structs.replace(newest, ended_ms=newest.started_ms + 1))
    site.gateway.change(job_id(1), status=JobStatus.RESTARTING, attempts=ended, driver_pid=0)

    assert "<dt>Driver</dt><dd>last on <a" in (await site.get(path)).body.decode()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"/jobs/{job_id(99)}", 404),
        ("/jobs/nonsense", 400),
        ("/jobs?state=SLEEPING", 400),
        ("/jobs?page=0", 400),
        ("/jobs?page=%EF%BC%91", 400),
        ("/taskmanagers/tm-9", 404),
        (f"/jobs/{job_id(1)}/logs?attempt=9", 404),
        (f"/jobs/{job_id(1)}/logs?attempt=last", 400),
        (f"/jobs/{job_id(1)}/spark-ui?attempt=9", 404),
    ],
)
async def test_errors_are_pages_too(site: Site, path: str, status: int) -> None:
    answer = await site.get(path)

    assert (answer.status, answer.headers["Content-Type"]) == (status, "text/html; charset=utf-8")
    assert b"This page cannot be shown" in answer.body


async def test_an_overloaded_job_manager_says_so(site: Site) -> None:
    site.gateway.refusal = RetryLater("the dispatcher is overloaded", hint="try again in a second")

    answer = await site.get("/")

    assert answer.status == 503
    assert b"try again in a second" in answer.body
    assert b"data-live data-heals" in answer.body, "the page asks again by itself"
    site.gateway.refusal = None
    assert b"data-live" not in (await site.get(f"/jobs/{job_id(99)}")).body


async def test_many_jobs_are_paged(site: Site) -> None:
    site.gateway.add(*(job_view(job_id(1000 + number), f"job-{number}", submitted_ms=number) for number in range(230)))

    first, last = await site.get("/jobs"), await site.get("/jobs?page=3")

    assert first.body.count(b'class="name"') == 100
    assert last.body.count(b'class="name"') == 234 - 200
    assert b'rel="next"' in first.body
    assert b'rel="next"' not in last.body
    assert b'rel="prev"' in last.body


async def test_of_many_running_jobs_the_overview_shows_those_that_need_a_person(site: Site) -> None:
    alarm = Alarm(kind=AlarmKind.NO_COMMIT, query="", since_ms=1, message="nothing was committed")
    site.gateway.add(
        *(job_view(job_id(1000 + number), f"well-{number}", submitted_ms=number) for number in range(60)),
        job_view(job_id(2001), "starved", waiting="2 slots of 1 core"),
        job_view(job_id(2002), "restarts", JobStatus.RESTARTING),
        job_view(job_id(2003), "stuck", alarms=(alarm,)),
    )
    page = (await site.get("/")).body.decode().partition('id="running"')[2]
    shown = re.findall(r'class="name" href="[^"]*">([^<]*)', page)
    assert shown[:2] == ["stuck", "restarts"]
    assert shown.index("starved") < min(shown.index(name) for name in shown if name.startswith("well"))


async def test_pages_of_an_empty_cluster(site: Site) -> None:
    site.gateway.views.clear()
    site.gateway.managers.clear()

    assert b"No job runs" in (await site.get("/")).body
    assert b"No task manager is registered" in (await site.get("/taskmanagers")).body


async def test_a_jobs_files_are_counted(site: Site) -> None:
    files = tuple(
        Artefact(role=ArtefactRole.FILE, name=name, sha256="0" * 64, size=size)
        for name, size in (("a", 1000), ("b", 536))
    )
    graph = site.gateway.views[job_id(1)].graph
    assert graph is not None
    site.gateway.change(job_id(1), graph=msgspec.structs.replace(graph, artefacts=files))

    page = (await site.get(f"/jobs/{job_id(1)}")).body.decode()

    assert "2 · 1.5 KiB" in page
    assert f"/blobs?job={job_id(1)}" in page


async def test_a_jobs_reserved_standby_is_shown(site: Site) -> None:
    for standby, shown in (
        (None, ""),
        (StandbyView(TaskManagerId("tm-2"), ""), 'tm-2</a> <span class="id">ready</span>'),
        (StandbyView(None, EVIL), '<span class="id">not ready: &lt;script&gt;alert(1)'),
    ):
        site.gateway.change(job_id(1), standby=standby)
        page = (await site.get(f"/jobs/{job_id(1)}")).body.decode()
        assert ("<dt>Standby</dt>" in page) is (standby is not None)
        assert shown in page


async def test_a_job_that_is_being_stopped_says_how_far_it_is(site: Site) -> None:
    request = ProcedureRequest(trigger_id="a" * 32, procedure=Procedure.DRAIN, target_directory=EVIL)
    told = ProcedureProgress(trigger_id="a" * 32, phase=ProcedurePhase.FINISHING_BATCHES, detail=EVIL)
    view = ProcedureView(job_id=job_id(1), trigger_id="a" * 32, request=request)
    for progress, savepoint_path, expected in (
        (None, "", "waits for the driver"),
        (told, "", "alert(1)"),
        (
            msgspec.structs.replace(told, phase=ProcedurePhase.COPYING, files_total=3, files_done=2),
            "",
            "copying 2 of 3",
        ),
        (told, EVIL, "is complete; the script runs to its end"),
    ):
        shown = msgspec.structs.replace(view, progress=progress, savepoint=savepoint_path)
        site.gateway.change(job_id(1), procedure=shown)
        page = (await site.get(f"/jobs/{job_id(1)}")).body.decode()
        assert "<strong>Drain and stop:</strong>" in page
        assert expected in page
        assert EVIL not in page
        assert 'data-opens="stop"' not in page
    site.gateway.change(job_id(1), procedure=None)
    assert 'data-opens="stop"' in (await site.get(f"/jobs/{job_id(1)}")).body.decode()


async def test_a_job_shows_its_alarms(site: Site) -> None:
    alarm = Alarm(kind=AlarmKind.NO_COMMIT, query=EVIL, since_ms=1, message=f"nothing was committed {EVIL}")
    site.gateway.change(job_id(1), alarms=(alarm, alarm))
    page = (await site.get(f"/jobs/{job_id(1)}")).body.decode()
    assert "nothing was committed" in page
    assert "no-commit" in page
    assert EVIL not in page


async def test_a_job_says_what_its_upgrade_does(site: Site) -> None:
    await site.gateway.upgrade(job_id(1), wish_of(site.gateway.views[job_id(1)]))
    page = (await site.get(f"/jobs/{job_id(1)}")).body.decode()
    assert "<dt>Upgrade</dt>" in page
    assert f"stopping job {job_id(1)[:8]} with a savepoint" in page


async def test_a_job_shows_what_dynamic_allocation_wants_and_who_leaves(site: Site) -> None:
    status = site.gateway.views[job_id(1)].status_report
    assert status is not None
    leaving, *others = status.executors
    executors = (msgspec.structs.replace(leaving, dismissed=True), *others)
    scaling = Scaling(wanted=1, minimum=0, maximum=4, changed_ms=1_700_000_000_000)
    site.gateway.change(job_id(1), status_report=msgspec.structs.replace(status, executors=executors, scaling=scaling))
    page = (await site.get(f"/jobs/{job_id(1)}")).body.decode()
    assert "dynamic allocation wants 1 since" in page
    assert "between 0 and 4" in page
    assert page.count("leaving: Spark needs fewer") == 1


async def test_a_job_shows_its_priority(site: Site) -> None:
    assert "<dt>Priority</dt>" not in (await site.get(f"/jobs/{job_id(1)}")).body.decode()
    site.gateway.change(job_id(1), priority=100, gang=True)
    page = (await site.get(f"/jobs/{job_id(1)}")).body.decode()
    assert "<dt>Priority</dt><dd>high (100)</dd>" in page
    assert "<dt>Gang</dt>" in page


@pytest.mark.req("RES-6")
@pytest.mark.parametrize(
    ("ceiling", "told"),
    [(2, "slots back, and keeps 2 of its executors"), (0, "all its slots back to others, and waits")],
)
async def test_a_job_shows_what_it_gives_back(site: Site, ceiling: int, told: str) -> None:
    status = site.gateway.views[job_id(1)].status_report
    assert status is not None
    order = Reclaim(ceiling=ceiling, reason="job 7 waits", whole=not ceiling)
    site.gateway.change(job_id(1), status_report=msgspec.structs.replace(status, reclaim=order))
    page = (await site.get(f"/jobs/{job_id(1)}")).body.decode()
    assert f"It gives {told}: job 7 waits." in page


async def test_a_pipeline_shows_its_flows_and_why_one_failed(site: Site) -> None:
    status = site.gateway.views[job_id(1)].status_report
    assert status is not None
    flows = (
        FlowProgress(name="shop.orders", state="COMPLETED", changed_ms=1_700_000_000_000, message="as planned"),
        FlowProgress(name=EVIL, state="FAILED", changed_ms=1_700_000_000_000, message=f"no column {EVIL}"),
    )
    assert "<h2>Flows</h2>" not in (await site.get(f"/jobs/{job_id(1)}")).body.decode()
    site.gateway.change(job_id(1), status_report=msgspec.structs.replace(status, flows=flows))
    page = (await site.get(f"/jobs/{job_id(1)}")).body.decode()
    assert "<h2>Flows</h2>" in page
    assert "shop.orders" in page
    assert "no column" in page
    assert "as planned" not in page
    assert EVIL not in page


async def test_a_job_shows_its_periodic_savepoints(site: Site) -> None:
    view = PeriodicView(
        settings=PeriodicSettings(interval=7200.0, retained=4, max_age=0.0),
        due_ms=1_700_000_000_000,
        newest_ms=0,
        kept=3,
        retiring=0,
        failures=1,
        problem=f"no space {EVIL}",
    )
    site.gateway.change(job_id(1), periodic=view)
    page = (await site.get(f"/jobs/{job_id(1)}")).body.decode()
    assert "every 2 h" in page
    assert "3 kept" in page
    assert "no space" in page
    assert EVIL not in page


async def test_a_job_shows_how_its_newest_attempt_started(site: Site) -> None:
    site.gateway.change(job_id(1), traces=(recovery_trace(), msgspec.structs.replace(recovery_trace(), why_cold=EVIL)))
    text = (await site.get(f"/jobs/{job_id(1)}")).body.decode()
    Markup(text)
    assert EVIL not in text
    section = text.partition('<section id="recovery"')[2].partition("</section>")[0]
    cells = re.findall(r"<td[^>]*>(.*?)</td>", section)
    assert cells == [
        *("detected", "0.00 s", "0.00 s"),
        *("placed", "1.25 s", "1.25 s"),
        *("process-started", "1.50 s", "0.25 s"),
        *("context-up", "4.00 s", "2.50 s"),
    ]


async def test_a_job_shows_what_its_attempt_has_done(site: Site) -> None:
    page = (await site.get(f"/jobs/{job_id(1)}")).body.decode()
    assert "4 running · 1\u202f238 done · 2 failed" in page
    assert "1\u202f238 of 1\u202f600 tasks done" in page
    assert "2.0 % in garbage collection" in page
    assert ">12.5 %<" in page, "of one executor"
    assert "count at flights.py:12" in page
    assert "Scan csv → &lt;Exchange&gt;" in page
    assert "38 of 400" in page
    assert "5.0 ×" in page
    assert ">shuffles: 3 MiB written, 2 MiB read<" in page
    assert ">4 MiB spilled to disk" in page
    assert ">2 MiB<" in page
    assert "about 1 min 48 s" in page, "of the stage"


async def test_the_time_that_is_left_is_said_of_a_batch_job_and_not_of_a_stream(site: Site) -> None:
    """Each micro-batch is a few Spark jobs, so what is left of them says nothing about the stream."""
    stream = (await site.get(f"/jobs/{job_id(1)}")).body.decode()
    site.gateway.add(job_view(job_id(9), "nightly", status_report=status_report(queries=())))
    batch = (await site.get(f"/jobs/{job_id(9)}")).body.decode()
    assert "left of the active Spark jobs" not in stream
    assert "about 58 s left of the active Spark jobs" in batch


async def test_a_stage_that_waits_for_a_slow_task_says_so(site: Site) -> None:
    report = status_report(queries=())
    assert report.work is not None
    (stage,) = report.work.stages
    waits = msgspec.structs.replace(stage, completed=399, active=1, running_ms=185_000, slowest_ms=185_000)
    work = msgspec.structs.replace(report.work, total_tasks=1239, active_tasks=1, stages=(waits,))
    site.gateway.add(job_view(job_id(9), "nightly", status_report=status_report(queries=(), work=work)))
    page = (await site.get(f"/jobs/{job_id(9)}")).body.decode()
    assert "unknown: a task has run for 3 min 5 s" in page
    assert "154.2 ×" in page
    assert "left of the active Spark jobs" not in page


async def test_a_stage_name_is_escaped(site: Site) -> None:
    report = status_report()
    assert report.work is not None
    (stage,) = report.work.stages
    evil = msgspec.structs.replace(report.work, stages=(msgspec.structs.replace(stage, name=EVIL, status=EVIL),))
    site.gateway.add(job_view(job_id(9), "evil", status_report=status_report(work=evil)))
    page = (await site.get(f"/jobs/{job_id(9)}")).body.decode()
    assert EVIL not in page
    assert "&lt;script&gt;alert(1)" in page


async def test_a_job_of_the_first_release_shows_no_stages(site: Site) -> None:
    site.gateway.add(job_view(job_id(9), "old driver", status_report=status_report(work=None)))
    page = (await site.get(f"/jobs/{job_id(9)}")).body.decode()
    assert "Median task" not in page


async def test_a_backlog_is_told_as_the_sources_count_it(site: Site) -> None:
    site.gateway.add(job_view(job_id(9), "files", status_report=status_report(queries=(query_of_files(),))))
    for number, backlog in ((1, "1\u202f200"), (9, "12 files, 2 KiB")):
        page = (await site.get(f"/jobs/{job_id(number)}")).body.decode()
        assert f'data-label="Backlog" class="num">{backlog}<' in page


async def test_a_job_has_a_place_for_the_history_of_its_queries(site: Site) -> None:
    page = Markup((await site.get(f"/jobs/{job_id(2)}")).body.decode())
    (section,) = [attributes for tag, attributes in page.tags if attributes.get("id") == "streams"]
    assert section["data-progress"] == f"/v1/jobs/{job_id(2)}/progress"
    assert "hidden" in section, "until there is a history"
    parts = {"stream-query", "stream-newest", "stream-problem", "stream-table", "stream-sources"}
    assert {"plots", "plot-legend", "plot-tools", "plot-spoken", *parts} <= set(page.ids)
    assert "data-live" not in section, "the plots stay when the page is refreshed"


async def test_the_plotting_library_is_served_with_its_licence(site: Site) -> None:
    for name, kind, text in (
        ("uplot.js", "text/javascript", "MIT Licensed"),
        ("uplot.css", "text/css", ".uplot"),
        ("uplot-licence.txt", "text/plain", "Leon Sorokin"),
    ):
        answer = await site.get(f"/static/{name}")
        assert (answer.status, answer.headers["Content-Type"]) == (200, f"{kind}; charset=utf-8")
        assert text in answer.body.decode()


async def test_scripts_load_only_scripts_that_exist(site: Site) -> None:
    served, waiting = (
        set[str](),
        {"live.js", "streams.js", "timeline.js", "logs.js", "job_actions.js", "log_view.js", "nodes.js"},
    )
    while waiting:
        name = waiting.pop()
        answer = await site.get(f"/static/{name}")
        assert answer.status == 200, name
        served.add(name)
        waiting |= set(re.findall(r"""(?:from|import\()\s*["']\./([a-z_]+\.js)["']""", answer.body.decode())) - served
    assert {"stream_plots.js", "stream_series.js", "plot_marks.js", "marks.js", "uplot.js"} <= served
