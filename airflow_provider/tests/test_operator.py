"""The operator: tries, retries, results, kills and deferral of a task."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowTaskTimeout, TaskDeferred

from airflow_provider.tests.conftest import Task
from emberkeep.jobs.model import JobStatus
from emberkeep.lifecycle.model import Procedure, ProcedurePhase
from emberkeep.protocol.rest_jobs import ProcedureInfo
from emberkeep_airflow.operator import UNREPORTED, EmberkeepSubmitOperator
from tests.unit.client.fake_job_manager import FakeJobManager, FakeLog, job_info


def operator(**given: Any) -> EmberkeepSubmitOperator:
    return EmberkeepSubmitOperator(task_id="count", script="jobs/count.py", poll_interval=0.02, **given)


def ends(fake: FakeJobManager, state: JobStatus = JobStatus.FINISHED, **own: Any) -> Callable[[str], None]:
    """Let a job end at once, with some output."""

    def end(job_id: str) -> None:
        fake.logs[job_id] = [
            FakeLog(1, "driver-stdout", b"result\n", complete=True),
            FakeLog(1, "driver-stderr", b"a warning", complete=True),
        ]
        fake.jobs[job_id] = job_info(job_id, state=state, **own)

    return end


def deferred(task: Task, **given: Any) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as caught:
        operator(deferrable=True, **given).execute(task.context())
    return caught.value


def logged(capsys: pytest.CaptureFixture[str], *lines: str) -> bool:
    """True if the task's log has the lines; Airflow writes it to standard output here."""
    written = capsys.readouterr().out
    return all(re.search(rf"] {re.escape(line)}\s+\[airflow\.task", written) for line in lines)


def test_a_script_runs_and_its_output_is_in_the_tasks_log(
    fake: FakeJobManager, task: Task, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.on_submit = ends(fake, exit_code=0)
    context = task.context()
    result = operator().execute(context)
    (job_id,) = fake.jobs
    page = f"{fake.url}/jobs/{job_id}"
    assert result == {"job_id": job_id, "state": "FINISHED", "exit_code": 0, "savepoint": "", "console_url": page}
    assert context["ti"].xcoms == {"job_id": job_id, "console_url": page}
    assert logged(capsys, "result", "a warning", f"job {job_id} is FINISHED")
    assert task.store[UNREPORTED] == f"{job_id} 0"


def test_everything_that_describes_the_job_is_submitted(fake: FakeJobManager, folder: Path) -> None:
    fake.on_submit = ends(fake)
    for name in ("lib.zip", "table.csv", "env.tar.gz", "udf.jar"):
        (folder / name).write_bytes(name.encode())
    task = Task(folder, map_index=3)
    operator(
        arguments=["--day", 7],
        conf={"spark.executor.instances": 4, "spark.sql.ansi.enabled": True},
        options={"restart-strategy.type": "none"},
        py_files=["lib.zip"],
        files=["table.csv"],
        archives=["env.tar.gz#env"],
        jars=["udf.jar"],
        secrets={"DB_PASS": "{{ ds }}-pass"},
        namespace="etl",
        from_savepoint="s3://bucket/savepoint",
        python="3.12",
    ).execute(task.context())
    (sent,) = fake.submissions
    assert (sent.name, sent.arguments, sent.namespace) == ("etl.count[3]", ["--day", "7"], "etl")
    assert (sent.savepoint, sent.python, sent.secrets) == (
        "s3://bucket/savepoint",
        "3.12",
        {"DB_PASS": "2026-11-26-pass"},
    )
    assert sent.options == {"restart-strategy.type": "none"}
    assert sent.spark_conf["spark.executor.instances"] == "4"
    assert sent.spark_conf["spark.sql.ansi.enabled"] == "true"
    assert [each.name for each in sent.artefacts] == ["count.py", "lib.zip", "table.csv", "env.tar.gz", "udf.jar"]
    assert sent.working_directory == str(folder)


def test_secrets_are_no_template_fields_which_airflow_stores_and_shows() -> None:
    assert "secrets" not in EmberkeepSubmitOperator.template_fields
    assert {"script", "arguments", "conf", "options"} <= set(EmberkeepSubmitOperator.template_fields)


def test_secrets_are_text_also_in_a_dag_whose_templates_become_python_objects(fake: FakeJobManager, task: Task) -> None:
    fake.on_submit = ends(fake)
    with DAG("etl", render_template_as_native_obj=True):
        secrets = {"PIN": "{{ ds[:4] }}0815", "KEY": "{{ '1e5' }}"}
        operator(secrets=secrets).execute(task.context())
    assert fake.submissions[0].secrets == {"PIN": "20260815", "KEY": "1e5"}


def test_a_module_runs_too(fake: FakeJobManager, task: Task) -> None:
    fake.on_submit = ends(fake)
    EmberkeepSubmitOperator(task_id="count", module="etl.count", name="mine").execute(task.context())
    assert (fake.submissions[0].entry_point.name, fake.submissions[0].name) == ("etl.count", "mine")


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"script": "jobs/missing.py"}, "missing.py does not exist"),
        ({"script": ""}, "either script or module"),
        ({"script": "jobs/count.py", "options": {"rest.port": 1}}, "rest.port"),
        ({"script": "jobs/count.py", "secrets": {"PIN": 815}}, "the secret PIN is not text"),
    ],
)
def test_what_cannot_be_submitted_is_refused_with_the_reason(
    fake: FakeJobManager, task: Task, given: dict[str, Any], what: str
) -> None:
    with pytest.raises(AirflowException, match=what):
        EmberkeepSubmitOperator(task_id="count", **given).execute(task.context())
    assert not fake.submissions
    assert task.store == {}


