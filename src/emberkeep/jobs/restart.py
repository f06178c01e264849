"""Restart strategies decide whether and after what delay a lost driver is restarted. Names and keys are Flink's.

A strategy counts failures and decides after each, with Flink's semantics. Its count is lost with the JobManager
process: a new leader starts from zero, as in Flink.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

import msgspec

from emberkeep.base.configuration.options.restarts import (
    EXPONENTIAL_ATTEMPTS,
    EXPONENTIAL_INITIAL,
    EXPONENTIAL_JITTER,
    EXPONENTIAL_MAX,
    EXPONENTIAL_MULTIPLIER,
    EXPONENTIAL_RESET,
    FIXED_ATTEMPTS,
    FIXED_DELAY,
    RATE_DELAY,
    RATE_INTERVAL,
    RATE_MAX,
    RESTART_STRATEGY,
)
from emberkeep.base.configuration.values import Configuration


class Restart(msgspec.Struct, frozen=True):
    """The job is restarted after ``delay`` seconds."""

    delay: float


class GiveUp(msgspec.Struct, frozen=True):
    """The job fails. ``reason`` completes the sentence "not restarted: …"."""

    reason: str


Decision = Restart | GiveUp


class RestartStrategy(Protocol):
    def failed(self, now: float, chance: float) -> Decision:
        """Count a failure at ``now`` (monotonic seconds) and decide. ``chance`` is a random number in [0, 1)."""


class NoRestart:
    """``none``: the first failure ends the job."""

    def failed(self, now: float, chance: float) -> Decision:
        return GiveUp("restart-strategy.type is none")


class FixedDelay:
    """``fixed-delay``: at most ``attempts`` restarts, each after ``delay`` seconds."""

    def __init__(self, attempts: int, delay: float) -> None:
        self._attempts = attempts
        self._delay = delay
        self._failures = 0

    def failed(self, now: float, chance: float) -> Decision:
        self._failures += 1
        if self._failures > self._attempts:
            return GiveUp(f"{FIXED_ATTEMPTS.key} is {self._attempts}")
        return Restart(self._delay)


class ExponentialDelay:
    """``exponential-delay``: growing delays, reset after an attempt that ran for ``reset_after`` seconds.

    The first restart, and the first after a reset, has no delay: most lost drivers are single events, and a pause would
    only be a longer outage. ``attempts`` limits the restarts in a row without a reset; 0 means no limit.
    """

    def __init__(
        self, *, initial: float, longest: float, multiplier: float, reset_after: float, jitter: float, attempts: int
    ) -> None:
        self._initial = initial
        self._longest = max(initial, longest)
        self._multiplier = multiplier
        self._reset_after = reset_after
        self._jitter = jitter
        self._attempts = attempts
        self._backoff = 0.0
        self._restart_at: float | None = None
        self._restarts = 0

    def failed(self, now: float, chance: float) -> Decision:
        if self._restart_at is None or now - self._restart_at >= self._reset_after:
            self._backoff = 0.0
            self._restarts = 0
        elif self._backoff == 0.0:
            self._backoff = self._initial
        else:
            self._backoff = min(self._backoff * self._multiplier, self._longest)
        self._restarts += 1
        if self._attempts and self._restarts > self._attempts:
            return GiveUp(f"{EXPONENTIAL_ATTEMPTS.key} is {self._attempts}")
        delay = min(self._backoff * (1 + self._jitter * (2 * chance - 1)), self._longest)
        self._restart_at = now + delay
        return Restart(delay)


class FailureRate:
    """``failure-rate``: more than ``most`` failures within ``interval`` seconds end the job."""

    def __init__(self, most: int, interval: float, delay: float) -> None:
        self._interval = interval
        self._delay = delay
        self._failures: deque[float] = deque(maxlen=most + 1)

    def failed(self, now: float, chance: float) -> Decision:
        self._failures.append(now)
        full = len(self._failures) == self._failures.maxlen
        if full and now - self._failures[0] <= self._interval:
            return GiveUp(f"more than {len(self._failures) - 1} failures in {self._interval:g} s ({RATE_MAX.key})")
        return Restart(self._delay)


def restart_strategy(configuration: Configuration) -> RestartStrategy:
    """Return the strategy that ``configuration`` (the cluster's, overridden by the job's options) names."""
    kind = configuration[RESTART_STRATEGY].replace("-", "")
    if kind == "fixeddelay":
        return FixedDelay(configuration[FIXED_ATTEMPTS], configuration[FIXED_DELAY])
    if kind == "exponentialdelay":
        return ExponentialDelay(
            initial=configuration[EXPONENTIAL_INITIAL],
            longest=configuration[EXPONENTIAL_MAX],
            multiplier=configuration[EXPONENTIAL_MULTIPLIER],
            reset_after=configuration[EXPONENTIAL_RESET],
            jitter=configuration[EXPONENTIAL_JITTER],
            attempts=configuration[EXPONENTIAL_ATTEMPTS],
        )
    if kind == "failurerate":
        return FailureRate(configuration[RATE_MAX], configuration[RATE_INTERVAL], configuration[RATE_DELAY])
    return NoRestart()
