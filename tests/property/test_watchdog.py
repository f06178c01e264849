"""What holds for the watchdog whatever jobs do: no alarm on a constant load, few alarms, and none that stays."""

from __future__ import annotations

from collections import Counter
from typing import Any

import hypothesis
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from emberkeep.watchdog.model import AlarmKind, Cleared, Effect, Raised, RestartAdvised
from tests.campaign import examples
from tests.unit.watchdog.watched import WatchedJob, settings


@hypothesis.settings(max_examples=examples(30), deadline=None)
@given(
    duration=st.floats(0.1, 600.0),
    jitter=st.lists(st.floats(0.5, 2.0), min_size=1, max_size=20),
    pause=st.floats(0.0, 600.0),
    backlog=st.lists(st.integers(50_000, 99_999), min_size=1, max_size=20),
    rows=st.lists(st.integers(0, 10_000), min_size=1, max_size=20),
)
def test_a_constant_load_raises_no_alarm(
    duration: float, jitter: list[float], pause: float, backlog: list[int], rows: list[int]
) -> None:
    """Batches take about the same time, then the query waits; state and backlog vary within their usual bounds."""
    job = WatchedJob(settings(commit_first_time=3000.0))
    for step in range(60):
        took = duration * jitter[step % len(jitter)]
        waiting, size = backlog[step % len(backlog)], rows[step % len(rows)]
        job.look(took / 2, duration=took, backlog=waiting, state_rows=size)
        job.batch += 1
        job.look(took / 2, duration=took, backlog=waiting, state_rows=size)
        if pause:
            job.look(pause, waits=True, duration=took, backlog=waiting, state_rows=size)
    assert job.raised() == []


class AnyJob(RuleBasedStateMachine):
    """Anything may happen to the job and its query, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.job = WatchedJob(settings(restarts_stalled=True))
        self.began = self.job.now

    @rule(
        seconds=st.sampled_from([1.0, 30.0, 60.0, 101.0, 301.0]),
        waits=st.booleans(),
        held=st.booleans(),
        again=st.booleans(),
        listed=st.booleans(),
        rows=st.sampled_from([0, 9_500, 10_001]),
        backlog=st.sampled_from([None, 0, 900, 2_000, 50_000]),
        files=st.sampled_from([None, 0, 50, 200, 5_000]),
        behind=st.sampled_from([None, 0.0, 59.0, 600.0]),
    )
    def look(self, seconds: float, rows: int, **facts: Any) -> None:
        self.job.look(seconds, state_rows=rows, **facts)

    @rule(seconds=st.floats(0.1, 200.0), duration=st.floats(0.0, 200.0))
    def commit(self, seconds: float, duration: float) -> None:
        self.job.commit(seconds, duration=duration)

    @rule(seconds=st.floats(0.1, 200.0), moved=st.booleans())
    def restart(self, seconds: float, moved: bool) -> None:
        self.job.restart(seconds, moved=moved)

    @invariant()
    def alarms_are_raised_and_cleared_in_turn(self) -> None:
        current: dict[AlarmKind, Effect] = {}
        for effect in self.job.effects:
            match effect:
                case Raised(alarm):
                    assert alarm.kind not in current
                    current[alarm.kind] = effect
                case Cleared(alarm):
                    assert current.pop(alarm.kind) == Raised(alarm)
        assert {alarm.kind for alarm in self.job.alarms} == current.keys()

    @invariant()
    def alarms_are_few(self) -> None:
        elapsed, counts = self.job.now - self.began, Counter(self.job.raised())
        assert counts[AlarmKind.NO_COMMIT] <= elapsed / self.job.settings.commit_min_time
        numbers = 3  # each may grow in turn: rows, files and time
        assert counts[AlarmKind.BACKLOG] <= numbers * elapsed / self.job.settings.backlog_growing_for
        assert counts[AlarmKind.STATE] <= 1 + elapsed / 60.0
        assert counts[AlarmKind.RESTARTS] <= 1 + self.job.attempt / 2

    @invariant()
    def restarts_are_advised_with_pauses(self) -> None:
        advice = [effect for effect in self.job.effects if isinstance(effect, RestartAdvised)]
        assert len(advice) <= 1 + (self.job.now - self.began) / self.job.settings.restart_pause
        assert len({each.attempt for each in advice}) == len(advice)

    def teardown(self) -> None:
        """Whatever has happened, all alarms are over once the job is well for a while."""
        for _ in range(12):
            self.job.batch += 1
            self.job.look(60.0, waits=True, backlog=0, state_rows=0)
        assert self.job.alarms == ()


TestAnyJob = AnyJob.TestCase
TestAnyJob.settings = hypothesis.settings(max_examples=examples(40), stateful_step_count=50, deadline=None)
