"""A job's output in the log of its task."""

from __future__ import annotations

import msgspec

from emberkeep.jobs.model import JobStatus
from emberkeep_airflow.task_log import TaskLog
from tests.unit.client.fake_job_manager import job_info


class Lines:
    """A logger that keeps its lines."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def info(self, event: str, *arguments: object) -> None:
        self.written.append(event % arguments)


def test_lines_of_both_streams_stay_whole() -> None:
    lines = Lines()
    log = TaskLog(lines, "https://jm/jobs/1")
    for data, error in ((b"a\nhal", False), (b"warn", True), (b"f\r\n", False), (b"ing\n", True), (b"\xff end", False)):
        log.output(data, error=error)
    assert lines.written == ["a", "half", "warning"]
    log.close()
    log.close()
    assert lines.written[3:] == ["\ufffd end"]


def test_a_line_without_an_end_is_split() -> None:
    lines = Lines()
    log = TaskLog(lines, "")
    log.output(b"x" * 40_000, error=False)
    log.close()
    assert [len(line) for line in lines.written] == [16_384, 16_384, 7_232]


def test_a_long_line_that_comes_with_its_end_is_split_too() -> None:
    lines = Lines()
    log = TaskLog(lines, "")
    log.output(b"a\n\n" + b"x" * 40_000 + b"\nb\n", error=False)
    assert [len(line) for line in lines.written] == [1, 0, 16_384, 16_384, 7_232, 1]


def test_a_log_has_a_limit_and_says_where_the_rest_is() -> None:
    lines = Lines()
    log = TaskLog(lines, "https://jm/jobs/1", limit=5)
    log.output(b"abc\ndef\nghi\n", error=False)
    log.close()
    assert lines.written == [
        "abc",
        "def",
        "the job has written more than this log takes; the rest is at https://jm/jobs/1/logs",
    ]


def test_only_changes_of_the_state_are_written() -> None:
    lines = Lines()
    log = TaskLog(lines, "")
    waiting = job_info("a" * 32, state=JobStatus.CREATED, waiting="a driver place")
    running = job_info("a" * 32)
    for job in (waiting, waiting, running, running, msgspec.structs.replace(running, state=JobStatus.FINISHED)):
        log.progress(job)
    name = "a" * 32
    assert lines.written == [
        f"job {name} is CREATED: waiting for a driver place",
        f"job {name} is RUNNING",
        f"job {name} is FINISHED",
    ]
