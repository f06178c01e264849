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


def test_an_hour_is_kept(evaluated: Any) -> None:
    late = "history(sample(3610000, 1, 1))"
    assert evaluated(f"usage_series.continued(one, {late}).samples.map((one) => one.time)") == [20000, 3610000]


def test_no_line_joins_samples_with_a_gap_between_them(evaluated: Any) -> None:
    gap = "[sample(10000, 1, 1), sample(20000, 1, 1), sample(60000, 1, 1)]"
    found = f"usage_series.usageRows({gap}, 10000, 70000).map((row) => [row.at, row.record === null])"
    assert evaluated(found) == [[10, False], [20, False], [30, True], [60, False], [70, True]]
    assert evaluated("usage_series.usageRows([], 10000, 70000)") == []


def test_task_managers_of_one_machine_are_added_up(evaluated: Any) -> None:
    both = "usage_series.together([one, history(sample(20000, 9, 2, 500), sample(30000, 1, 1))])"
    assert evaluated(f"{both}.samples.map((one) => [one.time, one['cpu-percent'], one['disk-free-mb']])") == [
        [10000, 5, 1000],
        [20000, 9, 500],
        [30000, 1, 1000],
    ]
    assert evaluated(f"{both}.samples.map((one) => [one['slots-taken'], one.slots])") == [[0, 2], [3, 4], [1, 2]]
    assert evaluated(f"[{both}.memory, {both}.disk]") == [16 * 1024**3, 100 * 1024**3]
    assert evaluated("usage_series.together([{ ...history(), since: null }])") is None


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
