"""Translate what Spark's status store reports, in the form of Spark's REST API. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from emberkeep.jobs.progress.work import (
    EXECUTORS_KEPT,
    NAME_LIMIT,
    AttemptWork,
    ExecutorWork,
    StageProgress,
    most_worked,
)
from emberkeep.spark.executors.blocks import DRIVER

Report = Mapping[str, Any]
_OUTERMOST = 2  # the depth of subgraphs in that of the stage
_NODE = re.compile(r"([0-9]{1,10}) \[")
_LABEL = re.compile(r'label="(.{1,200})";')
# The place of all that a Python script calls: that of py4j, or none that Spark knows.
_NO_PLACE = re.compile(r" at (NativeMethodAccessorImpl\.java|<unknown>):0$")
_LAMBDA = re.compile(r"\$anonfun\$([\w$]+?)\$\d+(?= at |$)")  # what Scala calls a function in a method


class ExecutorTotals:
    """Sums over all executors of an application, those included that Spark has forgotten.

    Spark keeps the newest dead executors only (``spark.ui.retainedDeadExecutors``).
    """

    _FIELDS = (
        "activeTasks",
        "completedTasks",
        "failedTasks",
        "totalDuration",
        "totalGCTime",
        "totalShuffleRead",
        "totalShuffleWrite",
    )

    def __init__(self) -> None:
        self._known: dict[str, dict[str, int]] = {}
        self._forgotten = dict.fromkeys(self._FIELDS, 0)

    def see(self, executors: Iterable[Report]) -> dict[str, int]:
        """Return the sums, given the executors that Spark lists now, active and dead."""
        listed = {
            str(one["id"]): {name: int(one.get(name, 0)) for name in self._FIELDS}
            for one in executors
            if one["id"] != DRIVER  # it is listed, but runs no tasks, and its times are those of its process
        }
        for key in self._known.keys() - listed.keys():
            for name, count in self._known[key].items():
                self._forgotten[name] += 0 if name == "activeTasks" else count
        self._known = listed
        return {name: self._forgotten[name] + sum(one[name] for one in listed.values()) for name in self._FIELDS}


def decode_executors(executors: Iterable[Report]) -> tuple[ExecutorWork, ...]:
    """Return what the executors have done: EXECUTORS_KEPT active ones, then ENDED_EXECUTORS_KEPT that have ended.

    Among the active ones, those that collected most garbage come first; among the others, those that worked most.
    """
    found = [_executor(one) for one in executors if one["id"] != DRIVER]
    active = sorted((one for one in found if one.active), key=lambda one: -one.gc_ms)
    return (*active[:EXECUTORS_KEPT], *most_worked(one for one in found if not one.active))


def _executor(report: Report) -> ExecutorWork:
    return ExecutorWork(
        executor_id=str(report["id"]),
        task_ms=int(report.get("totalDuration", 0)),
        gc_ms=int(report.get("totalGCTime", 0)),
        host=str(report.get("hostPort", "")).rpartition(":")[0][:NAME_LIMIT],
        active=bool(report.get("isActive", True)),
        tasks=int(report.get("completedTasks", 0)),
        failed=int(report.get("failedTasks", 0)),
    )


def is_nameless(stage: Report) -> bool:
    """Return whether a stage has neither a description nor the name of what the script calls.

    Spark's SQL starts such a stage in a thread of its own. Its name is that of a function in Spark.
    """
    return not stage.get("description") and bool(_LAMBDA.search(str(stage.get("name", ""))))


def decode_stage(stage: Report, query: str = "") -> StageProgress:
    """Return the progress of a stage, without the durations of its tasks. ``query``: its name instead of its own."""
    return StageProgress(
        stage_id=int(stage["stageId"]),
        stage_attempt=int(stage.get("attemptId", 0)),
        name=_title(str(query or stage.get("description") or stage.get("name", "")))[:NAME_LIMIT],
        status=str(stage.get("status", "")),
        tasks=int(stage.get("numTasks", 0)),
        active=int(stage.get("numActiveTasks", 0)),
        completed=int(stage.get("numCompleteTasks", 0)),
        failed=int(stage.get("numFailedTasks", 0)),
        submitted_ms=int(stage.get("submissionTime") or 0),
        spilled_memory=int(stage.get("memoryBytesSpilled", 0)),
        spilled_disk=int(stage.get("diskBytesSpilled", 0)),
    )


def _title(description: str) -> str:
    """Return a description in one line.

    Spark describes a micro-batch by lines of HTML with the query's ids. The name of a stage that Spark's SQL starts in
    a thread of its own is that of a function in a method: the method's name stays.
    """
    description = _NO_PLACE.sub("", description)
    description = _LAMBDA.sub(lambda found: found[1].replace("$lessinit$greater", "<init>").lstrip("$"), description)
    lines = (" ".join(line.split()) for line in description.replace("<br/>", "\n").splitlines())
    return " · ".join(line for line in lines if line and not line.startswith(("id = ", "runId = ")))


def decode_operations(graph: str) -> str:
    """Return what a stage does, given its graph: the names of its outermost operations, in the order of the data.

    ``graph``: as Spark's RDDOperationGraph writes it. An operation is a subgraph with a label, and has nodes, each with
    the id of an RDD: an RDD is made after those that it reads.
    """
    found: list[_Operation] = []
    depth = 0
    for line in map(str.strip, graph.splitlines()):
        if line.startswith("subgraph "):
            depth += 1
            if depth == _OUTERMOST:
                found.append(_Operation())
        elif line == "}":
            depth -= 1
        elif depth >= _OUTERMOST and (node := _NODE.match(line)):
            found[-1].first = min(found[-1].first, int(node[1]))
        elif depth == _OUTERMOST and (label := _LABEL.fullmatch(line)):
            found[-1].name = found[-1].name or label[1]
    names = [operation.name for operation in sorted(found, key=lambda operation: operation.first) if operation.name]
    return " → ".join(name for name, _ in groupby(names))[:NAME_LIMIT]


@dataclass
class _Operation:
    name: str = ""
    first: float = math.inf  # the least id of its RDDs


def decode_work(
    active_jobs: Iterable[Report],
    completed: tuple[int, int],
    totals: Mapping[str, int],
    active_stages: int,
    stages: tuple[StageProgress, ...],
    spilled: tuple[int, int],
) -> AttemptWork:
    """Return the work of one application.

    ``completed``: its completed jobs and stages. ``spilled``: bytes in memory, and on disk.
    """
    jobs = list(active_jobs)
    done = totals["completedTasks"]
    left = sum(
        max(0, int(job["numTasks"]) - int(job.get("numSkippedTasks", 0)) - int(job.get("numCompletedTasks", 0)))
        for job in jobs
    )
    return AttemptWork(
        active_jobs=len(jobs),
        completed_jobs=completed[0],
        active_stages=active_stages,
        completed_stages=completed[1],
        total_tasks=done + max(left, totals["activeTasks"]),
        active_tasks=totals["activeTasks"],
        completed_tasks=done,
        failed_tasks=totals["failedTasks"],
        task_ms=totals["totalDuration"],
        gc_ms=totals["totalGCTime"],
        shuffle_read=totals["totalShuffleRead"],
        shuffle_written=totals["totalShuffleWrite"],
        spilled_memory=spilled[0],
        spilled_disk=spilled[1],
        stages=stages,
    )
