"""How long the longest-running task of each active stage has run, which Spark's summary of tasks that ended leaves out.

Spark looks through all tasks of a stage to find it. So few stages are asked for in each reading, and each of them
seldom. A stage none of whose tasks has ended since it was asked for need not be asked for again: tasks that have begun
since are younger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from emberkeep.base.clock import Clock

MOST_STAGES: Final = 3  # that are asked for in one reading
LEAST_SECONDS: Final = 2.0  # between two questions about a stage
_SHARE: Final = 50  # questions about a stage take at most one part in so many of the time

StageKey = tuple[int, int]  # stage, and its attempt


class TaskStore(Protocol):
    """The tasks in the status store of one application, see ``StatusStore``."""

    def oldest_running(self, stage_id: int, stage_attempt: int) -> int: ...


@dataclass(frozen=True)
class ActiveStage:
    """``ended``: tasks that run no longer, however they ended."""

    key: StageKey
    running: int
    ended: int


@dataclass(frozen=True)
class _Known:
    ended: int  # tasks then
    launched_ms: int  # of the task that has run longest; 0: none ran
    ran_ms: int  # how long it had run then
    next_question: float  # not earlier, on the monotonic clock


class RunningTasks:
    """Remembers the longest-running task of each active stage of one application."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[StageKey, _Known] = {}

    def see(self, store: TaskStore, stages: Sequence[ActiveStage]) -> dict[StageKey, int]:
        """Return how many milliseconds the longest-running task of each stage has run; 0 if that is unknown.

        Raises what ``store`` raises.
        """
        self._known = {stage.key: self._known[stage.key] for stage in stages if stage.key in self._known}
        now = self._clock.monotonic()
        due = [stage for stage in stages if self._is_due(stage, now)]
        due.sort(key=lambda stage: self._known[stage.key].next_question if stage.key in self._known else 0.0)
        for stage in due[:MOST_STAGES]:
            self._ask(store, stage)
        return {stage.key: self._ran_ms(stage) for stage in stages}

    def _is_due(self, stage: ActiveStage, now: float) -> bool:
        known = self._known.get(stage.key)
        if stage.running <= 0 or known is None:
            return stage.running > 0
        return not self._still_runs(known, stage) and now >= known.next_question

    def _ask(self, store: TaskStore, stage: ActiveStage) -> None:
        began = self._clock.monotonic()
        launched_ms = store.oldest_running(*stage.key)
        ended = self._clock.monotonic()
        pause = max(LEAST_SECONDS, _SHARE * (ended - began))
        self._known[stage.key] = _Known(stage.ended, launched_ms, self._since(launched_ms), ended + pause)

    def _ran_ms(self, stage: ActiveStage) -> int:
        known = self._known.get(stage.key)
        if known is None or stage.running <= 0:
            return 0
        return self._since(known.launched_ms) if self._still_runs(known, stage) else known.ran_ms

    @staticmethod
    def _still_runs(known: _Known, stage: ActiveStage) -> bool:
        return known.launched_ms > 0 and known.ended == stage.ended

    def _since(self, launched_ms: int) -> int:
        return max(0, self._clock.now_ms() - launched_ms) if launched_ms > 0 else 0
