"""``emberkeep node`` against a JobManager's API."""

from __future__ import annotations

import json
import threading
import time

import msgspec
import pytest

from emberkeep.base.ids import TaskManagerId
from emberkeep.blocklist.model import EvacuatedDrivers
from emberkeep.cli.application import main
from emberkeep.cli.nodes import wait as node_wait
from emberkeep.cli.nodes.wait import PlaceLook, Quiet
from emberkeep.cli.wording import until
from emberkeep.protocol import rest_task_managers
from emberkeep.protocol.messages.task_manager_reports import ProcessState
from tests.integration import conditions
from tests.unit.client.fake_job_manager import FakeJobManager, job_info, task_manager_info

Output = pytest.CaptureFixture[str]
YEAR = 365 * 86_400_000


def test_block_evacuate_and_unblock(fake: FakeJobManager, capfd: Output) -> None:
    assert main(["node", "block", "rack 7/1", "--cause", "fan", "--for", "2h"]) == 0
    assert main(["node", "evacuate", "tm-1", "--task-manager", "--cause", "disk", "--until", "2150-01-31T18:00Z"]) == 0
    assert main(["node", "block", "tm-1", "--task-manager", "--merge", "--cause", "more"]) == 0
    err = capfd.readouterr().err
    assert "node rack 7/1 gets no new work until 2" in err
    assert "task manager tm-1 gets no new work until it is unblocked" in err
    (first, path), (second, other), (third, _) = fake.blocked
    assert (path, other) == ("nodes/rack 7/1", "taskmanagers/tm-1")
    assert first.action.value == "MARK_BLOCKED"
    assert second.action.value == "MARK_BLOCKED_AND_EVACUATE_TASKS"
    assert [request.drivers for request, _ in fake.blocked] == [None, None, None]
    assert isinstance(first.end_timestamp, int)
    assert (second.end_timestamp, first.allow_merge) == (5_682_938_400_000, False)
    assert (third.end_timestamp, third.allow_merge, third.cause) == (None, True, "more")

    assert main(["node", "unblock", "rack 7/1"]) == 0
    assert main(["node", "unblock", "rack 7/1"]) == 4
    assert "node rack 7/1 gets new work again" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--for", "2h", "--until", "2150-01-01"], "--for and --until"),
        (["--for", "soon"], "--for soon: expected a duration"),
        (["--until", "tomorrow"], "--until tomorrow: not a time"),
    ],
)
def test_bad_times_are_refused(fake: FakeJobManager, capfd: Output, words: list[str], message: str) -> None:
    assert main(["node", "block", "a", "--cause", "x", *words]) == 2
    assert message in capfd.readouterr().err
    assert main(["node", "block", "a"]) == 2
    assert "--cause" in capfd.readouterr().err
    assert fake.blocked == []


def test_how_long_is_counted_by_the_job_managers_clock(fake: FakeJobManager, capfd: Output) -> None:
    for ahead in (-7200.0, 7200.0):
        fake.ahead = ahead
        before = time.time()
        assert main(["node", "block", f"n{ahead}", "--cause", "x", "--for", "1min"]) == 0
        end = fake.blocked[-1][0].end_timestamp
        assert isinstance(end, int)
        assert before + ahead + 60 <= end / 1000 <= time.time() + ahead + 61
    capfd.readouterr()
    assert main(["node", "block", "late", "--cause", "x", "--until", "2020-01-01T00:00Z"]) == 2
    assert "--until 2020-01-01T00:00Z: not a time in the future; at the JobManager it is " in capfd.readouterr().err


def test_a_block_for_no_time_is_refused(fake: FakeJobManager, capfd: Output) -> None:
    assert main(["node", "block", "late", "--cause", "x", "--for", "0s"]) == 2
    assert "--for 0s: must be more than 0" in capfd.readouterr().err
    assert fake.blocked == []


def test_a_second_entry_is_refused(fake: FakeJobManager, capfd: Output) -> None:
    assert main(["node", "block", "a", "--cause", "x"]) == 0
    assert main(["node", "block", "a", "--cause", "y"]) == 1
    assert "blocked already" in capfd.readouterr().err


