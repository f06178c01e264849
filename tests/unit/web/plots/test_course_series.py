"""What the plots of a job's work and cost show."""

from __future__ import annotations

from tests.unit.web.conftest import JavaScript

DATA = '{began: "1000", step: "10000", tasks: "3 8 8", executors: "1 2 0"}'


def test_samples_are_read_from_the_page(javascript: JavaScript) -> None:
    found = f"course_series.samples({DATA}).map((one) => [one.time, one.tasks, one.rate, one.executors])"
    assert javascript(["course_series"], found) == [[1000, 3, 0.3, 1], [11000, 8, 0.5, 2], [21000, 8, 0, 0]]
    assert javascript(["course_series"], "course_series.samples({})") == []


COST = """{began: "0", step: "10000", tasks: "1 2 3", executors: "1 1 1", taskTime: "4000 8000 8000",
  gcTime: "100 900 900", shuffleRead: "0 20480 20480", shuffleWrite: "10 10 10", spilledMemory: "0 0 40960",
  spilledDisk: "0 0 10240"}"""


def test_cost_is_shown_as_what_each_sample_adds(javascript: JavaScript) -> None:
    fields = "one.gc, one.shuffleRead, one.shuffleWritten, one.spilledMemory, one.spilledDisk"
    found = f"course_series.samples({COST}).map((one) => [{fields}])"
    assert javascript(["course_series"], found) == [[2.5, 0, 1, 0, 0], [20, 2048, 0, 0, 0], [None, 0, 0, 4096, 1024]]


def test_cost_that_a_driver_did_not_record_is_unknown(javascript: JavaScript) -> None:
    found = f"course_series.samples({DATA}).map((one) => [one.gc, one.shuffleRead, one.spilledDisk])"
    assert javascript(["course_series"], found) == [[None] * 3] * 3


def test_the_summary_names_the_highest_cost(javascript: JavaScript) -> None:
    text = javascript(["course_series"], f"course_series.summary(course_series.samples({COST}))")
    assert "· at most 20 % of task time in garbage collection · at most 1 KiB spilled to disks per second ·" in text


def test_what_happened_after_the_newest_sample_has_a_place_in_the_plots(javascript: JavaScript) -> None:
    rows = f"course_series.courseRows(course_series.samples({DATA}), 30000).map((row) => [row.at, row.record === null])"
    assert javascript(["course_series"], rows) == [[1, False], [11, False], [21, False], [30, True]]


def test_the_summary_names_tasks_and_executors(javascript: JavaScript) -> None:
    text = javascript(["course_series"], f"course_series.summary(course_series.samples({DATA}))")
    assert text == (
        "8 tasks done since 1970-01-01 00:00:01, by all attempts · at most 2 executors · a sample for each 10.0 s"
    )


def test_the_title_keeps_what_a_script_has_named_the_page(javascript: JavaScript) -> None:
    before = 'globalThis.document = {documentElement: {dataset: {state: "RUNNING"}}};'
    fresh = '{title: "ALARM · Logs", documentElement: {dataset: {state: "ALARM"}}}'
    found = f'[page_title.titleOf({fresh}), page_title.setName("Log"), document.title, page_title.titleOf({fresh})]'
    assert javascript(["page_title"], found, before=before) == [
        "ALARM · Logs",
        None,
        "RUNNING · Log · Emberkeep",
        "ALARM · Log · Emberkeep",
    ]
