"""Tasks that run for longer than others, from a status store whose answers tests set."""

from __future__ import annotations

from emberkeep.base.clock import SystemClock
from emberkeep.spark.work.reader import WorkReader
from emberkeep.spark.work.running_tasks import MOST_STAGES, ActiveStage, RunningTasks
from tests.unit.spark.work.test_work_reader import ScriptedStore, stage

BEGAN_MS = 1_795_000_000_000


class HandClock(SystemClock):
    """Goes on as tests say."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return BEGAN_MS + int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


class SlowStore(ScriptedStore):
    """Takes its time for each answer."""

    def __init__(self, clock: HandClock, seconds: float = 0.0) -> None:
        super().__init__()
        self._clock = clock
        self._seconds = seconds

    def oldest_running(self, stage_id: int, stage_attempt: int) -> int:
        self._clock.seconds += self._seconds
        return super().oldest_running(stage_id, stage_attempt)


def test_a_stage_that_waits_for_a_slow_task_says_so() -> None:
    clock, store = HandClock(), ScriptedStore()
    reader = WorkReader(clock)
    store.active, store.launched = [stage(4, 8, 7)], {4: BEGAN_MS}
    clock.seconds = 0.3
    (one,) = reader.read(store).stages
    assert (one.median_ms, one.slowest_ms, one.running_ms, one.overdue_ms) == (100, 350, 300, 300)

    clock.seconds = 60
    (one,) = reader.read(store).stages
    assert (one.slowest_ms, one.skew, one.left_ms, one.overdue_ms) == (60_000, 600.0, None, 60_000)
    assert (store.searched, store.measured) == ([4], [(4, 0)]), "no task has ended, so the answer is known"

    store.active, store.ended[4] = [], stage(4, 8, 8, "COMPLETE")
    (one,) = reader.read(store).stages
    assert (one.slowest_ms, one.running_ms) == (350, 0), "as Spark says once all have ended"


def test_a_task_that_has_ended_is_slow_no_longer() -> None:
    clock, store = HandClock(), ScriptedStore()
    reader = WorkReader(clock)
    store.active, store.launched = [stage(4, 80, 7)], {4: BEGAN_MS}
    clock.seconds = 20
    reader.read(store)
    store.active, store.launched = [{**stage(4, 80, 7), "numKilledTasks": 1}], {4: BEGAN_MS + 19_500}
    clock.seconds = 21
    assert reader.read(store).stages[0].running_ms == 20_000, "what was seen is not extended"
    clock.seconds = 23
    assert reader.read(store).stages[0].running_ms == 3_500


def test_questions_are_few_however_many_stages_are_active() -> None:
    clock = HandClock()
    store, tasks = SlowStore(clock, seconds=0.1), RunningTasks(clock)
    stages = [ActiveStage((number, 0), running=1, ended=0) for number in range(3 * MOST_STAGES)]
    for _ in range(3):
        before = len(store.searched)
        tasks.see(store, stages)
        assert len(store.searched) - before == MOST_STAGES
    assert sorted(store.searched) == list(range(3 * MOST_STAGES)), "each has its turn"

    begin, before = clock.seconds, len(store.searched)
    for step in range(100):
        clock.seconds += 1
        tasks.see(store, [ActiveStage((0, 0), running=1, ended=step + 1)])
    assert 0 < (len(store.searched) - before) * 0.1 < (clock.seconds - begin) / 40


def test_a_stage_without_running_tasks_is_not_asked_for() -> None:
    clock, store = HandClock(), ScriptedStore()
    tasks = RunningTasks(clock)
    idle = ActiveStage((1, 0), running=0, ended=3)
    assert tasks.see(store, [idle]) == {(1, 0): 0}
    assert store.searched == []
    clock.seconds, store.launched = 10, {1: BEGAN_MS}
    assert tasks.see(store, [ActiveStage((1, 0), running=1, ended=3)]) == {(1, 0): 10_000}


def test_a_huge_stage_is_not_searched() -> None:
    store = ScriptedStore()
    store.active = [stage(0, 100_000, 10)]
    (one,) = WorkReader(HandClock()).read(store).stages
    assert (one.running_ms, store.searched) == (0, [])