def test_list(fake: FakeJobManager, capfd: Output) -> None:
    assert main(["node"]) == 0
    assert "no task manager is registered" in capfd.readouterr().err
    fake.task_managers = [task_manager_info("tm-1")]
    node = fake.task_managers[0].emberkeep.node_id
    for words in (
        ["block", node],
        ["block", "tm-1", "--task-manager"],
        ["evacuate", "elsewhere", "--drivers", "wait"],
    ):
        assert main(["node", *words, "--cause", "fan"]) == 0
    capfd.readouterr()
    assert main(["node", "list"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["NODE", "TASK", "MANAGERS"]
    assert {line.split()[0] for line in lines[1:]} == {node, "tm-1", "elsewhere"}
    assert "MARK_BLOCKED_AND_EVACUATE_TASKS until it is unblocked, drivers wait" in next(
        line for line in lines if "else" in line
    )
    assert main(["node", "list", "-o", "json"]) == 0
    assert set(json.loads(capfd.readouterr().out)["blockedNodes"]) == {node, "elsewhere"}


def test_list_says_where_a_disk_is_full(fake: FakeJobManager, capfd: Output) -> None:
    empty = task_manager_info("tm-1")
    own = msgspec.structs.replace(empty.emberkeep, disk_full=True)
    fake.task_managers = [msgspec.structs.replace(empty, emberkeep=own)]
    assert main(["node", "list"]) == 0
    assert "no; disk full" in capfd.readouterr().out


def test_wait_returns_when_no_slot_is_in_use(fake: FakeJobManager, capfd: Output) -> None:
    busy = task_manager_info("tm-1")
    free = rest_task_managers.TaskManagerDetails(
        **{
            **{name: getattr(busy, name) for name in busy.__struct_fields__},
            "slots_number": 2,
            "free_slots": 2,
        }
    )
    leaving = rest_task_managers.EvacuationInfo(
        executors=2,
        executors_waiting=1,
        shuffle_blocks=31,
        cached_blocks=1,
        at_least=True,
        drivers_moving=1,
        drivers_staying=1,
    )
    fake.task_managers = [
        rest_task_managers.TaskManagerDetails(
            **{
                **{name: getattr(busy, name) for name in busy.__struct_fields__},
                "slots_number": 2,
                "free_slots": 0,
                "emberkeep": msgspec.structs.replace(busy.emberkeep, evacuation=leaving),
            }
        )
    ]

    def become_free() -> None:
        try:
            conditions.until(lambda: fake.requests.count("GET /v1/taskmanagers") > 2, "it has been seen as busy")
        finally:
            fake.task_managers = [free]

    later = threading.Thread(target=become_free, daemon=True)
    later.start()
    assert main(["node", "evacuate", busy.emberkeep.node_id, "--cause", "x", "--wait", "--drivers", "wait"]) == 0
    later.join()
    err = capfd.readouterr().err
    assert (
        "2 slots in use; 2 executors leaving with at least 31 shuffle blocks and 1 cached block; 1 of them without "
        "another executor to hand over to; 1 driver moving; 1 driver staying until the job ends"
    ) in err
    assert fake.blocked[0][0].drivers is EvacuatedDrivers.WAIT
    assert f"no slot of {busy.emberkeep.node_id} is in use" in err


def changed(
    task_manager: rest_task_managers.TaskManagerDetails, free_slots: int, **own: object
) -> rest_task_managers.TaskManagerDetails:
    return rest_task_managers.TaskManagerDetails(
        **{
            **{name: getattr(task_manager, name) for name in task_manager.__struct_fields__},
            "free_slots": free_slots,
            "emberkeep": msgspec.structs.replace(task_manager.emberkeep, **own),
        }
    )


def test_wait_says_whose_drivers_stay(fake: FakeJobManager, capfd: Output) -> None:
    job = job_info("a" * 32, "report.py")
    fake.jobs = {job.jid: job, "b" * 32: job_info("b" * 32, "elsewhere.py")}
    driver = rest_task_managers.DriverOnTaskManager(
        jid=job.jid, attempt=1, state=ProcessState.RUNNING, pid=7, memory_mb=1
    )
    stays = rest_task_managers.EvacuationInfo(
        executors=0,
        executors_waiting=0,
        shuffle_blocks=0,
        cached_blocks=0,
        at_least=False,
        drivers_moving=0,
        drivers_staying=1,
    )
    fake.task_managers = [changed(task_manager_info("tm-1"), 2, drivers=[driver], evacuation=stays)]
    assert main(["node", "evacuate", "127.0.0.1", "--cause", "x", "--wait", "--drivers", "wait"]) == 0
    said = "no slot of 127.0.0.1 is in use; 1 driver still there, until its job ends: report.py\n"
    assert said in capfd.readouterr().err


def test_wait_does_not_take_a_job_manager_at_its_word_that_has_just_taken_over(
    fake: FakeJobManager, capfd: Output
) -> None:
    busy = task_manager_info("tm-1")
    fake.task_managers = [busy]

    def looks() -> int:
        return sum("/taskmanagers" in request for request in fake.requests)

    def take_over() -> None:
        for count, there in ((2, []), (4, [changed(busy, 1, pid=2)]), (6, [changed(busy, 2)])):
            while looks() < count:
                time.sleep(0.05)
            fake.task_managers = there

    taking_over = threading.Thread(target=take_over, daemon=True)
    taking_over.start()
    assert main(["node", "block", "127.0.0.1", "--cause", "x", "--wait"]) == 0
    assert looks() >= 6, "it has waited for what it had seen there"
    taking_over.join()
    assert "no slot of 127.0.0.1 is in use" in capfd.readouterr().err


def test_wait_has_a_limit_and_says_what_is_left(fake: FakeJobManager, capfd: Output) -> None:
    fake.task_managers = [changed(task_manager_info("tm-1"), 1)]
    words = ["node", "evacuate", "127.0.0.1", "--cause", "x"]
    assert main([*words, "--wait", "--timeout", "10ms"]) == 5
    assert "127.0.0.1 is not free after 0.01 s: 1 slot in use" in capfd.readouterr().err
    assert main([*words, "--merge", "--timeout", "10s"]) == 2
    assert "--timeout is given without --wait" in capfd.readouterr().err
    assert main([*words, "--merge", "--wait", "--timeout", "soon"]) == 2


def test_nobody_there_may_be_a_wrong_id_and_is_no_proof_that_nothing_runs_there(
    fake: FakeJobManager, capfd: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_wait, "UNHEARD_SECONDS", 1e6)
    fake.task_managers = [changed(task_manager_info("tm-1"), 2)]
    assert main(["node", "evacuate", "127.0.0.9", "--cause", "x", "--wait", "--timeout", "1s"]) == 5
    err = capfd.readouterr().err
    assert "no task manager of node 127.0.0.9 is registered now" in err
    assert "no known work is left; waiting for task managers to confirm it" in err
    assert main(["node", "block", "tm-2", "--task-manager", "--cause", "x"]) == 0
    assert "no task manager tm-2 is registered now" in capfd.readouterr().err
    assert main(["node", "block", "tm-1", "--task-manager", "--cause", "x"]) == 0
    assert "registered now" not in capfd.readouterr().err


OLD = 3600.0  # seconds for which a JobManager has led that knows everybody


def looks(*seen: tuple[float, int, float, dict[str, int], int]) -> list[bool]:
    quiet = Quiet(0.0)
    return [
        quiet.is_certain(PlaceLook(at, epoch, led, {TaskManagerId(name): beat for name, beat in there.items()}, left))
        for at, epoch, led, there, left in seen
    ]


def test_nothing_is_left_when_that_has_lasted_for_a_heartbeat() -> None:
    assert looks((1, 7, OLD, {"a": 10}, 0), (2, 7, OLD, {"a": 10}, 0), (3, 7, OLD, {"a": 11}, 0)) == [
        False,
        False,
        True,
    ]
    # A slot that was on its way as the node was blocked; and two task managers, of which one is silent.
    late = looks((1, 7, OLD, {"a": 10}, 0), (2, 7, OLD, {"a": 11}, 1), (3, 7, OLD, {"a": 12}, 0))
    assert not any(late)
    assert not any(looks((1, 7, OLD, {"a": 10, "b": 10}, 0), (9, 7, OLD, {"a": 18, "b": 10}, 0)))


@pytest.mark.req("BLK-17")
def test_a_job_manager_that_has_just_taken_over_has_not_heard_everybody() -> None:
    # Nobody is there yet; later the idle one of two task managers is.
    empty = looks((0, 7, 2, {}, 0), (14, 7, 16, {}, 0), (14.5, 7, 16, {"a": 1}, 3), (20, 7, 22, {"a": 2}, 0))
    assert not any(empty)
    assert not any(looks((0, 7, 2, {"idle": 1}, 0), (5, 7, 7, {"idle": 2}, 0), (12, 7, 14, {"idle": 3}, 0)))
    assert looks((0, 7, 2, {"idle": 1}, 0), (13, 7, 15, {"idle": 2}, 0)) == [False, True]
    # In the middle: a new epoch begins the doubt anew.
    after = looks(
        (0, 7, OLD, {"a": 1, "b": 1}, 1), (3, 8, 1, {"a": 2}, 0), (9, 8, 7, {"a": 3}, 0), (15, 8, 13, {"a": 4}, 0)
    )
    assert not any(after)


def test_a_task_manager_that_is_gone_is_waited_for_for_a_while() -> None:
    assert looks((0, 7, OLD, {"a": 1}, 1), (14, 7, OLD, {}, 0), (16, 7, OLD, {}, 0)) == [False, False, True]
    assert looks((0, 7, OLD, {}, 0), (14, 7, OLD, {}, 0), (16, 7, OLD, {}, 0)) == [False, False, True]


def test_until_in_words() -> None:
    assert until(2**63 - 1) == "until it is unblocked"
    assert until(8000 * YEAR).startswith("until 99")
