"""The state of the cluster in one sentence, in the title and as an icon."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from emberkeep.jobmanager.views.cluster import JobView, TaskManagerView
from emberkeep.jobmanager.views.election import ElectionView, ZooKeeperConnection
from emberkeep.jobmanager.views.jobs import brief_of
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.model import JobStatus
from emberkeep.watchdog.model import Alarm, AlarmKind
from emberkeep.web.health import ClusterFacts, Health, ProblemTimes, health, node_health
from tests.unit.rest.fake_gateway import NOW_MS, FakeGateway, job_id, job_view, task_manager_view
from tests.unit.rest.server import Site, running_site

ALARM = Alarm(kind=AlarmKind.NO_COMMIT, query="", since_ms=NOW_MS - 60_000, message="nothing was committed")
SINCE = "2026-11-18 11:05:40"  # the alarm's
JOB = job_view(job_id(1), "etl", pointers=JobPointers())
FAILED = job_view(job_id(2), "report", JobStatus.FAILED)
HERE = task_manager_view(2)
AWAY = msgspec.structs.replace(HERE, away=True)
FULL = msgspec.structs.replace(
    HERE,
    report=msgspec.structs.replace(HERE.report, disk_free_mb=2048),
    usage_since_ms=NOW_MS - 120_000,
    disk_low_since_ms=NOW_MS - 60_000,
)
ALONE = ElectionView(
    servers="zk:2181",
    connection=ZooKeeperConnection.CONNECTED,
    queue=("a:1",),
    queue_changed_ms=NOW_MS - 60_000,
    known=("a:1", "b:1"),
)


def facts(jobs: list[JobView], task_managers: list[TaskManagerView] | None = None, **changes: Any) -> ClusterFacts:
    briefs = list(map(brief_of, jobs))
    return ClusterFacts(now_ms=NOW_MS, jobs=briefs, task_managers=task_managers, address="a:1", **changes)


def changed(job: JobView, **changes: object) -> JobView:
    return msgspec.structs.replace(job, **changes)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (facts([], [HERE]), Health(tone="running", text="All is well: no job runs.")),
        (facts([JOB], [HERE]), Health(tone="running", text="All is well: 1 job runs.")),
        (facts([JOB, JOB]), Health(tone="running", text="All is well: 2 jobs run.")),
        (
            facts([], [], times=ProblemTimes(empty=NOW_MS - 60_000)),
            Health(
                tone="failed",
                text=f"No task manager is registered since {SINCE}.",
                short="no task manager is registered",
            ),
        ),
        (
            facts([changed(JOB, waiting="2 slots", waiting_since_ms=NOW_MS - 60_000)], [HERE, AWAY]),
            Health(
                tone="waiting",
                text=f"Job etl waits since {SINCE}: 2 slots; "
                "task manager tm-127.0.0.2-1 lost contact at 2026-11-18 11:06:38.",
                short="job etl waits",
            ),
        ),
        (
            facts([changed(JOB, alarms=(ALARM,), waiting="2 slots"), JOB], [HERE]),
            Health(
                tone="failed",
                text=f"Job etl has an alarm (since {SINCE}): nothing was committed.",
                short="job etl has an alarm",
            ),
        ),
        (
            facts([changed(JOB, alarms=(ALARM,)), changed(JOB, name="b", alarms=(ALARM,))], [HERE]),
            Health(
                tone="failed",
                text=f"2 jobs have an alarm, the first, etl, since {SINCE}.",
                short="2 jobs have an alarm",
            ),
        ),
        (
            facts([changed(JOB, status=JobStatus.RESTARTING, status_times_ms={JobStatus.RESTARTING: NOW_MS - 60_000})]),
            Health(
                tone="waiting",
                text=f"Job etl has been restarting since {SINCE}: the driver was killed by signal 9.",
                short="job etl has been restarting",
            ),
        ),
        (
            facts([JOB, FAILED]),
            Health(
                tone="failed",
                text=f"Job report has failed at {SINCE}: ValueError: no such airport: 'XXX'.",
                short="job report has failed",
            ),
        ),
        (
            facts([], [FULL, AWAY]),
            Health(
                tone="failed",
                text=f"The disk of node node-2 is nearly full since {SINCE}: 2 GiB are free; "
                "task manager tm-127.0.0.2-1 lost contact at 2026-11-18 11:06:38.",
                short="the disk of node node-2 is nearly full",
            ),
        ),
        (
            facts(
                [],
                [HERE],
                storage="it is another cluster's",
                election=ALONE,
                times=ProblemTimes(storage=NOW_MS - 60_000),
            ),
            Health(
                tone="waiting",
                text=f"Nothing is deleted in the storage since {SINCE}: it is another cluster's; "
                f"no JobManager stands by since {SINCE}: b:1 is away.",
                short="nothing is deleted in the storage",
            ),
        ),
        (
            facts(
                [changed(JOB, waiting="2 slots")],
                problem="the storage cannot be read",
                times=ProblemTimes(problem=NOW_MS - 60_000),
            ),
            Health(
                tone="failed",
                text=f"The JobManager cannot do all its work since {SINCE}: the storage cannot be read; "
                "job etl waits: 2 slots.",
                short="the JobManager cannot do all its work",
            ),
        ),
    ],
)
def test_what_needs_a_person_comes_first(found: ClusterFacts, expected: Health) -> None:
    assert msgspec.structs.replace(health(found), links=()) == expected


def test_a_reason_that_is_a_sentence_ends_once() -> None:
    alarmed = changed(JOB, alarms=(msgspec.structs.replace(ALARM, message="No commit."),))
    failed = changed(FAILED, root_cause="IllegalStateException: It is closed.")
    assert health(facts([alarmed, failed])).text == (
        f"Job etl has an alarm (since {SINCE}): No commit; "
        f"job report has failed at {SINCE}: IllegalStateException: It is closed."
    )


@pytest.mark.parametrize(
    ("found", "links"),
    [
        (facts([JOB], [HERE]), []),
        (
            facts([changed(JOB, alarms=(ALARM,)), FAILED]),
            [("etl", f"/jobs/{job_id(1)}"), ("report", f"/jobs/{job_id(2)}")],
        ),
        (facts([FAILED, changed(FAILED, name="b")]), [("FAILED jobs", "/jobs?state=FAILED")]),
        (facts([changed(JOB, waiting="2 slots")]), [("etl", f"/jobs/{job_id(1)}")]),
        (facts([], [FULL]), [("node-2", "/nodes/node-2")]),
        (facts([], [AWAY]), [("tm-127.0.0.2-1", "/taskmanagers/tm-127.0.0.2-1")]),
        (facts([], [AWAY, AWAY]), [("Silent task managers", "/taskmanagers?state=away")]),
        (facts([], [HERE], election=ALONE), [("Leadership", "/leadership")]),
    ],
)
def test_each_problem_leads_to_its_page(found: ClusterFacts, links: list[tuple[str, str]]) -> None:
    assert [(link.text, link.path) for link in health(found).links] == links


def test_the_first_of_several_is_named_with_its_time() -> None:
    other = changed(JOB, name="b", status=JobStatus.CREATED, status_times_ms={JobStatus.CREATED: NOW_MS - 60_000})
    waiting = [
        changed(JOB, waiting="2 slots", waiting_since_ms=NOW_MS - 1000),
        changed(other, waiting="a driver place"),
    ]
    assert health(facts(waiting)).text == f"2 jobs wait, the first, b, since {SINCE}: a driver place."
    later = msgspec.structs.replace(
        FULL, info=msgspec.structs.replace(FULL.info, node_id="node-3"), disk_low_since_ms=NOW_MS
    )
    assert health(facts([], [later, FULL])).text == (
        f"The disks of 2 nodes are nearly full, the first, on node-2, since {SINCE}: 2 GiB are free."
    )


def test_a_disk_that_was_full_when_its_history_began_may_have_been_so_before() -> None:
    full = msgspec.structs.replace(FULL, usage_since_ms=FULL.disk_low_since_ms)
    assert node_health([full]) == (f"The disk of node node-2 is nearly full since at least {SINCE}: 2 GiB are free.",)


def test_a_disk_without_room_is_full() -> None:
    report = msgspec.structs.replace(FULL.report, disk_free_mb=100)
    full = msgspec.structs.replace(FULL, report=report, disk_full=True)
    assert node_health([full]) == (f"The disk of node node-2 is full since {SINCE}: 100 MiB are free.",)


def test_the_storage_is_nearly_full_since_a_time() -> None:
    times = ProblemTimes(storage_low=NOW_MS - 60_000, storage_free=3 * 1024**3)
    assert health(facts([], [HERE], times=times)) == Health(
        tone="failed",
        text=f"The shared storage is nearly full since {SINCE}: 3 GiB are free.",
        short="the shared storage is nearly full",
    )


def test_a_job_that_failed_long_ago_needs_nobody() -> None:
    old = changed(FAILED, ended_ms=NOW_MS - 3_600_000)
    assert health(facts([old], [HERE])).tone == "running"


@pytest.mark.parametrize("queue", [("a:1", "b:1"), ()])
def test_a_leader_with_a_standby_and_one_that_was_always_alone_are_well(queue: tuple[str, ...]) -> None:
    election = msgspec.structs.replace(ALONE, queue=queue, known=queue)
    assert health(facts([], [HERE], election=election)).tone == "running"


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    gateway = FakeGateway()
    gateway.add(JOB, job_view(job_id(2), "done", JobStatus.FINISHED))
    gateway.add_task_managers(HERE)
    async with running_site(tmp_path, gateway) as running:
        yield running


async def head(site: Site, path: str) -> tuple[str, str]:
    """Return the title of a page and the address of its icon."""
    text = (await site.get(path)).body.decode()
    return (
        text.partition("<title>")[2].partition("</title>")[0],
        text.partition('<link rel="icon" id="icon" href="')[2].partition('"')[0],
    )


async def test_the_tab_of_a_job_says_its_state(site: Site) -> None:
    assert await head(site, f"/jobs/{job_id(1)}") == ("RUNNING · etl · Emberkeep", "/static/icon-running.svg")
    assert await head(site, f"/jobs/{job_id(2)}") == ("FINISHED · done · Emberkeep", "/static/icon-finished.svg")
    site.gateway.change(job_id(1), alarms=(ALARM,))
    assert await head(site, f"/jobs/{job_id(1)}") == ("ALARM · etl · Emberkeep", "/static/icon-failed.svg")


async def test_the_tab_of_the_overview_says_what_is_wrong(site: Site) -> None:
    assert await head(site, "/") == ("Overview · Emberkeep", "/static/icon-running.svg")
    site.gateway.change(job_id(1), alarms=(ALARM,))
    assert await head(site, "/") == ("Job etl has an alarm · Overview · Emberkeep", "/static/icon-failed.svg")
    assert f'Look at <a href="/jobs/{job_id(1)}">etl</a>.</p>' in (await site.get("/")).body.decode()


async def test_each_state_has_an_icon(site: Site) -> None:
    for name in ("running", "waiting", "failed", "cancelled", "finished", "lost"):
        answer = await site.get(f"/static/icon-{name}.svg")
        assert (answer.status, answer.headers["Content-Type"]) == (200, "image/svg+xml; charset=utf-8")
