"""``emberkeep top``: what it shows, with what needs a person first."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.cli.application import main
from emberkeep.cli.operators import top_reading
from emberkeep.cli.operators.top_view import TopPicture, job_rows, node_rows, top_lines
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.rest_jobs import AlarmInfo, JobDetailsInfo, StreamingQuery
from emberkeep.watchdog.model import AlarmKind
from tests.unit.client.fake_job_manager import FakeJobManager, job_info, task_manager_info
from tests.unit.client.work_samples import WORK

Output = pytest.CaptureFixture[str]


def ident(number: int) -> str:
    return f"{number:02x}" + "0" * 30


def query(rate: float, batch: int = 7) -> StreamingQuery:
    return StreamingQuery(
        id="q" * 32,
        run_id="r",
        name="counts",
        batch_id=batch,
        timestamp="",
        num_input_rows=1,
        input_rows_per_second=2 * rate,
        processed_rows_per_second=rate,
        state_rows=0,
        watermark="",
        status="",
        checkpoint_location="",
    )


BEHIND = msgspec.structs.replace(query(10.0), backlog_rows=12_000, backlog_seconds=1200.0)
ALARM = AlarmInfo(kind=AlarmKind.NO_COMMIT, query="counts", since=0, message="no micro-batch was committed")


def job(number: int, name: str, state: JobStatus = JobStatus.RUNNING, **own: object) -> JobDetailsInfo:
    return job_info(ident(number), name, state, **own)


def test_jobs_in_need_come_first_then_the_busiest() -> None:
    jobs = [
        job(1, "idle"),
        job(2, "slow", queries=[query(10.0)]),
        job(3, "fast", queries=[query(1000.0), query(234.0)]),
        job(4, "waits", waiting="2 slots of 1 core", queries=[query(9999.0)]),
        job(5, "restarts", JobStatus.RESTARTING),
        job(6, "stuck", queries=[BEHIND], alarms=[ALARM]),
    ]
    rows = job_rows(jobs)
    assert [row[1] for row in rows] == ["stuck", "restarts", "waits", "fast", "slow", "idle"]
    stuck, _, waits, fast, _, idle = rows
    assert stuck[9:] == ("12,000 (20m 00s)", "ALARM query counts: no micro-batch was committed")
    assert fast[7:] == ("2,468", "1,234", "-", "counts batch 7, counts batch 7")
    assert waits[10] == "2 slots of 1 core"
    assert idle[5:] == ("-", "-", "-", "-", "-", "-")


def test_a_batch_job_is_shown_with_what_is_left() -> None:
    one = msgspec.structs.replace(job(1, "batch", work=WORK), status_counts={"RUNNING": 2, "FINISHED": 6})
    assert job_rows([one])[0][6:] == ("2 running, 6 of 9 done", "-", "-", "-", "about 1m 05s left of its Spark jobs")


def test_a_job_is_shown_with_how_long_it_is_in_its_state() -> None:
    info = job(1, "a")
    since = msgspec.structs.replace(info, timestamps={JobStatus.RUNNING: info.now - 65_000})
    assert job_rows([since])[0][3] == "1m 05s"


def test_nodes_are_shown_with_what_is_in_use() -> None:
    first, second = task_manager_info("tm-2"), task_manager_info("tm-1")
    rows = node_rows([first, msgspec.structs.replace(second, blocked=True)])
    assert [row[1] for row in rows] == ["tm-1", "tm-2"]
    assert [row[-1] for row in rows] == ["blocked", "-"]
    assert rows[0][6] == "1 of 2"


def test_callers_with_a_namespace_see_their_jobs() -> None:
    assert top_lines(TopPicture(None, [], [job(1, "a")], more=2)) == ["3 unfinished jobs"]


def test_it_prints_once_into_a_pipe(fake: FakeJobManager, capfd: Output) -> None:
    fake.jobs[ident(1)] = job(1, "running\x1b[0m job")
    fake.jobs[ident(2)] = job(2, "over", JobStatus.FINISHED)
    fake.task_managers = [task_manager_info("tm-1")]
    fake.storage = msgspec.structs.replace(fake.storage, problem="its owner is not settled")
    assert main(["top"]) == 0
    out = capfd.readouterr().out
    assert "1 unfinished job · 1 task manager · slots 1 of 2 free" in out
    assert "attention: its owner is not settled" in out
    assert r"running\x1b[0m job" in out
    assert "over" not in out
    assert "tm-1" in out
    assert "\x1b" not in out


def test_many_jobs_are_counted_not_read(fake: FakeJobManager, capfd: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_reading, "SHOWN_JOBS", 3)
    for number in range(1, 8):
        fake.jobs[ident(number)] = job(number, f"job {number}")
    assert main(["top"]) == 0
    assert "… 4 more: `emberkeep list` shows all" in capfd.readouterr().out
    assert sum(request.startswith("GET /v1/jobs/0") for request in fake.requests) == 3


def test_of_many_jobs_those_in_need_are_shown(
    fake: FakeJobManager, capfd: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top_reading, "SHOWN_JOBS", 3)
    in_need = [
        job(1, "stuck", alarms=[ALARM]),
        job(2, "restarts", JobStatus.RESTARTING),
        job(3, "starved", waiting="2 slots of 1 core"),
    ]
    for each in (*(job(number, f"well {number}") for number in range(4, 9)), *in_need):
        fake.jobs[each.jid] = each
    assert main(["top"]) == 0
    out = capfd.readouterr().out
    assert all(each.name in out for each in in_need)
    assert "well" not in out


def test_without_jobs(fake: FakeJobManager, capfd: Output) -> None:
    assert main(["top"]) == 0
    assert "no job is waiting or running" in capfd.readouterr().out
    assert fake.jobs == {}
