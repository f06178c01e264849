"""For any load: the autoscaler stays within its bounds, changes seldom, and does not swing on a constant load."""

from __future__ import annotations

from itertools import pairwise

import hypothesis
import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.campaign import examples
from tests.unit.autoscale.simulated_stream import MINUTE, SETTINGS, SimulatedStream

HOUR = 60 * MINUTE
streams = st.fixed_dictionaries(
    {
        "speed": st.floats(50, 20_000),
        "fixed_ms": st.integers(0, 20_000),
        "most_rows": st.integers(1000, 200_000),
        "interval_ms": st.sampled_from([0, 5000, 10_000, 60_000]),
        "start_ms": st.integers(0, 120_000),
        "available": st.sampled_from([1, 3, 8, 100]),
        "count": st.integers(1, 16),
    }
)
bounds = st.tuples(st.integers(1, 8), st.integers(0, 20)).map(
    lambda pair: msgspec.structs.replace(SETTINGS, minimum=pair[0], maximum=pair[0] + pair[1])
)


@hypothesis.settings(max_examples=examples(6), deadline=None)
@given(rate=st.floats(0, 20_000), given_=streams, settings=bounds)
def test_a_constant_load_is_met_without_swinging(rate: float, given_: dict[str, int], settings: object) -> None:
    """Once the backlog of the start has been read, executors are removed, and none is added again."""
    stream = SimulatedStream(lambda _: rate, settings=settings, **given_)  # type: ignore[arg-type]
    stream.run(3 * HOUR)
    sizes = [resized.count for _, resized in stream.changes]
    directions = [
        after > before for before, after in pairwise([stream.scaler.count if not sizes else sizes[0], *sizes])
    ]
    turns = sum(one != other for one, other in pairwise(directions[1:]))
    assert turns <= 2, (sizes, "up for the backlog, down after it")
    assert not [at for at, _ in stream.changes if at > 2 * HOUR] or stream.backlog > 0


@hypothesis.settings(max_examples=examples(6), deadline=None)
@given(
    rates=st.lists(st.floats(0, 20_000), min_size=1, max_size=48),
    minutes=st.integers(1, 60),
    given_=streams,
    settings=bounds,
)
def test_any_load_leads_to_few_changes_within_the_bounds(
    rates: list[float], minutes: int, given_: dict[str, int], settings: object
) -> None:
    def rate(ms: int) -> float:
        return rates[ms // (minutes * MINUTE) % len(rates)]

    stream = SimulatedStream(rate, settings=settings, **given_)  # type: ignore[arg-type]
    stream.run(3 * HOUR)
    before, last = stream.scaler.settings.minimum, -SETTINGS.down_pause_ms
    for at, resized in stream.changes:
        assert stream.scaler.settings.minimum <= resized.count <= stream.scaler.settings.maximum
        pause = SETTINGS.up_pause_ms if resized.count > before else SETTINGS.down_pause_ms
        assert at - last >= pause
        before, last = resized.count, at
