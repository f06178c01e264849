"""The judgement of a history under load: lost and doubled jobs, replies that must not come, and figures."""

from pathlib import Path

import pytest

from campaign.kept import write_record
from campaign.linearizability.history import Operation
from campaign.load.figures import LoadFigures
from campaign.load.record import LoadRecord, judge_load, read_record
from campaign.load.replies import Wait
from campaign.load.report import data, section
from campaign.processes.calls import Answered
from campaign.processes.deeds import Rules
from campaign.processes.plan import HistoryPlan
from campaign.processes.record import HistoryRecord
from campaign.processes.strikes import Strike

ONE, OTHER = "1" * 32, "2" * 32
WAITS = {"status": "CREATED", "attempt": 0}


def submit(job_id: str, begin: float, *, created: bool) -> Operation:
    result = {"jobid": job_id, "created": created}
    proposed = {"jobid": job_id}
    return Operation(
        client="a", key="k", kind="submit", arguments=proposed, invoked=begin, returned=begin + 1, result=result
    )


def read(job_id: str, begin: float, result: object) -> Operation:
    about = {"jobid": job_id}
    return Operation(
        client="b", key="k", kind="read", arguments=about, invoked=begin, returned=begin + 1, result=result
    )


def record(*jobs: Operation, replies: tuple[Answered, ...] = (), problems: tuple[str, ...] = ()) -> LoadRecord:
    strike = Strike(kind="kill leader", target="jm-1", at=10.0, until=11.0)
    history = HistoryRecord(
        plan=HistoryPlan("1-0", 20.0, ()),
        rules=Rules(lease=6.0, freeze=3.0),
        unix_minus_clock=0.0,
        strikes=(strike,),
        jobs=jobs,
        blocklist=(),
        answered=(),
        counts={"submit: done": 1},
        deeds={},
        ends=(),
        problems=problems,
    )
    paths = {"/v1/jobs": {"post": {"responses": {"202": None, "503": None}}}}
    return LoadRecord(
        history=history,
        replies=replies,
        paths=paths,
        fuzzed={"400": 7},
        uploaded=3_000_000_000,
        removed=2_000_000_000,
        waits=(Wait(1.0, 1.1), Wait(9.0, 14.2)),
    )


def test_an_acknowledged_job_that_is_not_listed_in_the_end_is_lost() -> None:
    assert judge_load(record(submit(ONE, 1.0, created=True), read(ONE, 5.0, WAITS))).violations == ()
    (violation,) = judge_load(record(submit(ONE, 1.0, created=True), read(ONE, 5.0, "absent"))).violations
    assert "violated" in violation


def test_two_jobs_with_one_key_are_doubled() -> None:
    jobs = (submit(ONE, 1.0, created=True), read(ONE, 5.0, WAITS), read(OTHER, 5.0, WAITS))
    (violation,) = judge_load(record(*jobs)).violations
    assert "violated" in violation


def test_a_bug_in_a_reply_and_a_process_that_has_ended_are_violations() -> None:
    broken = Answered("POST", "/v1/jobs", 500, 1.0, 2.0)
    found = judge_load(record(replies=(broken,), problems=("jm-2 has ended by itself",))).violations
    assert found == ("jm-2 has ended by itself", "POST /v1/jobs was answered with 500")


def test_a_kept_record_can_be_judged_again(tmp_path: Path) -> None:
    kept = record(submit(ONE, 1.0, created=True), replies=(Answered("GET", "/v1/overview", 200, 1.0, 2.0),))
    write_record(tmp_path / "history-1.json", kept)
    assert read_record(tmp_path / "history-1.json") == kept
    (tmp_path / "history-2.json").write_text("{}")
    with pytest.raises(ValueError, match=r"history-2\.json"):
        read_record(tmp_path / "history-2.json")


def test_the_report_has_the_times_of_replies_during_takeovers_and_outside() -> None:
    replies = (
        Answered("POST", "/v1/jobs", 202, 1.0, 1.02),
        Answered("POST", "/v1/jobs", 202, 2.0, 2.04),
        Answered("POST", "/v1/jobs", 202, 10.5, 14.0),
    )
    one = record(submit(ONE, 1.0, created=True), replies=replies)
    figures = LoadFigures(clients=50, blob_bytes=64 << 20, revisions=["abc"])
    figures.took(one, judge_load(one))
    text = "\n".join(section(figures, 1))
    for part in (
        "| leaders lost | 1 |",
        "| large files | 3.0 GB of 64 MiB each, 2.0 GB deleted again |",
        "| submit | outside | 2 | 20 | 40 | 40 |",
        "| submit | during | 1 | 3,500 | 3,500 | 3,500 |",
        "Takeovers took 4.0 s in the middle, 4.0 s at most.",
        "| all | 2 | 100 | 5,200 | 5,200 |",
        "| during | 1 | 5,200 | 5,200 | 5,200 |",
        "| 400 | 7 |",
    ):
        assert part in text
    assert data(figures)["milliseconds"]["all|during"] == {"replies": 1, "p50": 3500, "p99": 3500, "largest": 3500}
