"""What the autoscaler decides for loads that are known."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest

from emberkeep.autoscale.machine import Autoscaler
from emberkeep.autoscale.model import BatchFacts
from tests.unit.autoscale.recorded_day import DEPARTURES, rate_at
from tests.unit.autoscale.simulated_stream import MINUTE, SETTINGS, SimulatedStream

HOUR = 60 * MINUTE


def counts(stream: SimulatedStream) -> list[int]:
    return [resized.count for _, resized in stream.changes]


def test_a_stream_that_cannot_keep_up_gets_more_executors_until_it_does() -> None:
    stream = SimulatedStream(lambda _: 4000.0, most_rows=80_000)
    stream.run(HOUR)
    assert counts(stream)[:2] == [2, 4], "it doubles at most"
    assert stream.running * stream.speed > 4000
    assert stream.backlog <= 4000 * stream.interval_ms / 1000, "what had piled up is read"


def test_the_reason_names_the_query_and_its_load() -> None:
    stream = SimulatedStream(lambda _: 4000.0)
    stream.run(2 * MINUTE)
    _, first = stream.changes[0]
    assert first.reason.startswith("query counts needs ")
    assert first.reason.endswith("% of its time, above the target of 70%")


def test_an_idle_stream_gives_its_executors_back_step_by_step() -> None:
    stream = SimulatedStream(lambda _: 10.0, count=16)
    stream.run(2 * HOUR)
    assert counts(stream) == [8, 4, 2, 1]
    gaps = [later - earlier for (earlier, _), (later, _) in zip(stream.changes, stream.changes[1:], strict=False)]
    assert min(gaps) >= SETTINGS.down_pause_ms


def test_a_short_pause_of_the_input_changes_nothing() -> None:
    stream = SimulatedStream(lambda ms: 0.0 if HOUR < ms < HOUR + 5 * MINUTE else 4000.0, count=8)
    stream.run(HOUR)
    before = counts(stream)
    stream.run(2 * HOUR)
    assert counts(stream) == before


def test_executors_that_do_not_help_are_not_followed_by_more() -> None:
    """Each batch takes 9 s of 10 whatever is done: a single partition, say."""
    stream = SimulatedStream(lambda _: 10.0, fixed_ms=9000)
    stream.run(12 * HOUR)
    assert counts(stream) == [2]


def test_a_full_cluster_does_not_make_the_autoscaler_run_away() -> None:
    stream = SimulatedStream(lambda _: 4000.0, available=2)
    stream.run(3 * HOUR)
    assert max(counts(stream)) <= 4, "twice of what it has, until it has that"


def test_a_stream_that_did_not_get_all_that_it_wanted_gives_back_what_it_does_not_need() -> None:
    """A full cluster or a quota kept it below its number; later, that number must not be its for ever."""
    stream = SimulatedStream(lambda ms: 8000.0 if ms < HOUR else 10.0, available=4, most_rows=40_000)
    stream.run(HOUR)
    assert stream.scaler.count > stream.running == 4
    stream.run(24 * HOUR)
    assert stream.scaler.count == stream.running == 1


def test_a_query_whose_trigger_has_no_interval_is_judged_by_the_configured_time() -> None:
    stream = SimulatedStream(lambda _: 900.0, interval_ms=0, fixed_ms=200)
    stream.run(2 * HOUR)
    assert stream.running == 1, "batches follow each other without a pause, and each is short"
    crowded = SimulatedStream(lambda _: 3000.0, interval_ms=0, fixed_ms=200)
    crowded.run(2 * HOUR)
    assert crowded.running * crowded.speed > 3000


def test_a_backlog_is_read_in_time_although_each_batch_is_short() -> None:
    """A bound on the rows of a batch keeps batches short, while the backlog grows."""
    stream = SimulatedStream(lambda ms: 5000.0 if ms < HOUR else 500.0, most_rows=60_000)
    stream.run(HOUR)
    assert max(counts(stream)) > 8
    assert stream.backlog < 60_000
    stream.run(24 * HOUR)
    assert stream.backlog < 60_000
    assert stream.running <= 2


def test_the_busiest_query_decides() -> None:
    scaler = Autoscaler(SETTINGS, 4)
    resized = None
    for number in range(10):
        now = (number + 1) * 10_000
        batches = [
            BatchFacts(query=name, began_ms=now - 9_000, duration_ms=took, rows=1000, interval_ms=10_000)
            for name, took in (("idle", 10), ("busy", 9_500))
        ]
        resized = scaler.look(batches, 4, now)
        if resized:
            break
    assert resized is not None
    assert "query busy" in resized.reason
    assert resized.count == math.ceil(4 * 0.95 / 0.7)


def test_a_query_that_has_ended_holds_no_executors() -> None:
    scaler, now = Autoscaler(SETTINGS, 8), 0
    sizes = set()
    for number in range(400):
        now += 10_000
        batches = [BatchFacts(query="idle", began_ms=now - 10_000, duration_ms=10, rows=1000, interval_ms=10_000)]
        if number < 50:
            batches.append(
                BatchFacts(query="busy", began_ms=now - 10_000, duration_ms=5_000, rows=1000, interval_ms=10_000)
            )
        resized = scaler.look(batches, scaler.count, now)
        sizes.add(scaler.count)
        assert resized is None or number > 50
    assert scaler.count == 1


def test_batches_that_began_before_a_change_are_not_judged() -> None:
    scaler = Autoscaler(SETTINGS, 1)
    late = [
        BatchFacts(query="counts", began_ms=ms, duration_ms=90_000, rows=1000, interval_ms=10_000)
        for ms in range(0, 9_000, 1000)
    ]
    assert scaler.look([], 2, 10_000) is None
    assert scaler.look(late, 2, 10 * MINUTE) is None


@pytest.mark.parametrize("seed", range(5))
def test_a_day_of_load_needs_few_changes_and_few_executors(seed: int) -> None:
    """A day with a night, a rush hour, noise, and a burst of ten minutes: like a web shop's."""
    noise = random.Random(seed)
    factors = [noise.uniform(0.85, 1.15) for _ in range(24 * 60)]

    def rate(ms: int) -> float:
        hour = ms / HOUR % 24
        day = 300.0 + 4000.0 * max(0.0, math.sin((hour - 7) / 14 * math.pi)) if 7 <= hour <= 21 else 300.0
        burst = 3000.0 if 15.0 <= hour <= 15.17 else 0.0
        return (day + burst) * factors[int(ms / MINUTE) % len(factors)]

    stream = SimulatedStream(rate)
    stream.run(24 * HOUR)
    assert stream.worst_backlog_seconds < 120
    assert len(stream.changes) <= 30
    assert stream.executor_ms / (24 * HOUR) < 0.7 * 8, "a fixed number for the peak would be 8"