def test_the_retry_after_a_lost_worker_takes_over_the_live_job(fake: FakeJobManager, task: Task) -> None:
    deferred(task)  # a worker has submitted, and nothing else of this try is known
    (job_id,) = fake.jobs
    fake.on_submit = ends(fake)
    ends(fake)(job_id)  # in the meantime
    assert operator().execute(task.context())["job_id"] == job_id
    assert len(fake.submissions) == 1


def test_a_retry_takes_over_a_job_that_runs_even_if_airflows_store_is_lost(fake: FakeJobManager, task: Task) -> None:
    first = deferred(task)
    task.store.clear()
    assert deferred(task).trigger.serialize() == first.trigger.serialize()
    assert len(fake.submissions) == 1


def test_the_retry_after_a_failed_job_starts_a_new_one(fake: FakeJobManager, task: Task) -> None:
    fake.on_submit = ends(fake, JobStatus.FAILED, root_cause="division by zero")
    with pytest.raises(AirflowException, match="division by zero"):
        operator().execute(task.context())
    fake.on_submit = ends(fake)
    result = operator().execute(task.context())
    assert [each.jobid[-8:] for each in fake.submissions] == ["00000001", "00000002"]
    assert result["job_id"] == fake.submissions[1].jobid


def test_a_task_that_is_cleared_after_a_success_starts_a_new_job(fake: FakeJobManager, task: Task) -> None:
    fake.on_submit = ends(fake)
    jobs = []
    for _ in range(3):
        jobs.append(operator(retries=2).execute(task.context(retries=2))["job_id"])
        task.clear()
    assert jobs == [each.jobid for each in fake.submissions]
    assert len(set(jobs)) == 3


@pytest.mark.parametrize("times_cleared", [0, 1])
def test_a_retry_takes_the_result_of_a_worker_that_was_lost_before_airflow_recorded_it(
    fake: FakeJobManager, task: Task, times_cleared: int
) -> None:
    fake.on_submit = ends(fake)
    for _ in range(times_cleared):
        operator(retries=2).execute(task.context(retries=2))
        task.clear()
    jobs = {operator(retries=2).execute(task.context(retries=2))["job_id"] for _ in range(2)}
    assert jobs == {fake.submissions[-1].jobid}
    assert len(fake.submissions) == times_cleared + 1


def test_mapped_tasks_have_jobs_of_their_own(fake: FakeJobManager, folder: Path) -> None:
    fake.on_submit = ends(fake)
    for index in range(2):
        operator().execute(Task(folder, index).context())
    assert [each.name for each in fake.submissions] == ["etl.count[0]", "etl.count[1]"]
    assert fake.submissions[0].jobid[:24] != fake.submissions[1].jobid[:24]


def test_a_job_that_a_person_cancels_is_not_tried_again(fake: FakeJobManager, task: Task) -> None:
    fake.on_submit = ends(fake, JobStatus.CANCELED)
    with pytest.raises(AirflowFailException, match="not tried again"):
        operator().execute(task.context())


def test_a_stream_that_is_stopped_reports_its_savepoint(fake: FakeJobManager, task: Task) -> None:
    stopped = ProcedureInfo(
        trigger_id="t",
        procedure=Procedure.SUSPEND,
        phase=ProcedurePhase.COMPLETED,
        detail="",
        waiting="",
        target_directory="s3://bucket",
        files_done=1,
        files_total=1,
        bytes_done=1,
        bytes_total=1,
        requested=1,
        started=1,
        ended=2,
        duration=1,
        location="s3://bucket/savepoint-1",
        manifest_sha256="",
        job_status=JobStatus.FINISHED,
    )
    fake.on_submit = ends(fake, procedure=stopped)
    assert operator().execute(task.context())["savepoint"] == "s3://bucket/savepoint-1"


def test_an_accepted_job_is_enough_without_wait(fake: FakeJobManager, task: Task) -> None:
    assert operator(wait=False).execute(task.context())["state"] == "RUNNING"
    assert operator(wait=False).execute(task.context())["job_id"] == fake.submissions[0].jobid
    assert len(fake.submissions) == 1


