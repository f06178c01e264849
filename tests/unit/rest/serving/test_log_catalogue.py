"""Which logs a task manager lists, under which ids, and that ids are no paths."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from emberkeep.base.configuration.layout import WorkingDirectory
from emberkeep.base.errors import Absent
from emberkeep.base.ids import JobId
from emberkeep.rest.ports import LogKind
from emberkeep.rest.serving import log_catalogue
from emberkeep.rest.serving.log_catalogue import ProcessLogs, TaskManagerLogs

JOB, OTHER = JobId("a" * 32), JobId("b" * 32)


@pytest.fixture
def directory(tmp_path: Path) -> WorkingDirectory:
    working = WorkingDirectory(tmp_path)
    for job, attempt, names in (
        (JOB, 1, ("driver.stdout", "driver.stderr")),
        (JOB, 2, ("driver.stdout", "executor-0.stderr", "driver.log", "core.1234")),
        (OTHER, 1, ("driver.stdout",)),
    ):
        logs = working.attempt_logs(job, attempt)
        logs.mkdir(parents=True)
        for name in names:
            (logs / name).write_text(f"{job} {attempt} {name}")
    (working.logs / "taskmanager.log").write_text("own")
    return working


def live(job_id: JobId, attempt: int, executor_id: str) -> bool:
    return (job_id, attempt, executor_id) == (JOB, 2, "")


def test_a_jobs_logs_are_those_of_its_drivers_and_executors(directory: WorkingDirectory) -> None:
    entries = TaskManagerLogs(directory, live).entries(JOB)
    assert [(entry.kind, entry.attempt, entry.executor_id, entry.complete) for entry in entries] == [
        (LogKind.DRIVER_STDERR, 1, "", True),
        (LogKind.DRIVER_STDOUT, 1, "", True),
        (LogKind.DRIVER_STDOUT, 2, "", False),
        (LogKind.EXECUTOR_STDERR, 2, "0", True),
    ]


def test_without_a_job_all_logs_are_listed_the_task_managers_own_first(directory: WorkingDirectory) -> None:
    entries = TaskManagerLogs(directory, live).entries(None)
    assert entries[0].kind is LogKind.TASK_MANAGER
    assert {entry.job_id for entry in entries} == {None, JOB, OTHER}


def test_every_listed_id_is_found_and_leads_to_its_file(directory: WorkingDirectory) -> None:
    logs = TaskManagerLogs(directory, live)
    entries = logs.entries(None)
    assert len({entry.id for entry in entries}) == len(entries)
    for entry in entries:
        assert logs.find(entry.id).path == entry.path


def test_an_attempt_that_cannot_be_read_hides_no_logs_of_other_attempts(
    directory: WorkingDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, scan = directory.attempt_logs(JOB, 1), os.scandir

    def failing(path: Path) -> Any:
        if path == bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", failing)
    logs = TaskManagerLogs(directory, live)

    assert logs.find(f"{JOB}-2-driver.stdout").attempt == 2
    assert logs.find("taskmanager.log").kind is LogKind.TASK_MANAGER
    with pytest.raises(OSError, match="Input/output error"):
        logs.find(f"{JOB}-1-driver.stdout")


@pytest.mark.parametrize("log_id", ["", "..", "../taskmanager.log", "core.1234", f"{JOB}-1-driver.stdout/../x", "a/b"])
def test_other_ids_lead_nowhere(directory: WorkingDirectory, log_id: str) -> None:
    with pytest.raises(Absent):
        TaskManagerLogs(directory, live).find(log_id)


def test_rotated_logs_of_a_daemon_are_complete_the_present_one_is_not(tmp_path: Path) -> None:
    for name in ("jobmanager.log", "jobmanager.log.1", "jobs.sqlite"):
        (tmp_path / name).touch()
    entries = ProcessLogs(tmp_path, LogKind.JOB_MANAGER).entries(None)
    assert [(entry.id, entry.complete) for entry in entries] == [("jobmanager.log", False), ("jobmanager.log.1", True)]
    assert ProcessLogs(tmp_path / "absent", LogKind.JOB_MANAGER).entries(None) == []


@pytest.mark.req("SEC-18")
def test_what_a_job_puts_in_the_place_of_its_logs_breaks_no_others(directory: WorkingDirectory) -> None:
    secret = directory.logs / "secret"
    secret.write_text("not a log")
    before = TaskManagerLogs(directory, live).entries(None)
    job = directory.attempt_logs(JOB, 1).parent
    (job / "1" / "executor-1.stdout").symlink_to("/nowhere/at/all")
    (job / "1" / "executor-2.stdout").symlink_to(secret)
    (job / "1" / "executor-3.stdout").mkdir()
    os.mkfifo(job / "1" / "executor-4.stdout")
    (job / "3").write_text("not a directory")
    (job / "4").symlink_to("/etc")
    (job / "5").symlink_to("5")
    (job / "\u00b2").mkdir()  # a digit for str.isdigit, no number for int
    (job.parent / ("c" * 32)).write_text("not a directory either")
    (directory.logs / "taskmanager.log.1").symlink_to("/nowhere/at/all")

    assert TaskManagerLogs(directory, live).entries(None) == before


@pytest.mark.req("SEC-18")
def test_a_job_that_fills_its_folder_takes_no_time_of_others(
    directory: WorkingDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_catalogue, "_MOST_FILES", 20)
    hostile = directory.attempt_logs(JobId("d" * 32), 1)
    hostile.mkdir(parents=True)
    for number in range(100):
        (hostile / f"executor-{number}.stdout").touch()
    logs = TaskManagerLogs(directory, live)
    assert len(logs.entries(JobId("d" * 32))) == 20
    seen: list[Path] = []
    listing = log_catalogue._listing

    def noted(path: Path) -> list[Path]:
        seen.append(path)
        return listing(path)

    monkeypatch.setattr(log_catalogue, "_listing", noted)
    assert logs.find(f"{JOB}-1-driver.stdout").job_id == JOB
    assert logs.find("taskmanager.log").kind is LogKind.TASK_MANAGER
    assert hostile not in seen