def test_a_recorded_day_needs_few_changes_and_few_executors() -> None:
    stream = SimulatedStream(lambda ms: rate_at(ms / (24 * HOUR), rows=200.0))
    stream.run(24 * HOUR)
    assert stream.worst_backlog_seconds < 120
    assert len(stream.changes) <= len(DEPARTURES) // 2, "the load itself changes twice as often"
    assert stream.executor_ms / (24 * HOUR) < 0.75 * 7, "a fixed number for the peak would be 7"
    for (before_at, before), (at, after) in pairwise(stream.changes):
        pause = SETTINGS.up_pause_ms if after.count > before.count else SETTINGS.down_pause_ms
        assert at - before_at >= pause


def test_it_goes_on_when_the_clock_is_set_back() -> None:
    stream = SimulatedStream(lambda _: 4000.0, now_ms=5 * HOUR, count=8)
    stream.run(5 * HOUR + 5 * MINUTE)
    stream.rate = lambda _: 10.0
    stream.now_ms -= 3 * HOUR
    stream._ready = [(0, stream.running)]
    before = stream.now_ms
    stream.run(before + 2 * HOUR)
    assert counts(stream)[-1] == 1
    times = [ms for ms, _ in stream.changes if ms < 5 * HOUR]
    assert times[0] - before >= SETTINGS.down_pause_ms, "a pause is no shorter for that"