def test_a_task_defers_and_continues_with_the_ended_job(
    fake: FakeJobManager, task: Task, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = deferred(task)
    (job_id,) = fake.jobs
    assert waiting.method_name == "execute_complete"
    assert waiting.trigger.serialize() == (
        "emberkeep_airflow.triggers.EmberkeepJobTrigger",
        {
            "emberkeep_conn_id": "emberkeep_default",
            "job_id": job_id,
            "poll_interval": 0.02,
            "deadline": None,
            "cancel_on_kill": True,
        },
    )
    assert task.store == {UNREPORTED: job_id}
    ends(fake)(job_id)
    result = operator(deferrable=True).execute_complete(task.context(), {"job_id": job_id, "state": "FINISHED"})
    assert result["state"] == "FINISHED"
    assert logged(capsys, "result")
    assert task.store == {UNREPORTED: f"{job_id} 0"}


def test_a_deferred_task_has_its_timeout_too(fake: FakeJobManager, task: Task) -> None:
    before = time.time()
    limit = timedelta(seconds=60)
    deadline = deferred(task, execution_timeout=limit).trigger.serialize()[1]["deadline"]
    assert before + 60 <= deadline <= time.time() + 60
    (job_id,) = fake.jobs
    with pytest.raises(AirflowTaskTimeout):
        operator(deferrable=True).execute_complete(task.context(), {"job_id": job_id, "timed_out": True})
    assert fake.cancels == [(job_id, None)]
    with pytest.raises(AirflowTaskTimeout):
        operator(cancel_on_kill=False).execute_complete(task.context(), {"job_id": job_id, "timed_out": True})
    assert len(fake.cancels) == 1


def test_a_job_that_cannot_be_watched_is_taken_over_by_the_retry(fake: FakeJobManager, task: Task) -> None:
    deferred(task)
    (job_id,) = fake.jobs
    with pytest.raises(AirflowException, match="no answer"):
        operator().execute_complete(task.context(), {"job_id": job_id, "problem": "no answer"})
    ends(fake)(job_id)
    assert operator().execute(task.context())["job_id"] == job_id


def test_a_killed_task_cancels_its_job(fake: FakeJobManager, task: Task) -> None:
    """As in Airflow: in a handler of SIGTERM, while the event loop of ``execute`` runs in the same thread."""
    started, running = threading.Event(), operator()
    fake.on_submit = lambda _: started.set()
    fake.on_cancel = lambda job_id, _: ends(fake, JobStatus.CANCELED)(job_id)
    before = signal.signal(signal.SIGTERM, lambda *_: running.on_kill())

    def kill() -> None:
        assert started.wait(60)
        os.kill(os.getpid(), signal.SIGTERM)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with pytest.raises(AirflowException, match="because its task was killed") as caught:
            running.execute(task.context())
    finally:
        killer.join(60)
        signal.signal(signal.SIGTERM, before)
    assert not isinstance(caught.value, AirflowFailException)  # a worker that ends in peace is tried again
    assert {job_id for job_id, _ in fake.cancels} == set(fake.jobs)


def test_a_task_that_is_killed_before_its_job_exists_leaves_none(fake: FakeJobManager, task: Task) -> None:
    running = operator()
    running.on_kill()
    with pytest.raises(AirflowException, match="killed before its job was submitted"):
        running.execute(task.context())
    assert not fake.submissions


def test_a_task_that_is_killed_while_it_submits_cancels_the_job_once_it_exists(
    fake: FakeJobManager, task: Task
) -> None:
    running = operator()

    def kill(job_id: str) -> None:
        running._killed = True  # as on_kill does; its cancel came before the job
        fake.on_cancel = lambda *_: ends(fake, JobStatus.CANCELED)(job_id)

    fake.on_submit = kill
    with pytest.raises(AirflowException, match="because its task was killed"):
        running.execute(task.context())
    assert len(fake.cancels) == 1


def test_a_task_that_is_killed_while_it_looks_for_its_job_cancels_what_it_finds(
    fake: FakeJobManager, task: Task
) -> None:
    deferred(task)
    (job_id,) = fake.jobs
    fake.on_cancel = lambda *_: ends(fake, JobStatus.CANCELED)(job_id)
    running = operator()
    running.on_kill()  # nothing is known yet that could be cancelled
    with pytest.raises(AirflowException, match="because its task was killed"):
        running.execute(task.context())
    assert fake.cancels == [(job_id, None)]


def test_a_job_may_outlive_its_killed_task(fake: FakeJobManager, task: Task) -> None:
    running = operator(cancel_on_kill=False)

    def kill(job_id: str) -> None:
        running.on_kill()
        ends(fake)(job_id)

    fake.on_submit = kill
    running.execute(task.context())
    assert not fake.cancels
