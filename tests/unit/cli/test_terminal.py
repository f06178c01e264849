import fcntl
import io
import os
import pty
import struct
import termios
from typing import Any

import pytest
from rich.cells import cell_len

from emberkeep.base.ids import ExecutorId, TaskManagerId
from emberkeep.cli import terminal
from emberkeep.cli.terminal import JobTerminal
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.messages.task_manager_reports import ProcessState
from emberkeep.protocol.rest_jobs import DynamicAllocationInfo, ExecutorInfo
from tests.unit.client.fake_job_manager import job_info

JOB = "a" * 32

Output = pytest.CaptureFixture[str]


class Clock:
    """Stands in for the time module."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class Terminal(io.TextIOWrapper):
    """A standard error that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(terminal, "time", made)
    return made


def test_without_a_terminal_each_change_is_a_line(clock: Clock, capfd: Output) -> None:
    shown = JobTerminal(quiet=False)
    for state in (JobStatus.CREATED, JobStatus.CREATED, JobStatus.RUNNING):
        shown.progress(job_info(JOB, state=state, executors_wanted=2))
    assert capfd.readouterr().err.splitlines() == [
        "emberkeep: job aaaaaaaa: CREATED · executors 0/2",
        "emberkeep: job aaaaaaaa: RUNNING · executors 0/2",
    ]


def test_only_a_long_wait_is_told_and_once(clock: Clock, capfd: Output) -> None:
    shown = JobTerminal(quiet=False)
    for waiting, seconds in (("a", 1.0), ("b", 2.0), ("b", 2.0), ("b", 9.0), ("b", 9.0), ("", 9.0)):
        shown.progress(job_info(JOB, waiting=waiting))
        clock.now += seconds
    assert capfd.readouterr().err.splitlines() == [
        "emberkeep: job aaaaaaaa: RUNNING",
        "emberkeep: job aaaaaaaa waits for b",
    ]


def test_a_job_whose_executors_come_and_go_prints_no_line_for_each(clock: Clock, capfd: Output) -> None:
    shown = JobTerminal(quiet=False)
    for registered, wanted, waiting in ((0, 1, ""), (1, 3, "2 slots"), (1, 3, "2 slots"), (3, 3, ""), (1, 1, "")):
        executors = [executor(number) for number in range(registered)]
        scaling = DynamicAllocationInfo(wanted=wanted, minimum=0, maximum=3, changed=0)
        shown.progress(
            job_info(JOB, waiting=waiting, executors=executors, executors_wanted=wanted, dynamic_allocation=scaling)
        )
        clock.now += 9.0
    assert capfd.readouterr().err.splitlines() == ["emberkeep: job aaaaaaaa: RUNNING"]


def executor(number: int) -> ExecutorInfo:
    return ExecutorInfo(
        id=ExecutorId(str(number)),
        taskmanager_id=TaskManagerId("tm"),
        host="127.0.0.1",
        state=ProcessState.RUNNING,
        registered=True,
        pid=1,
        cores=1,
        heap_mb=1,
        away=False,
    )


def test_quiet_holds_back_all_but_the_jobs_output(clock: Clock, capfd: Output) -> None:
    shown = JobTerminal(quiet=True)
    shown.progress(job_info(JOB))
    shown.notice("something")
    shown.output(b"out\n", error=False)
    shown.output(b"err\n", error=True)
    shown.always("important")
    assert capfd.readouterr() == ("out\n", "err\nemberkeep: important\n")


def test_on_a_terminal_the_status_is_redrawn_below_the_output(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.BytesIO()
    monkeypatch.setattr("sys.stderr", Terminal(screen, write_through=True))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    shown = JobTerminal(quiet=False)
    shown.progress(job_info(JOB, "etl"))
    shown.progress(job_info(JOB, "etl", state=JobStatus.RESTARTING))  # too soon to be redrawn
    shown.output(b"no line end", error=True)
    clock.now += 1
    shown.progress(job_info(JOB, "etl"))  # not in the middle of a line
    shown.notice("news")
    shown.progress(job_info(JOB, "etl", waiting="w" * 100))
    shown.close()
    text = screen.getvalue().decode()
    assert "RESTARTING" not in text
    clear = "\r\x1b[2K"
    parts = text.split(clear)
    assert parts[1] == "\x1b[2m[etl aaaaaaaa] RUNNING\x1b[0m"
    assert parts[2] == "no line end\nemberkeep: news\n"
    assert parts[3].startswith("\x1b[2m[etl aaaaaaaa] RUNNING · waiting: www")
    assert parts[3].endswith("…\x1b[0m")
    assert len(parts[3]) < 60 + len("\x1b[2m\x1b[0m")
    assert parts[4] == ""


def test_a_terminal_that_has_gone_is_no_reason_to_stop(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            tried.append(text)
            raise OSError("the terminal has gone")

        def isatty(self) -> bool:
            return True

    gone: Any = Gone()
    monkeypatch.setattr("sys.stderr", gone)
    monkeypatch.setenv("TERM", "xterm")
    shown = JobTerminal(quiet=False)
    shown.progress(job_info(JOB))
    shown.always("nobody reads this")
    shown.close()
    assert "RUNNING" in tried[0]
    assert "nobody reads this" in "".join(tried)


@pytest.mark.parametrize("name", ["etl " * 30, "夜間バッチ処理" * 10], ids=["long", "wide"])
def test_the_status_fits_into_a_narrow_terminal_also_if_the_output_goes_to_a_file(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLUMNS", raising=False)
    with open(follower, "w", encoding="utf-8") as screen:  # noqa: PTH123 - a descriptor
        monkeypatch.setattr("sys.stderr", screen)
        JobTerminal(quiet=False).progress(job_info(JOB, name))
        written = os.read(leader, 4096).decode()
    os.close(leader)
    status = written.partition("\x1b[2m")[2].removesuffix("\x1b[0m")
    assert 35 < cell_len(status) < 40
    assert status.endswith("…")
