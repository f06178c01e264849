"""What `emberkeep info` prints on a terminal of 80 columns, the usual width."""

from __future__ import annotations

import contextlib
import io

import pytest

from emberkeep.base.ids import ExecutorId, TaskManagerId
from emberkeep.cli.jobs.view import print_job
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.model import FailureKind
from emberkeep.protocol.messages.task_manager_reports import ProcessState
from emberkeep.protocol.rest_jobs import AttemptInfo, ExceptionHistory, ExecutorInfo, JobDetailsInfo, JobExceptions
from emberkeep.rest.jobs.checkpoint_shapes import checkpoint_statistics
from emberkeep.slots.model import ProcessStart
from tests.unit.client.fake_job_manager import NOW, job_info

ON = TaskManagerId("node-17-tm-1")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(job: JobDetailsInfo, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", "80")
    exceptions = JobExceptions(
        root_exception=None,
        timestamp=None,
        all_exceptions=[],
        truncated=False,
        exception_history=ExceptionHistory(entries=[], truncated=False),
    )
    with contextlib.redirect_stdout(Terminal()) as terminal:
        print_job(job, exceptions, checkpoint_statistics(JobPointers()), [])
    return terminal.getvalue().splitlines()


def test_attempts_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = AttemptInfo(
        attempt=12,
        taskmanager_id=ON,
        start_time=NOW,
        end_time=NOW + 60_000,
        exit_code=137,
        failure_kind=FailureKind.LOST,
        root_cause="task manager node-17-tm-1 lost contact for 30 s",
    )
    lines = printed(job_info("ab12cd34" + "0" * 24, attempts=[attempt]), monkeypatch)
    assert not any("…" in line for line in lines)
    assert any({"12", ON, "lost"} <= set(line.split()) for line in lines)


def test_executors_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = ExecutorInfo(
        id=ExecutorId("12"),
        taskmanager_id=ON,
        host="node-17",
        state=ProcessState.RUNNING,
        registered=False,
        pid=123456,
        cores=1,
        heap_mb=1024,
        away=False,
        start=ProcessStart.COLD,
        why_cold="no standby process was ready",
    )
    lines = printed(job_info("ab12cd34" + "0" * 24, executors=[executor]), monkeypatch)
    assert not any("…" in line for line in lines)
    assert any({"12", ON, "no"} <= set(line.split()) for line in lines)
