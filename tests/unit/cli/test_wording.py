import msgspec
import pytest

from emberkeep.base.ids import ExecutorId, TaskManagerId
from emberkeep.cli.wording import backlog_text, counted, duration, executors_text, memory, status_text, timestamp
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.messages.task_manager_reports import ProcessState
from emberkeep.protocol.rest_jobs import BacklogInfo, DynamicAllocationInfo, ExecutorInfo, StreamingQuery
from tests.unit.client.fake_job_manager import job_info

JOB = "a" * 32
QUERY = StreamingQuery(
    id="q" * 36,
    run_id="r",
    name="counts",
    batch_id=17,
    timestamp="",
    num_input_rows=1,
    input_rows_per_second=1.0,
    processed_rows_per_second=1234.4,
    state_rows=0,
    watermark="",
    status="",
    checkpoint_location="",
)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (-1, "-"),
        (0, "0.0s"),
        (1500, "1.5s"),
        (59_900, "59s"),
        (65_000, "1m 05s"),
        (2 * 3_600_000 + 7 * 60_000, "2h 07m"),
        (4 * 86_400_000 + 3 * 3_600_000, "4d 03h"),
    ],
)
def test_durations(milliseconds: int, text: str) -> None:
    assert duration(milliseconds) == text


def test_small_words() -> None:
    assert timestamp(-1) == "-"
    assert timestamp(1_700_000_000_000).startswith("2023-11-1")
    assert (memory(512), memory(3584)) == ("512 MiB", "3.5 GiB")
    assert (counted(1, "job"), counted(0, "job")) == ("1 job", "0 jobs")


def test_a_job_in_one_line() -> None:
    executor = ExecutorInfo(
        id=ExecutorId("0"),
        taskmanager_id=TaskManagerId("tm"),
        host="127.0.0.1",
        state=ProcessState.RUNNING,
        registered=True,
        pid=1,
        cores=1,
        heap_mb=512,
        away=False,
    )
    waiting = "2 of 4 slots are missing"
    job = job_info(JOB, attempt=2, executors=[executor], executors_wanted=4, queries=[QUERY], waiting=waiting)
    job = msgspec.structs.replace(job, status_counts={"RUNNING": 3, "FINISHED": 5})
    assert status_text(job, with_rates=False) == (
        "RUNNING · attempt 2 · executors 1/4 · waiting: 2 of 4 slots are missing"
    )
    assert status_text(job, with_rates=True) == (
        "RUNNING · attempt 2 · executors 1/4 · tasks 3 running, 5 done · counts: batch 17, 1,234 rows/s · "
        "waiting: 2 of 4 slots are missing"
    )
    assert status_text(job_info(JOB, state=JobStatus.FINISHED, executors_wanted=4), with_rates=True) == "FINISHED"


@pytest.mark.parametrize(
    ("backlogs", "text"),
    [
        ([], "-"),
        ([(None, None)], "-"),
        ([(0, 0.0)], "0"),
        ([(1_200, None)], "1,200"),
        ([(1_200, 5.0), (300, 65.0), (None, None)], "1,500 (1m 05s)"),
    ],
)
def test_the_backlog_of_a_job_is_that_of_all_its_queries(
    backlogs: list[tuple[int | None, float | None]], text: str
) -> None:
    queries = [msgspec.structs.replace(QUERY, backlog_rows=rows, backlog_seconds=time) for rows, time in backlogs]
    assert backlog_text(queries) == text


@pytest.mark.parametrize(
    ("left", "text"),
    [
        ({"files": 12, "bytes": 3_565_158}, "12 files, 3.4 MiB"),
        ({"files": 1}, "1 file"),
        ({"time_behind": 8_000}, "8.0s behind"),
        ({"rows": 1_200, "files": 3, "unknown_sources": 1}, "1,200 rows, 3 files, 1 source unknown"),
    ],
)
def test_a_backlog_without_rows_is_told_as_its_sources_count_it(left: dict[str, int], text: str) -> None:
    nothing = BacklogInfo(rows=None, files=None, bytes=None, time_behind=None, unknown_sources=0)
    query = msgspec.structs.replace(QUERY, backlog=msgspec.structs.replace(nothing, **left))
    assert backlog_text([query, QUERY]) == text


def test_the_backlog_of_several_queries_is_added_up() -> None:
    files = BacklogInfo(rows=None, files=3, bytes=None, time_behind=2_000, unknown_sources=0)
    both = [msgspec.structs.replace(QUERY, backlog=files), msgspec.structs.replace(QUERY, backlog=files)]
    rows = msgspec.structs.replace(QUERY, backlog_rows=1_200, backlog_seconds=5.0)
    assert backlog_text([*both, rows]) == "1,200 rows (5.0s), 6 files, 2.0s behind"


def test_a_number_of_executors_that_changes_all_the_time_is_shown_only_where_it_is_redrawn() -> None:
    scaling = DynamicAllocationInfo(wanted=0, minimum=0, maximum=None, changed=0)
    job = job_info(JOB, executors_wanted=3, dynamic_allocation=scaling)
    assert status_text(job, with_rates=False) == "RUNNING"
    assert status_text(job, with_rates=True) == "RUNNING · executors 0/3"
    assert executors_text(2, 0) == "2/0", "idle ones are there until Spark removes them"
    assert executors_text(0, 0) == ""
