"""Which logs can be kept."""

from __future__ import annotations

import pytest

from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.kept_logs.model import KeptLogKey, LogWriter, parse_log_id, writer_of

JOB = JobId("1" * 32)
TM = TaskManagerId("tm-1")


@pytest.mark.parametrize(
    ("name", "writer"),
    [
        ("driver.stdout", LogWriter("driver-stdout", "")),
        ("driver.stderr", LogWriter("driver-stderr", "")),
        ("executor-12.stderr", LogWriter("executor-stderr", "12")),
        ("executor-0.stdout", LogWriter("executor-stdout", "0")),
        ("executor-.stdout", None),
        ("driver.stdout.gz", None),
        ("../driver.stdout", None),
        ("", None),
    ],
)
def test_who_writes_a_file(name: str, writer: LogWriter | None) -> None:
    assert writer_of(name) == writer


def test_the_id_of_a_log_on_its_task_manager_names_it() -> None:
    key = KeptLogKey(job_id=JOB, attempt=3, task_manager=TM, name="executor-7.stderr")

    assert parse_log_id(TM, key.log_id) == key


@pytest.mark.parametrize("log_id", ["taskmanager.log", f"{JOB}-x-driver.stdout", f"{JOB}-1-else", "1-1-driver.stdout"])
def test_other_ids_name_no_log_of_a_job(log_id: str) -> None:
    assert parse_log_id(TM, log_id) is None


@pytest.mark.parametrize(
    "changes",
    [{"job_id": "../x"}, {"attempt": -1}, {"attempt": 10**9}, {"task_manager": "../.."}, {"name": "../driver.stdout"}],
)
def test_a_key_that_no_log_can_have_is_refused(changes: dict[str, object]) -> None:
    fields = {"job_id": JOB, "attempt": 1, "task_manager": TM, "name": "driver.stdout", **changes}

    with pytest.raises(InvalidInput):
        KeptLogKey(**fields).check()  # type: ignore[arg-type]
