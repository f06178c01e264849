"""Read what an attempt's applications have done. Each reading continues from the one before."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import msgspec

from emberkeep.base.clock import Clock, SystemClock
from emberkeep.jobs.progress.work import NOTHING_DONE, STAGES_KEPT, AttemptWork, StageProgress, added, ended
from emberkeep.spark.work.decoding import (
    ExecutorTotals,
    Report,
    decode_executors,
    decode_operations,
    decode_stage,
    decode_work,
    is_nameless,
)
from emberkeep.spark.work.running_tasks import ActiveStage, RunningTasks, StageKey, TaskStore

_GROWTH = 1.1  # durations are read again when the number of ended tasks has grown by this factor
_MOST_TASKS = 50_000  # of a stage, whose durations are read: Spark sorts them for each reading
_ENDED_KEPT = 10
_MOST_RDDS = 300  # of a stage whose graph is read: that of a long iteration has thousands


class Store(TaskStore, Protocol):
    """The status store of one application, see ``StatusStore``."""

    app_id: str

    def active_jobs(self) -> Sequence[Report]: ...

    def completed(self) -> tuple[int, int]: ...

    def executors(self) -> Sequence[Report]: ...

    def active_stages(self) -> tuple[int, Sequence[Report]]: ...

    def stage(self, stage_id: int) -> Report | None: ...

    def graph(self, stage_id: int) -> str: ...

    def execution(self, stage_id: int) -> str: ...

    def durations(self, stage_id: int, stage_attempt: int) -> tuple[int, int]: ...


class WorkReader:
    """Adds up the work of an attempt's applications, one after the other. Any thread may call it."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = SystemClock() if clock is None else clock
        self._lock = threading.RLock()  # a signal handler of the script may interrupt its holder, and stop Spark
        self._is_reading = False
        self._newest = NOTHING_DONE
        self._before = NOTHING_DONE  # of the applications that have ended
        self._application: _Application | None = None

    def read(self, store: Store) -> AttemptWork:
        """Return the attempt's work now, or as last read if this thread is reading it. Raises what ``store`` raises."""
        with self._lock:
            if not self._is_reading:
                self._is_reading = True
                try:
                    self._newest = self._read(store)
                finally:
                    self._is_reading = False
            return self._newest

    def _read(self, store: Store) -> AttemptWork:
        current = self._application
        if current is None or current.app_id != store.app_id:
            if current is not None:
                self._before = added(self._before, ended(current.newest))
            current = self._application = _Application(store.app_id, self._clock)
        return added(self._before, current.read(store))


class _Application:
    """One application: its executors, and the stages that were seen active."""

    def __init__(self, app_id: str, clock: Clock) -> None:
        self.app_id = app_id
        self.newest = NOTHING_DONE
        self._executors = ExecutorTotals()
        self._active: dict[StageKey, StageProgress] = {}
        self._ended: deque[StageProgress] = deque(maxlen=_ENDED_KEPT)
        self._measured: dict[StageKey, tuple[int, tuple[int, int]]] = {}  # ended tasks then, and their durations
        self._running = RunningTasks(clock)
        self._operations: dict[StageKey, str] = {}  # of the active stages
        self._queries: dict[StageKey, str] = {}  # of the active stages that have no name of their own
        self._spilled = (0, 0)  # by stages that have ended: bytes in memory, and on disk

    def read(self, store: Store) -> AttemptWork:
        jobs = store.active_jobs()
        count, reports = store.active_stages()
        active = self._with_running_tasks(store, [(self._stage(store, report), report) for report in reports])
        for key in self._active.keys() - active.keys():
            self._end(store, key)
        self._active = active
        self._measured = {key: known for key, known in self._measured.items() if key in active}
        self._operations = {key: known for key, known in self._operations.items() if key in active}
        self._queries = {key: known for key, known in self._queries.items() if key in active}
        newest_first = sorted(active.values(), key=lambda stage: stage.stage_id, reverse=True)
        stages = (*newest_first, *reversed(self._ended))[:STAGES_KEPT]
        executors = store.executors()
        totals = self._executors.see(executors)
        spilled = _added_spills(self._spilled, *active.values())
        work = decode_work(jobs, store.completed(), totals, count, stages, spilled)
        self.newest = msgspec.structs.replace(work, executors=decode_executors(executors))
        return self.newest

    def _stage(self, store: Store, report: Report) -> StageProgress:
        stage = decode_stage(report, self._query_of(store, report))
        median_ms, slowest_ms = self._durations(store, stage)
        operations = self._operations_of(store, report, _key(stage))
        return msgspec.structs.replace(stage, median_ms=median_ms, slowest_ms=slowest_ms, operations=operations)

    def _with_running_tasks(
        self, store: Store, stages: Sequence[tuple[StageProgress, Report]]
    ) -> dict[StageKey, StageProgress]:
        """Return the active stages with their longest-running tasks, each of which may be the slowest of all."""
        asked = [
            ActiveStage(
                _key(stage), stage.active, stage.completed + stage.failed + int(report.get("numKilledTasks", 0))
            )
            for stage, report in stages
            if stage.tasks <= _MOST_TASKS
        ]
        ran_ms = self._running.see(store, asked)
        found = {}
        for stage, _ in stages:
            running_ms = ran_ms.get(_key(stage), 0)
            slowest_ms = max(stage.slowest_ms, running_ms)
            found[_key(stage)] = msgspec.structs.replace(stage, running_ms=running_ms, slowest_ms=slowest_ms)
        return found

    def _operations_of(self, store: Store, report: Report, key: StageKey) -> str:
        """Return what a stage does. It is read once: it does not change."""
        known = self._operations.get(key)
        if known is None:
            is_small = len(report.get("rddIds", ())) <= _MOST_RDDS
            known = self._operations[key] = decode_operations(store.graph(key[0])) if is_small else ""
        return known

    def _query_of(self, store: Store, report: Report) -> str:
        """Return the name of a stage's query if the stage has none of its own. It is read once."""
        if not is_nameless(report):
            return ""
        key = int(report["stageId"]), int(report.get("attemptId", 0))
        if key not in self._queries:
            self._queries[key] = store.execution(key[0])
        return self._queries[key]

    def _end(self, store: Store, key: StageKey) -> None:
        """Count a stage that is no longer active, once. If Spark does not answer, nothing has changed."""
        report, newest = store.stage(key[0]), self._active[key]
        if report is not None and int(report.get("attemptId", 0)) == key[1]:
            newest = self._stage(store, report)
            self._ended.append(newest)
        self._spilled = _added_spills(self._spilled, newest)
        del self._active[key]

    def _durations(self, store: Store, stage: StageProgress) -> tuple[int, int]:
        """Return the durations of a stage's tasks. They are read the less often, the more tasks have ended."""
        key = _key(stage)
        measured, durations = self._measured.get(key, (0, (0, 0)))
        has_grown = stage.completed == stage.tasks or stage.completed >= measured * _GROWTH
        if measured < stage.completed <= _MOST_TASKS and has_grown:
            durations = store.durations(*key)
            self._measured[key] = (stage.completed, durations)
        return durations


def _added_spills(before: tuple[int, int], *stages: StageProgress) -> tuple[int, int]:
    return before[0] + sum(one.spilled_memory for one in stages), before[1] + sum(one.spilled_disk for one in stages)


def _key(stage: StageProgress) -> StageKey:
    return stage.stage_id, stage.stage_attempt
