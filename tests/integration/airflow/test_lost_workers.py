"""Lost worker processes of a real Airflow, and tasks that a person ends, while jobs run that nothing defers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobStatus
from tests.integration.airflow.airflow_site import AirflowSite, connection_to
from tests.integration.airflow.test_airflow import GATED
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until

pytestmark = [pytest.mark.integration, pytest.mark.long]

LOST, ENDED = ("process", "worker"), ("marked", "cleared")
TASKS = """
from datetime import datetime, timedelta
from airflow.sdk import DAG
from emberkeep_airflow.operator import EmberkeepSubmitOperator

with DAG(
    "etl",
    schedule="@once",
    start_date=datetime(2026, 1, 1),
    default_args={"retries": 3, "retry_delay": timedelta(seconds=1)},
):
    for name in NAMES:
        EmberkeepSubmitOperator(
            task_id=name, script="gated.py", arguments=[f"DIRECTORY/{name}.starts", "DIRECTORY/gate"], deferrable=False
        )
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """The jobs use no Spark, so no class archive is needed."""
    (tmp_path / "no-archives").mkdir()
    cluster = Cluster(Shell(tmp_path, tmp_path / "no-archives"))
    try:
        cluster.up(*QUICK, "-D", "taskmanager.driver-places=5")
        yield cluster
        cluster.cancel_all()
    finally:
        cluster.close()


@pytest.fixture
def airflow(cluster: Cluster, tmp_path: Path) -> Iterator[AirflowSite]:
    site = AirflowSite(tmp_path / "airflow", connection_to(cluster))
    (site.dags / "gated.py").write_text(GATED)
    (site.dags / "etl.py").write_text(TASKS.replace("DIRECTORY", str(tmp_path)).replace("NAMES", repr(LOST + ENDED)))
    try:
        site.up()
        yield site
    finally:
        site.close()


def starts(directory: Path, task: str) -> int:
    """How many jobs of the task have started."""
    file = directory / f"{task}.starts"
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_a_lost_worker_starts_no_second_job_and_a_person_ends_the_job_with_its_task(
    cluster: Cluster, airflow: AirflowSite, tmp_path: Path
) -> None:
    """SIGKILL to one process of a task, while the scheduler, the triggerer and the other tasks continue."""
    names = LOST + ENDED
    until(lambda: all(starts(tmp_path, name) for name in names), airflow.story)
    until(lambda: {airflow.tasks()[name]["state"] for name in names} == {"running"}, airflow.story)
    before = {name: airflow.tasks()[name]["try_number"] for name in names}
    job_of = {name: JobId(until(partial(airflow.job_id, name), airflow.story)) for name in names}

    airflow.lose_task("process", whole_worker=False)
    airflow.lose_task("worker", whole_worker=True)
    for name in LOST:
        until(lambda name=name: airflow.tasks()[name]["try_number"] > before[name], airflow.story)  # type: ignore[misc]
        until(lambda name=name: airflow.tasks()[name]["state"] == "running", airflow.story)  # type: ignore[misc]

    airflow.mark_failed("marked")
    airflow.clear("cleared")
    for name in ENDED:
        cluster.wait_for_end(job_of[name], JobStatus.CANCELED)
    until(lambda: starts(tmp_path, "cleared") == 2, airflow.story)

    (tmp_path / "gate").touch()
    for name in (*LOST, "cleared"):
        until(lambda name=name: airflow.tasks()[name]["state"] == "success", airflow.story)  # type: ignore[misc]
    for name in LOST:
        cluster.wait_for_end(job_of[name])
    assert airflow.tasks()["marked"]["state"] == "failed"
    assert {name: starts(tmp_path, name) for name in names} == {"process": 1, "worker": 1, "marked": 1, "cleared": 2}
    assert len(cluster.ask(lambda client: client.jobs())) == len(names) + 1
