"""The state of the cluster in one sentence, in the title and as an icon."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from emberkeep.jobmanager.views.cluster import JobView, TaskManagerView
from emberkeep.jobs.model import JobStatus
from emberkeep.watchdog.model import Alarm, AlarmKind
from emberkeep.web.health import Health, health
from tests.unit.rest.fake_gateway import FakeGateway, job_id, job_view, task_manager_view
from tests.unit.rest.server import Site, running_site

ALARM = Alarm(kind=AlarmKind.NO_COMMIT, query="", since_ms=1, message="nothing was committed")
JOB = job_view(job_id(1), "etl")
HERE = task_manager_view(2)
AWAY = msgspec.structs.replace(HERE, away=True)


@pytest.mark.parametrize(
    ("jobs", "task_managers", "expected"),
    [
        ([], [HERE], Health(tone="running", text="All is well: no job runs.")),
        ([JOB], [HERE], Health(tone="running", text="All is well: 1 job runs.")),
        ([JOB, JOB], None, Health(tone="running", text="All is well: 2 jobs run.")),
        (
            [],
            [],
            Health(tone="waiting", text="No task manager is registered.", short="no task manager is registered"),
        ),
        (
            [msgspec.structs.replace(JOB, waiting="2 slots")],
            [HERE, AWAY],
            Health(
                tone="waiting",
                text="1 task manager lost contact, 1 job waits.",
                short="1 task manager lost contact",
            ),
        ),
        (
            [msgspec.structs.replace(JOB, alarms=(ALARM,), waiting="2 slots"), JOB],
            [HERE],
            Health(tone="failed", text="1 job has an alarm.", short="1 job has an alarm"),
        ),
    ],
)
def test_what_needs_a_person_comes_first(
    jobs: list[JobView], task_managers: list[TaskManagerView] | None, expected: Health
) -> None:
    assert health(jobs, task_managers) == expected


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
    assert await head(site, "/") == ("1 job has an alarm · Overview · Emberkeep", "/static/icon-failed.svg")


async def test_each_state_has_an_icon(site: Site) -> None:
    for name in ("running", "waiting", "failed", "cancelled", "finished", "lost"):
        answer = await site.get(f"/static/icon-{name}.svg")
        assert (answer.status, answer.headers["Content-Type"]) == (200, "image/svg+xml; charset=utf-8")
