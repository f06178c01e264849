"""What ``emberkeep info`` and ``emberkeep list`` say of a job's health and work."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.cli.application import main
from emberkeep.cli.jobs.work_view import work_text
from emberkeep.protocol.rest_jobs import AlarmInfo, BacklogInfo
from emberkeep.watchdog.model import AlarmKind
from tests.unit.cli.operators.test_top import BEHIND
from tests.unit.client.fake_job_manager import FakeJobManager, job_info
from tests.unit.client.work_samples import STAGE, WORK

Output = pytest.CaptureFixture[str]
A, B = "a" * 32, "b" * 32
STUCK = AlarmInfo(kind=AlarmKind.NO_COMMIT, query="delays", since=0, message="no micro-batch was committed")


def section(out: str, begin: str) -> list[list[str]]:
    """The words of each line of a part of the output."""
    (found,) = [part for part in out.split("\n\n") if part.startswith(begin)]
    return [line.split() for line in found.strip().splitlines()]


def test_a_list_has_a_column_of_alarms_if_there_are_any(fake: FakeJobManager, capfd: Output) -> None:
    fake.jobs = {A: job_info(A, "etl")}
    assert main(["list"]) == 0
    assert "ALARM" not in capfd.readouterr().out
    fake.jobs = {A: job_info(A, "etl", alarms=[STUCK]), B: job_info(B, "well")}
    assert main(["list"]) == 0
    columns, *rows = capfd.readouterr().out.splitlines()
    assert columns.split()[-1] == "ALARM"
    alarms = {row.split()[1]: row.endswith("query delays: no micro-batch was committed") for row in rows}
    assert alarms == {"etl": True, "well": False}


def test_info_shows_stages_and_what_the_work_costs(fake: FakeJobManager, capfd: Output) -> None:
    fake.jobs = {A: job_info(A, "etl", work=WORK)}
    assert main(["info", "etl"]) == 0
    out = capfd.readouterr().out
    (work,) = (line for line in out.splitlines() if line.startswith("Work:"))
    assert work.split(maxsplit=1)[1] == work_text(WORK)
    assert work_text(WORK) == (
        "20s of task time, 2.5 % in garbage collection; shuffles: 3.0 MiB written, 1.0 KiB read;"
        " 2.0 KiB spilled to disks"
    )
    heading, columns, row = section(out, "Stages: ")
    assert " ".join(heading) == "Stages: 1 active, 3 done; about 1m 05s left"
    assert columns[:3] == ["STAGE", "STATE", "TASKS"]
    assert " ".join(row) == "4 ACTIVE 5 of 8 2 1 2.0s 9.0s 4.5 x 2.0 KiB 3.0s collect at app.py:5"


def test_info_of_a_stream_says_nothing_of_an_end(fake: FakeJobManager, capfd: Output) -> None:
    """The Spark jobs of a stream are its micro-batches."""
    waiting = msgspec.structs.replace(
        STAGE, stage_attempt=1, status="PENDING", median_duration=0, longest_duration=0, skew=None, time_left=None
    )
    work = msgspec.structs.replace(WORK, stages=[msgspec.structs.replace(waiting, disk_bytes_spilled=0)])
    fake.jobs = {A: job_info(A, "etl", work=work, queries=[BEHIND])}
    assert main(["info", "etl"]) == 0
    out = capfd.readouterr().out
    heading, _, row = section(out, "Stages: ")
    assert " ".join(heading) == "Stages: 1 active, 3 done"
    assert " ".join(row) == "4.1 PENDING 5 of 8 2 1 - - - - - collect at app.py:5"
    assert ["12,000", "(20m", "00s)"] in [line[5:8] for line in section(out, "Streaming queries")]


def test_info_and_top_tell_a_backlog_as_the_sources_count_it(fake: FakeJobManager, capfd: Output) -> None:
    left = BacklogInfo(rows=None, files=12, bytes=None, time_behind=None, unknown_sources=0)
    query = msgspec.structs.replace(BEHIND, backlog_rows=None, backlog_seconds=None, backlog=left)
    fake.jobs = {A: job_info(A, "etl", queries=[query])}
    assert main(["info", "etl"]) == 0
    assert ["12", "files"] in [line[5:7] for line in section(capfd.readouterr().out, "Streaming queries")]
    assert main(["top"]) == 0
    assert " 12 files " in capfd.readouterr().out


def test_info_says_which_slow_task_a_stage_waits_for(fake: FakeJobManager, capfd: Output) -> None:
    waiting = msgspec.structs.replace(
        STAGE, running=1, finished=7, longest_running=190_000, longest_duration=190_000, skew=95.0, overdue=True
    )
    stages = [msgspec.structs.replace(waiting, time_left=None)]
    fake.jobs = {A: job_info(A, "etl", work=msgspec.structs.replace(WORK, time_left=None, stages=stages))}
    assert main(["info", "etl"]) == 0
    heading, _, row = section(capfd.readouterr().out, "Stages: ")
    assert " ".join(heading) == "Stages: 1 active, 3 done"
    assert "3m 10s 95.0 x 2.0 KiB unknown: a task has run for 3m 10s collect" in " ".join(row)


def test_stages_with_the_same_name_are_told_apart(fake: FakeJobManager, capfd: Output) -> None:
    stages = [
        msgspec.structs.replace(STAGE, stage_id=number, operations=operations)
        for number, operations in ((7, "AQEShuffleRead → Exchange"), (6, "Scan csv → Exchange"), (5, ""))
    ]
    fake.jobs = {A: job_info(A, "etl", work=msgspec.structs.replace(WORK, stages=stages))}
    assert main(["info", "etl"]) == 0
    _, _, *rows = section(capfd.readouterr().out, "Stages: ")
    assert [" ".join(row).split(" 3.0s ")[1] for row in rows] == [
        "collect at app.py:5 (AQEShuffleRead → Exchange)",
        "collect at app.py:5 (Scan csv → Exchange)",
        "collect at app.py:5",
    ]


def test_before_any_task_has_ended_there_is_no_cost() -> None:
    assert work_text(None) == ""
    assert work_text(msgspec.structs.replace(WORK, task_time=0)) == ""
