"""The history of how busy a task manager's machine has been."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from emberkeep.base.ids import TaskManagerId
from emberkeep.usage.histories import GONE_KEPT, UsageHistories
from emberkeep.usage.history import (
    EARLIER_KEPT,
    EARLIER_STEPS,
    NEARLY_FULL_MB,
    SAMPLES_KEPT,
    Reading,
    Sample,
    UsageHistory,
    step_ms,
)

STEP = 10_000
LENGTH = EARLIER_STEPS * STEP  # of an earlier sample
START = 1_795_000_000_000


def reading(cpu: float = 10.0, *, taken: int = 1, memory: int = 2_000, disk: int = 50_000) -> Reading:
    return Reading(cpu_percent=cpu, memory_used_mb=memory, disk_free_mb=disk, slots=4, slots_taken=taken)


def sample(time_ms: int, cpu: float = 10.0, taken: int = 1) -> Sample:
    return Sample(
        time_ms=time_ms, cpu_percent=cpu, memory_used_mb=2_000, disk_free_mb=50_000, slots=4, slots_taken=taken
    )


@pytest.mark.parametrize(
    ("heartbeat", "step"), [(0.1, 10_000), (2.0, 10_000), (5.0, 10_000), (5.1, 20_000), (60.0, 120_000)]
)
def test_an_interval_is_long_enough_for_a_heartbeat(heartbeat: float, step: int) -> None:
    assert step_ms(heartbeat) == step


def test_a_history_is_empty_before_the_first_reading() -> None:
    history = UsageHistory(STEP)
    assert (history.since_ms, history.samples()) == (0, ())


def test_a_sample_has_the_mean_load_of_its_interval_and_the_newest_of_the_rest() -> None:
    history = UsageHistory(STEP)
    history.note(reading(0.0, taken=0), START + 1_000)
    for second, cpu in ((12, 30.0), (14, 60.0), (18, 0.0)):
        history.note(reading(cpu, taken=2), START + 1_000 * second)
    history.note(reading(25.0, taken=3), START + 21_000)

    assert history.since_ms == START + 1_000
    assert history.samples() == (
        sample(START, 0.0, taken=0),
        # 30 % for 10 s at most, 60 % for 2 s, 0 % for 4 s
        sample(START + STEP, 26.2, taken=2),
        sample(START + 2 * STEP, 25.0, taken=3),
    )


def test_a_reading_that_follows_at_once_changes_the_load_little() -> None:
    history = UsageHistory(STEP)
    history.note(reading(0.0), START)
    history.note(reading(10.0), START + 5_000)
    history.note(reading(100.0), START + 5_001)

    (only,) = history.samples()
    assert only.cpu_percent < 10.1


def test_the_newest_samples_are_kept() -> None:
    history = UsageHistory(STEP)
    for number in range(3 * SAMPLES_KEPT + 7):
        history.note(reading(taken=number % 4), START + number * STEP)

    found = history.samples()
    first = 2 * SAMPLES_KEPT + 7
    assert found == tuple(
        sample(START + number * STEP, taken=number % 4) for number in range(first, first + SAMPLES_KEPT)
    )
    assert history.since_ms == START


def earlier_times(history: UsageHistory) -> list[int]:
    return [one.time_ms for one in history.earlier()]


def test_what_is_older_is_thinned_to_the_mean_load_and_the_worst_of_the_rest() -> None:
    history = UsageHistory(STEP)
    begin = START - START % LENGTH
    for number in range(SAMPLES_KEPT + EARLIER_STEPS):
        disk, memory = (7_000, 9_000) if number == 3 else (50_000, 2_000)
        history.note(
            reading(float(number % 2), taken=4 if number == 2 else 1, memory=memory, disk=disk), begin + number * STEP
        )

    assert len(history.samples()) == SAMPLES_KEPT
    assert history.earlier() == (
        Sample(time_ms=begin, cpu_percent=0.5, memory_used_mb=9_000, disk_free_mb=7_000, slots=4, slots_taken=4),
    )
    assert history.earlier(begin) == ()


def test_a_day_is_kept_without_a_hole() -> None:
    history = UsageHistory(STEP)
    readings = 3 * EARLIER_KEPT * EARLIER_STEPS // 2
    for number in range(readings):
        history.note(reading(), START + number * STEP)

    assert EARLIER_KEPT - 1 <= len(history.earlier()) <= EARLIER_KEPT
    assert {after - before for before, after in pairwise(earlier_times(history))} == {LENGTH}
    assert 0 < history.samples()[0].time_ms - earlier_times(history)[-1] <= LENGTH
    assert 86_400_000 - LENGTH < history.samples()[-1].time_ms - earlier_times(history)[0] <= 86_400_000


def test_what_is_old_is_thinned_however_few_samples_there_are() -> None:
    history = UsageHistory(STEP)
    history.note(reading(), START)
    history.note(reading(), START + 3_600_000)
    assert (earlier_times(history), len(history.samples())) == ([START - START % LENGTH], 1)
    history.note(reading(), START + 48 * 3_600_000)
    assert (earlier_times(history), len(history.samples())) == ([], 1)


def test_a_reader_continues_after_what_it_knows() -> None:
    history = UsageHistory(STEP)
    for number in range(4):
        history.note(reading(), START + number * STEP)

    assert [one.time_ms for one in history.samples(START + STEP)] == [START + 2 * STEP, START + 3 * STEP]
    assert [one.time_ms for one in history.samples(START + 3 * STEP - 1)] == [START + 3 * STEP]
    assert history.samples(START + 3 * STEP) == ()


def test_intervals_without_a_reading_have_no_sample() -> None:
    history = UsageHistory(STEP)
    history.note(reading(), START)
    history.note(reading(), START + 6 * STEP)

    assert [one.time_ms for one in history.samples()] == [START, START + 6 * STEP]


def test_a_clock_that_is_set_back_a_little_changes_no_order() -> None:
    history = UsageHistory(STEP)
    history.note(reading(), START + STEP)
    history.note(reading(taken=2), START + STEP - 500)

    assert history.samples() == (sample(START + STEP, taken=2),)


def test_a_clock_that_is_set_back_far_begins_the_history_anew() -> None:
    history = UsageHistory(STEP)
    for number in range(2 * SAMPLES_KEPT):
        history.note(reading(), START + number * STEP)
    history.note(reading(), START)

    assert (history.since_ms, history.samples(), history.earlier()) == (START, (sample(START),), ())


@pytest.mark.parametrize("cpu", [math.nan, math.inf, -1.0, 1e9])
def test_a_load_that_cannot_be_counts_as_none(cpu: float) -> None:
    history = UsageHistory(STEP)
    history.note(reading(cpu), START)

    assert history.samples() == (sample(START, 0.0),)


def test_numbers_beyond_all_machines_are_cut() -> None:
    history = UsageHistory(STEP)
    for number, size in enumerate((2**70, -5, 7)):
        wrong = Reading(cpu_percent=1.0, memory_used_mb=size, disk_free_mb=size, slots=size, slots_taken=size)
        history.note(wrong, START + number * STEP)

    assert [(one.memory_used_mb, one.disk_free_mb, one.slots, one.slots_taken) for one in history.samples()] == [
        (2**32 - 1, 2**32 - 1, 2**16 - 1, 2**16 - 1),
        (0, 0, 0, 0),
        (7, 7, 7, 7),
    ]


def test_a_task_manager_that_comes_back_continues_its_history() -> None:
    histories = UsageHistories(STEP)
    name = TaskManagerId("tm-1")
    histories.note(name, reading(), START)
    histories.left(name)
    assert histories.of(name).samples() == (sample(START),)

    histories.note(name, reading(), START + 3 * STEP)
    assert histories.of(name).samples() == (sample(START), sample(START + 3 * STEP))


def test_those_that_left_first_are_forgotten_first() -> None:
    histories = UsageHistories(STEP)
    names = [TaskManagerId(f"tm-{number}") for number in range(GONE_KEPT + 1)]
    for name in names:
        histories.note(name, reading(), START)
        histories.left(name)
    histories.left(TaskManagerId("tm-unknown"))

    assert [len(histories.of(name).samples()) for name in names] == [0] + [1] * GONE_KEPT


def test_the_histories_of_500_task_managers_take_less_than_8_mb() -> None:
    history = UsageHistory(STEP)
    for number in range(2 * EARLIER_KEPT * EARLIER_STEPS):
        history.note(reading(), START + number * STEP)

    kept = history.kept()
    assert (len(kept.samples) + len(kept.earlier)) * 500 < 8_000_000


def test_a_full_disk_is_known_since_its_first_low_reading() -> None:
    history = UsageHistory(STEP)
    history.note(reading(), START)
    history.note(reading(disk=NEARLY_FULL_MB - 1), START + 3_000)
    history.note(reading(disk=1), START + 9_000)
    assert history.disk_low_since_ms == START + 3_000
    history.note(reading(disk=NEARLY_FULL_MB), START + 12_000)
    assert history.disk_low_since_ms == 0
