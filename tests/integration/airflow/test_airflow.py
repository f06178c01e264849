"""The Airflow provider: its own tests, and DAGs of a real Airflow whose processes are killed while jobs run."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from emberkeep.client.clusters.discovery import local_endpoint
from emberkeep.jobs.model import JobStatus
from tests.integration.airflow.airflow_site import AirflowSite, airflow_python, connection_to, settings
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.streams import SCRIPT, Stream
from tools.locked_environment import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.long]

MAPPED = 2  # instances of the mapped task
GATED = """
import sys, time
from pathlib import Path
starts, gate = map(Path, sys.argv[1:])
with starts.open("a") as file:
    file.write("started\\n")
print("the job waits", flush=True)
while not gate.exists():
    time.sleep(0.1)
print("the job is done", flush=True)
"""
TASKS = """
from datetime import datetime, timedelta
from airflow.sdk import DAG
from emberkeep_airflow.operator import EmberkeepSubmitOperator
from emberkeep_airflow.sensor import EmberkeepSavepointSensor

with DAG(
    "etl",
    schedule="@once",
    start_date=datetime(2026, 1, 1),
    default_args={"retries": 3, "retry_delay": timedelta(seconds=1)},
):
    for name in ("waits", "defers", "ended"):
        EmberkeepSubmitOperator(
            task_id=name,
            script="gated.py",
            arguments=[f"DIRECTORY/{name}.starts", "DIRECTORY/{{ 'gate' if task.task_id != 'ended' else 'never' }}"],
            deferrable=name != "waits",
            poll_interval=0.5,
        )
    EmberkeepSubmitOperator.partial(task_id="mapped", script="gated.py", deferrable=True, poll_interval=0.5).expand(
        arguments=[[f"DIRECTORY/mapped-{index}.starts", "DIRECTORY/gate"] for index in range(MAPPED)]
    )
    EmberkeepSavepointSensor(task_id="saved", job="counts", poke_interval=0.5, deferrable=True)
"""


def test_the_providers_own_tests(tmp_path: Path) -> None:
    """Hook, operator, triggers and sensor over a JobManager's API, in Airflow's environment."""
    environment = settings(tmp_path) | {"AIRFLOW__CORE__UNIT_TEST_MODE": "True"}
    words = ("-c", "airflow_provider/pyproject.toml", "--rootdir", ".", "-q", "airflow_provider/tests")
    done = subprocess.run(
        [airflow_python(), "-m", "pytest", "-p", "no:cacheprovider", *words],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.fixture
def cluster(shell: Shell) -> Iterator[Cluster]:
    cluster = Cluster(shell)
    try:
        cluster.up(*QUICK, "--slots", "3", "-D", "taskmanager.driver-places=6")
        yield cluster
        cluster.cancel_all()
    finally:
        cluster.close()


@pytest.fixture
def stream(cluster: Cluster, tmp_path: Path) -> JobId:
    """The streaming job that the sensor looks at."""
    script = tmp_path / "counts.py"
    script.write_text(SCRIPT)
    return cluster.submit(script, "--name", "counts", arguments=(str(Stream(tmp_path / "counts").place),))


@pytest.fixture
def airflow(cluster: Cluster, stream: JobId, tmp_path: Path) -> Iterator[AirflowSite]:
    assert cluster.wait_for_executors(stream)
    site = AirflowSite(tmp_path / "airflow", connection_to(cluster))
    (site.dags / "gated.py").write_text(GATED)
    (site.dags / "etl.py").write_text(TASKS.replace("DIRECTORY", str(tmp_path)).replace("MAPPED", str(MAPPED)))
    try:
        site.up()
        yield site
    finally:
        site.close()


def test_lost_workers_schedulers_and_triggerers_start_no_second_job(
    cluster: Cluster, stream: JobId, airflow: AirflowSite, tmp_path: Path
) -> None:
    """SIGKILL to the scheduler with its worker processes, and to the triggerer, while five jobs and a sensor wait."""
    names, mapped = ("waits", "defers", "ended"), range(MAPPED)
    started = (*names, *(f"mapped-{index}" for index in mapped))
    until(lambda: all((tmp_path / f"{name}.starts").exists() for name in started), airflow.story)
    until(lambda: {airflow.tasks()[name]["state"] for name in names} == {"running", "deferred"}, airflow.story)
    until(lambda: airflow.tasks()["saved"]["state"] == "deferred", airflow.story)
    until(lambda: {airflow.tasks()[f"mapped[{index}]"]["state"] for index in mapped} == {"deferred"}, airflow.story)
    # On a busy machine Airflow may have taken a try for lost already.
    before = airflow.tasks()["waits"]["try_number"]
    watched = airflow.triggers_started("ended")
    for part in ("scheduler", "triggerer"):
        airflow.lose(part)
        airflow.start(part)
    # Airflow takes the lost worker's task for failed, and tries it again.
    until(lambda: airflow.tasks()["waits"]["try_number"] > before, airflow.story)
    until(lambda: airflow.tasks()["waits"]["state"] == "running", airflow.story)
    job_of = {name: JobId(until(partial(airflow.job_id, name), airflow.story)) for name in names}
    of_mapped = [JobId(until(partial(airflow.job_id, "mapped", index), airflow.story)) for index in mapped]
    assert len({*of_mapped}) == MAPPED, "each instance of a mapped task has a job of its own"
    assert {job.jid for job in cluster.ask(lambda client: client.jobs())} == {stream, *job_of.values(), *of_mapped}

    # A person ends the deferred task: the new triggerer cancels its job. While none runs the trigger, nobody would.
    until(lambda: airflow.triggers_started("ended") > watched, airflow.story)
    airflow.mark_failed("ended")
    cluster.wait_for_end(job_of["ended"], JobStatus.CANCELED)

    savepoint = cluster.shell.done("savepoint", "create", stream).out.strip()
    until(lambda: airflow.tasks()["saved"]["state"] == "success", airflow.story)
    assert airflow.of_task("saved", "xcomEntries/return_value")["value"] == savepoint

    (tmp_path / "gate").touch()
    for job_id in (job_of["waits"], job_of["defers"], *of_mapped):
        cluster.wait_for_end(job_id)
    well = ("waits", "defers", *(f"mapped[{index}]" for index in mapped))
    until(lambda: {airflow.tasks()[name]["state"] for name in well} == {"success"}, airflow.story)
    assert {name: (tmp_path / f"{name}.starts").read_text() for name in started} == dict.fromkeys(started, "started\n")
    assert len(cluster.ask(lambda client: client.jobs())) == 4 + MAPPED

    for name in ("waits", "defers"):
        last = airflow.tasks()[name]["try_number"]
        assert {"the job waits", "the job is done"} <= set(airflow.log(name, last)), airflow.story()
        result = airflow.of_task(name, "xcomEntries/return_value?deserialize=true")["value"]
        page = f"{local_endpoint(cluster.record, cluster.shell.state).url}/jobs/{job_of[name]}"
        assert (result["job_id"], result["state"], result["console_url"]) == (job_of[name], "FINISHED", page)
        assert airflow.of_task(name, "links")["extra_links"] == {"Emberkeep job": page}
