"""Restart strategies behave as Flink's do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emberkeep.base.configuration.values import Configuration
from emberkeep.jobs.restart import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    GiveUp,
    NoRestart,
    Restart,
    restart_strategy,
)


def exponential(**changes: float) -> ExponentialDelay:
    values: dict[str, float] = {
        "initial": 1.0,
        "longest": 10.0,
        "multiplier": 2.0,
        "reset_after": 60.0,
        "jitter": 0.0,
        "attempts": 0,
    }
    return ExponentialDelay(**{**values, **changes})  # type: ignore[arg-type]


def test_none_gives_up_at_once() -> None:
    assert isinstance(NoRestart().failed(0.0, 0.5), GiveUp)


def test_fixed_delay_restarts_as_often_as_it_says() -> None:
    strategy = FixedDelay(2, 3.0)
    assert [strategy.failed(0.0, 0.5) for _ in range(2)] == [Restart(3.0), Restart(3.0)]
    assert isinstance(strategy.failed(0.0, 0.5), GiveUp)


def test_exponential_delay_grows_to_its_bound() -> None:
    strategy = exponential()
    now, delays = 0.0, []
    for _ in range(6):
        decision = strategy.failed(now, 0.5)
        assert isinstance(decision, Restart)
        delays.append(decision.delay)
        now += decision.delay
    assert delays == [0.0, 1.0, 2.0, 4.0, 8.0, 10.0], "the first restart waits for nothing"


def test_exponential_delay_starts_anew_after_a_long_run() -> None:
    strategy = exponential(attempts=2)
    strategy.failed(0.0, 0.5)
    assert strategy.failed(59.5, 0.5) == Restart(1.0), "the run lasted 59.5 s"
    assert strategy.failed(59.5 + 1.0 + 60.0, 0.5) == Restart(0.0), "it lasted exactly 60 s"
    assert strategy.failed(124.0, 0.5) == Restart(1.0), "the count began anew, too"
    assert isinstance(strategy.failed(127.0, 0.5), GiveUp)


@given(chance=st.floats(0, 1, exclude_max=True), jitter=st.floats(0, 1), failures=st.integers(1, 12))
def test_jitter_stays_within_its_share_and_the_bound(chance: float, jitter: float, failures: int) -> None:
    strategy, plain = exponential(jitter=jitter), exponential()
    for _ in range(failures):
        decision, base = strategy.failed(0.0, chance), plain.failed(0.0, 0.5)
        assert isinstance(decision, Restart)
        assert isinstance(base, Restart)
        assert base.delay * (1 - jitter) - 1e-9 <= decision.delay <= min(10.0, base.delay * (1 + jitter) + 1e-9)


def test_failure_rate_gives_up_above_the_rate_only() -> None:
    strategy = FailureRate(2, 60.0, 1.0)
    assert [strategy.failed(now, 0.5) for now in (0.0, 50.0)] == [Restart(1.0)] * 2
    assert strategy.failed(60.1, 0.5) == Restart(1.0), "the first failure is older than the interval"
    assert isinstance(strategy.failed(100.0, 0.5), GiveUp), "three within 60 s"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("none", NoRestart),
        ("off", NoRestart),
        ("disable", NoRestart),
        ("fixed-delay", FixedDelay),
        ("fixeddelay", FixedDelay),
        ("exponential-delay", ExponentialDelay),
        ("exponentialdelay", ExponentialDelay),
        ("failure-rate", FailureRate),
        ("failurerate", FailureRate),
    ],
)
def test_each_name_of_flink_s_is_understood(name: str, kind: type) -> None:
    assert type(restart_strategy(Configuration().with_texts({"restart-strategy.type": name}, "test"))) is kind


def test_a_job_s_options_override_the_cluster_s() -> None:
    cluster = Configuration().with_texts({"restart-strategy.type": "none"}, "file")
    options = {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1",
        "restart-strategy.fixed-delay.delay": "250 ms",
    }
    strategy = restart_strategy(cluster.with_texts(options, "job"))
    assert strategy.failed(0.0, 0.5) == Restart(0.25)
    assert isinstance(strategy.failed(0.0, 0.5), GiveUp)
