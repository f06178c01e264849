"""What an attempt has done, from a status store whose reports tests set."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from emberkeep.jobs.progress.work import EXECUTORS_KEPT, NAME_LIMIT, STAGES_KEPT, AttemptWork, ExecutorWork, ended
from emberkeep.spark.errors import SparkUnavailable
from emberkeep.spark.work.decoding import decode_operations, decode_stage
from emberkeep.spark.work.reader import WorkReader


def job(tasks: int, completed: int = 0, skipped: int = 0) -> dict[str, Any]:
    return {"jobId": 1, "numTasks": tasks, "numCompletedTasks": completed, "numSkippedTasks": skipped}


def stage(number: int, tasks: int, completed: int, status: str = "ACTIVE", attempt: int = 0) -> dict[str, Any]:
    return {
        "stageId": number,
        "attemptId": attempt,
        "name": "collect at app.py:5",
        "status": status,
        "numTasks": tasks,
        "numActiveTasks": 1 if status == "ACTIVE" else 0,
        "numCompleteTasks": completed,
        "numFailedTasks": 0,
        "submissionTime": 1_795_000_000_000,
    }


def executor(identifier: str, completed: int, *, active: int = 0, failed: int = 0) -> dict[str, Any]:
    return {
        "id": identifier,
        "activeTasks": active,
        "completedTasks": completed,
        "failedTasks": failed,
        "totalDuration": 100 * completed,
        "totalGCTime": completed,
    }


# As Spark draws a stage that reads a shuffle and joins it with a table. Its RDDs are listed in no order.
GRAPH = r"""digraph G {
  id="graph_stage_4";
  subgraph clusterstage_4 {
    id="cluster_stage_4";
    isCluster="true";
    label="Stage 4";
    subgraph cluster9 {
      id="cluster_9";
      isCluster="true";
      label="Exchange";
      21 [id="node_21" labelType="html" label="MapPartitionsRDD [21]<br>collect at app.py:5"]
    }
    subgraph cluster7 {
      id="cluster_7";
      isCluster="true";
      label="WholeStageCodegen (3)";
      20 [id="node_20" labelType="html" label="MapPartitionsRDD [20]<br>label=&quot;x&quot;;"]
      subgraph cluster8 {
        label="mapPartitionsInternal";
        19 [label="MapPartitionsRDD [19]"]
      }
    }
    subgraph cluster4 {
      label="AQEShuffleRead";
      8 [id="node_8" labelType="html" label="ShuffledRowRDD [8]<br>collect at app.py:5"]
    }
  }
  19->20;
  20->21;
}
"""


class ScriptedStore:
    """What Spark reports now."""

    def __init__(self, app_id: str = "app-1") -> None:
        self.app_id = app_id
        self.jobs: list[dict[str, Any]] = []
        self.done = (0, 0)
        self.listed: list[dict[str, Any]] = []
        self.active: list[dict[str, Any]] = []
        self.ended: dict[int, dict[str, Any]] = {}
        self.measured: list[tuple[int, int]] = []
        self.drawn: list[int] = []
        self.launched: dict[int, int] = {}  # when the longest-running task of a stage was launched
        self.searched: list[int] = []
        self.executed: dict[int, str] = {}  # the description of the SQL execution of a stage
        self.looked_up: list[int] = []

    def active_jobs(self) -> list[dict[str, Any]]:
        return self.jobs

    def completed(self) -> tuple[int, int]:
        return self.done

    def executors(self) -> list[dict[str, Any]]:
        return self.listed

    def active_stages(self) -> tuple[int, list[dict[str, Any]]]:
        return len(self.active), self.active[:STAGES_KEPT]

    def stage(self, stage_id: int) -> dict[str, Any] | None:
        return self.ended.get(stage_id)

    def graph(self, stage_id: int) -> str:
        self.drawn.append(stage_id)
        return GRAPH

    def execution(self, stage_id: int) -> str:
        self.looked_up.append(stage_id)
        return self.executed.get(stage_id, "")

    def durations(self, stage_id: int, stage_attempt: int) -> tuple[int, int]:
        self.measured.append((stage_id, stage_attempt))
        return 100, 350

    def oldest_running(self, stage_id: int, stage_attempt: int) -> int:
        self.searched.append(stage_id)
        return self.launched.get(stage_id, 0)


def test_counts_do_not_fall_back_when_a_stage_ends() -> None:
    store, reader = ScriptedStore(), WorkReader()
    store.jobs, store.active = [job(tasks=16, completed=6)], [stage(0, 8, 6)]
    store.listed = [executor("0", 4, active=1), executor("1", 2, active=1, failed=1)]
    first = reader.read(store)
    assert (first.active_tasks, first.completed_tasks, first.failed_tasks, first.total_tasks) == (2, 6, 1, 16)
    assert [(one.stage_id, one.status, one.completed, one.skew) for one in first.stages] == [(0, "ACTIVE", 6, 3.5)]

    store.jobs, store.active, store.done = [], [], (1, 1)
    store.ended[0] = stage(0, 8, 8, "COMPLETE")
    store.listed = [executor("0", 8), executor("1", 8, failed=1)]
    last = reader.read(store)
    assert msgspec.structs.replace(last, stages=(), executors=()) == AttemptWork(
        completed_jobs=1, completed_stages=1, total_tasks=16, completed_tasks=16, failed_tasks=1, task_ms=1600, gc_ms=16
    )
    assert [(one.stage_id, one.status, one.completed) for one in last.stages] == [(0, "COMPLETE", 8)]


def test_executors_that_spark_has_forgotten_still_count() -> None:
    store, reader = ScriptedStore(), WorkReader()
    store.listed = [executor("0", 5, active=2, failed=1), executor("1", 1)]
    reader.read(store)
    store.listed = [executor("1", 3), executor("2", 1, active=1)]
    work = reader.read(store)
    assert (work.completed_tasks, work.failed_tasks, work.active_tasks) == (9, 1, 1)


def test_the_driver_is_not_an_executor() -> None:
    store = ScriptedStore()
    store.listed = [{**executor("driver", 0), "totalDuration": 30_000, "totalGCTime": 600}, executor("0", 2)]
    work = WorkReader().read(store)
    assert (work.completed_tasks, work.task_ms, work.gc_ms) == (2, 200, 2)


def test_each_active_executor_has_its_share_of_garbage_collection() -> None:
    store, reader = ScriptedStore(), WorkReader()
    store.listed = [
        {**executor("driver", 9), "isActive": True},
        {**executor("0", 10), "isActive": True},
        {**executor("1", 0), "isActive": True},
        {**executor("2", 5), "totalGCTime": 250, "isActive": True},
        {**executor("3", 5), "totalGCTime": 900, "isActive": True},
        {**executor("4", 90, failed=2), "isActive": False, "hostPort": "10.0.0.5:4040"},
    ]
    work = reader.read(store)
    assert [(one.executor_id, one.task_ms, one.gc_ms, one.gc_share) for one in work.executors if one.active] == [
        ("3", 500, 900, 1.0),
        ("2", 500, 250, 0.5),
        ("0", 1000, 10, 0.01),
        ("1", 0, 0, None),
    ]
    dead = ExecutorWork(executor_id="4", task_ms=9000, gc_ms=90, host="10.0.0.5", active=False, tasks=90, failed=2)
    assert work.executors[4:] == (dead,)
    assert [one.executor_id for one in ended(work).executors] == ["4", "0", "3", "2", "1"]
    assert reader.read(ScriptedStore("app-2")).executors == (), "executors of an application end with it"


def test_a_report_names_a_bounded_number_of_executors() -> None:
    store = ScriptedStore()
    store.listed = [executor(str(number), number) for number in range(EXECUTORS_KEPT + 10)]
    found = WorkReader().read(store).executors
    assert (len(found), found[-1].executor_id) == (EXECUTORS_KEPT, "10")


def test_a_later_application_of_the_attempt_adds_to_the_first() -> None:
    first, second, reader = ScriptedStore(), ScriptedStore("app-2"), WorkReader()
    first.done, first.listed = (2, 3), [executor("0", 5, active=1)]
    reader.read(first)
    second.done, second.listed = (1, 1), [executor("0", 2)]
    work = reader.read(second)
    assert (work.completed_jobs, work.completed_stages) == (3, 4)
    assert (work.active_tasks, work.completed_tasks) == (0, 7)


def test_tasks_that_are_not_needed_are_not_awaited() -> None:
    store = ScriptedStore()
    store.jobs = [job(tasks=20, completed=4, skipped=6), job(tasks=5)]
    store.listed = [executor("0", 4)]
    assert WorkReader().read(store).total_tasks == 4 + 10 + 5


def test_durations_are_read_the_less_often_the_more_tasks_have_ended() -> None:
    store, reader = ScriptedStore(), WorkReader()
    for completed in range(1001):
        store.active = [stage(0, 1000, completed)]
        reader.read(store)
    assert len(store.measured) < 100


def test_durations_of_very_many_tasks_are_not_read() -> None:
    store = ScriptedStore()
    store.active = [stage(0, 100_000, 60_000)]
    (one,) = WorkReader().read(store).stages
    assert (one.skew, store.measured) == (None, [])


def test_a_repeated_stage_is_another_one() -> None:
    store, reader = ScriptedStore(), WorkReader()
    store.active = [stage(4, 8, 2)]
    reader.read(store)
    store.active, store.ended[4] = [stage(4, 3, 1, attempt=1)], stage(4, 3, 1, attempt=1)
    assert [(one.stage_id, one.stage_attempt) for one in reader.read(store).stages] == [(4, 1)]


def test_a_report_names_a_bounded_number_of_stages() -> None:
    store, reader = ScriptedStore(), WorkReader()
    for number in range(30):
        store.active = [stage(number, 1, 0)]
        store.ended[number] = stage(number, 1, 1, "COMPLETE")
        reader.read(store)
    store.active = [stage(number, 1, 0) for number in range(100, 150)]
    work = reader.read(store)
    assert (work.active_stages, len(work.stages)) == (50, STAGES_KEPT)
    assert {one.status for one in work.stages} == {"ACTIVE"}


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"name": "collect at app.py:5"}, "collect at app.py:5"),
        ({"name": "start at <unknown>:0", "description": "load\n  the <b>flights</b>"}, "load · the <b>flights</b>"),
        ({"description": "\nclicks<br/>id = 1-2<br/>runId = 3-4<br/>batch = 7"}, "clicks · batch = 7"),
        ({"name": "n" * 5000}, "n" * NAME_LIMIT),
    ],
)
def test_a_stage_has_the_name_that_its_user_gave_it(fields: dict[str, str], name: str) -> None:
    assert decode_stage({"stageId": 1, **fields}).name == name


def test_a_stage_says_what_it_does_in_the_order_of_the_data() -> None:
    assert decode_operations(GRAPH) == "AQEShuffleRead → WholeStageCodegen (3) → Exchange"
    assert decode_operations("") == decode_operations("digraph G {\n}") == decode_operations("}\n}\n5 [x]") == ""
    twice = GRAPH.replace("Exchange", "map").replace("WholeStageCodegen (3)", "map")
    assert decode_operations(twice) == "AQEShuffleRead → map"
    assert len(decode_operations(GRAPH.replace("Exchange", "n" * 200))) == NAME_LIMIT


def test_the_operations_of_a_stage_are_read_once() -> None:
    store, reader = ScriptedStore(), WorkReader()
    store.active = [stage(4, 8, 2), {**stage(5, 8, 2), "rddIds": list(range(2000))}]
    first, _, work = (reader.read(store) for _ in range(3))
    assert work == first
    assert [one.operations for one in work.stages] == ["", decode_operations(GRAPH)], "a huge graph is not read"
    assert store.drawn == [4]

    store.active, store.ended = [], {4: stage(4, 8, 8, "COMPLETE")}
    assert [one.operations for one in reader.read(store).stages] == [decode_operations(GRAPH)]
    assert store.drawn == [4]


def test_a_stage_that_has_ended_counts_once_although_spark_did_not_answer_in_between() -> None:
    class Interrupted(ScriptedStore):
        asked = 0

        def stage(self, stage_id: int) -> dict[str, Any] | None:
            self.asked += 1
            if self.asked == 2:
                raise SparkUnavailable("it is stopping")
            return super().stage(stage_id)

    store, reader = Interrupted(), WorkReader()
    store.active = [spilling(1, "ACTIVE", 10), spilling(2, "ACTIVE", 10)]
    reader.read(store)
    store.active, store.ended = [], {number: spilling(number, "COMPLETE", 10) for number in (1, 2)}
    with pytest.raises(SparkUnavailable):
        reader.read(store)
    work = reader.read(store)
    assert sorted(one.stage_id for one in work.stages) == [1, 2]
    assert work.spilled_disk == 20


def spilling(number: int, status: str, disk: int, attempt: int = 0) -> dict[str, Any]:
    return {**stage(number, 8, 4, status, attempt), "memoryBytesSpilled": 3 * disk, "diskBytesSpilled": disk}


def test_what_stages_have_spilled_is_added_up_and_stays() -> None:
    store, reader = ScriptedStore(), WorkReader()
    store.active = [spilling(0, "ACTIVE", 10), spilling(1, "ACTIVE", 5)]
    first = reader.read(store)
    assert (first.spilled_memory, first.spilled_disk) == (45, 15)
    assert [one.spilled_disk for one in first.stages] == [5, 10]

    store.active, store.ended = [spilling(1, "ACTIVE", 6)], {0: spilling(0, "COMPLETE", 20)}
    assert reader.read(store).spilled_disk == 26, "the stage's last tasks count"


def test_a_stage_that_is_repeated_has_spilled_twice() -> None:
    store, reader = ScriptedStore(), WorkReader()
    store.active = [spilling(0, "ACTIVE", 10)]
    reader.read(store)
    store.active, store.ended = [spilling(0, "ACTIVE", 1, attempt=1)], {0: spilling(0, "ACTIVE", 1, attempt=1)}
    assert reader.read(store).spilled_disk == 11


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("$anonfun$withThreadLocalCaptured$2 at FutureTask.java:264", "withThreadLocalCaptured at FutureTask.java:264"),
        ("$anonfun$$lessinit$greater$1 at Main.scala:3", "<init> at Main.scala:3"),
        ("$anonfun$main$12", "main"),
        ("count at $anonfun.py:3", "count at $anonfun.py:3"),
        ("collect at NativeMethodAccessorImpl.java:0", "collect"),  # how py4j calls what the script calls
        ("count at <unknown>:0", "count"),
    ],
)
def test_a_stage_has_the_name_of_the_method_and_not_of_a_function_in_it(name: str, shown: str) -> None:
    assert decode_stage({**stage(1, 4, 0), "name": name}).name == shown


def test_a_stage_that_spark_starts_in_a_thread_of_its_own_has_the_name_of_its_query() -> None:
    thread = {"name": "$anonfun$withThreadLocalCaptured$1 at CompletableFuture.java:1768"}
    store, reader = ScriptedStore(), WorkReader()
    store.active = [
        stage(1, 4, 0) | thread,
        stage(2, 4, 0) | thread,
        stage(3, 4, 0) | thread | {"description": "my own words"},
        stage(4, 4, 0),
    ]
    store.executed = {1: "parquet at NativeMethodAccessorImpl.java:0", 3: "another", 4: "another"}
    named = {
        1: "parquet",
        2: "withThreadLocalCaptured at CompletableFuture.java:1768",
        3: "my own words",
        4: "collect at app.py:5",
    }
    assert {one.stage_id: one.name for one in reader.read(store).stages} == named
    store.active, store.ended = store.active[1:], {1: stage(1, 4, 4, "COMPLETE") | thread}
    assert {one.stage_id: one.name for one in reader.read(store).stages} == named
    assert sorted(store.looked_up) == [1, 2], "once each"
