"""What the plots of a task manager's machine show."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.unit.web.conftest import JavaScript

SAMPLES = """
const sample = (time, cpu, taken, free = 1000) => ({
  time, "cpu-percent": cpu, "memory-used-mb": 2048, "disk-free-mb": free, slots: 2, "slots-taken": taken,
});
const history = (...samples) => ({
  since: 1000, interval: 10000, "memory-total-mb": 16384, "disk-total-mb": 102400, samples,
  "earlier-interval": 300000, earlier: [],
});
const one = history(sample(10000, 5, 0), sample(20000, 6, 1));
"""


@pytest.fixture
def evaluated(javascript: JavaScript) -> Callable[[str], Any]:
    """Returns the value of an expression that may use the modules and ``one``."""
    return partial(javascript, ["usage_series", "marks"], before=SAMPLES)


def test_an_answer_replaces_the_newest_sample_and_goes_on(evaluated: Any) -> None:
    answer = "history(sample(20000, 7, 2), sample(30000, 8, 2))"
    found = f"usage_series.continued(one, {answer}).samples.map((one) => [one.time, one['cpu-percent']])"
    assert evaluated(found) == [[10000, 5], [20000, 7], [30000, 8]]
    assert evaluated("usage_series.continued(undefined, one).samples.length") == 2
    assert evaluated("usage_series.continued(one, history()).samples.length") == 2


def test_what_is_older_than_an_hour_becomes_coarser(evaluated: Any) -> None:
    known = "history(sample(300000, 10, 0, 50), sample(310000, 40, 2), sample(320000, 5, 1))"
    later = f"usage_series.continued({known}, history(sample(3910000, 1, 1)))"
    assert evaluated(f"{later}.samples.map((one) => one.time)") == [320000, 3910000]
    fields = "[one.time, one['cpu-percent'], one['slots-taken'], one['disk-free-mb']]"
    assert evaluated(f"{later}.earlier.map((one) => {fields})") == [[300000, 25, 2, 50]]
    last = f"usage_series.continued({later}, history(sample(90000000, 1, 1)))"
    assert evaluated(f"[{last}.earlier.length, {last}.samples.length]") == [1, 1]


def test_a_page_that_slept_for_long_reads_everything_again(evaluated: Any) -> None:
    assert evaluated("usage_series.hasGap(one, history(sample(30000, 1, 1)))") is False
    assert evaluated("usage_series.hasGap(one, {...history(sample(9000000, 1, 1)), earlier: [sample(300000, 1, 1)]})")
    assert evaluated("usage_series.hasGap(one, {...one, since: 2000})"), "another leader knows another history"


def test_the_most_slots_that_were_taken_are_named(evaluated: Any) -> None:
    counts = "[[0, 8, 3], [10000, 8, 7], [20000, 4, 1]]"
    samples = f"{counts}.map(([time, slots, taken]) => ({{ time, slots, 'slots-taken': taken }}))"
    text = evaluated(f"usage_series.slotSummary({samples}, 0)")
    assert text.startswith("1 of 4 slots taken · at most 7 of 8, last at ")
    slots = "{ since: 0, interval: 10000, 'earlier-interval': 300000, earlier: [], samples: " + samples + " }"
    found = f"usage_series.together([usage_series.continued(undefined, {slots})]).samples"
    assert evaluated(f"{found}.map((one) => [one.time, one.slots, one['slots-taken'], one.step])") == [
        [0, 8, 3, 10000],
        [10000, 8, 7, 10000],
        [20000, 4, 1, 10000],
    ]


def test_no_line_joins_samples_with_a_gap_between_them(evaluated: Any) -> None:
    gap = "[[0, 300000], [150000, 10000], [160000, 10000], [200000, 10000]].map(([time, step]) => ({time, step}))"
    found = f"usage_series.usageRows({gap}, 210000).map((row) => [row.at, row.record === null])"
    assert evaluated(found) == [[0, False], [150, False], [160, False], [170, True], [200, False], [210, True]]
    assert evaluated("usage_series.usageRows([], 70000)") == []


def test_task_managers_of_one_machine_are_added_up(evaluated: Any) -> None:
    both = "usage_series.together([one, history(sample(20000, 9, 2, 500), sample(30000, 1, 1))])"
    assert evaluated(f"{both}.samples.map((one) => [one.time, one['cpu-percent'], one['disk-free-mb']])") == [
        [10000, 5, 1000],
        [20000, 9, 500],
        [30000, 1, 1000],
    ]
    assert evaluated(f"{both}.samples.map((one) => [one['slots-taken'], one.slots])") == [[0, 2], [3, 4], [1, 2]]
    assert evaluated(f"{both}.samples.map((one) => one.step)") == [10000] * 3
    assert evaluated(f"[{both}.memory, {both}.disk]") == [16 * 1024**3, 100 * 1024**3]
    assert evaluated("usage_series.together([{ ...history(), since: null }])") is None


def test_task_managers_of_one_machine_are_thinned_alike(evaluated: Any) -> None:
    """One that is gone has nothing newer, so its newest samples are not thinned yet."""
    lasting = "{...history(sample(7200000, 1, 1)), earlier: [sample(0, 5, 1), sample(300000, 5, 1)]}"
    both = f"usage_series.together([one, {lasting}]).samples.map((one) => [one.time, one.step, one['slots-taken']])"
    assert evaluated(both) == [[0, 300000, 2], [300000, 300000, 1], [7200000, 10000, 1]]


def test_the_newest_sample_is_described_in_a_sentence(evaluated: Any) -> None:
    assert evaluated("usage_series.summary(usage_series.together([one]))") == (
        "6 % CPU · 2 GiB of 16 GiB memory in use · 1000 MiB of 100 GiB disk free · 1 of 2 slots taken"
        " · known since 1970-01-01 00:00:01"
    )
    unknown = "{ ...usage_series.together([one]), memory: 0, disk: 0 }"
    assert "· 2 GiB memory in use · 1000 MiB disk free ·" in evaluated(f"usage_series.summary({unknown})")


def test_each_mark_of_a_node_has_a_shape_and_an_explanation(evaluated: Any) -> None:
    assert evaluated("marks.NODE_GROUPS.filter((group) => !group.legend || !group.shape)") == []
    assert evaluated("new Set(marks.NODE_GROUPS.map((group) => group.shape)).size === marks.NODE_GROUPS.length")
    assert evaluated("marks.groupOf({ kind: 'task-manager-lost' }).legend") == "task manager silent, lost or gone"
