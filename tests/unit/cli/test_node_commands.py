"""``emberkeep node`` against a JobManager's API."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from emberkeep.blocklist.model import EvacuatedDrivers
from emberkeep.cli.main import main
from emberkeep.cli.wording import until
from emberkeep.protocol import rest
from emberkeep.protocol.messages import ProcessState
from tests.unit.client.fake_job_manager import TOKEN, FakeJobManager, job_info, task_manager_info

Output = pytest.CaptureFixture[str]
YEAR = 365 * 86_400_000


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeJobManager]:
    for name in [name for name in os.environ if name.startswith("EMBERKEEP_")]:
        monkeypatch.delenv(name)
    state = tmp_path / "state"
    state.mkdir()
    (state / "token").write_text(TOKEN)
    monkeypatch.setenv("EMBERKEEP_STATE_DIR", str(state))
    with FakeJobManager().serving() as server:
        monkeypatch.setenv("EMBERKEEP_URL", server.url)
        yield server


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
    assert isinstance(first.end_timestamp, int)
    assert (second.end_timestamp, first.allow_merge) == (5_682_938_400_000, False)
    assert (third.end_timestamp, third.allow_merge, third.cause) == (None, True, "more")

    assert main(["node", "unblock", "rack 7/1"]) == 0
    assert main(["node", "unblock", "rack 7/1"]) == 4
    assert "node rack 7/1 gets work again" in capfd.readouterr().err


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


def test_a_second_entry_is_refused(fake: FakeJobManager, capfd: Output) -> None:
    assert main(["node", "block", "a", "--cause", "x"]) == 0
    assert main(["node", "block", "a", "--cause", "y"]) == 1
    assert "blocked already" in capfd.readouterr().err


def test_list(fake: FakeJobManager, capfd: Output) -> None:
    assert main(["node"]) == 0
    assert "no task manager is registered" in capfd.readouterr().err
    fake.task_managers = [task_manager_info("tm-1")]
    node = fake.task_managers[0].emberkeep.node_id
    for words in (["block", node], ["block", "tm-1", "--task-manager"], ["evacuate", "elsewhere"]):
        assert main(["node", *words, "--cause", "fan"]) == 0
    capfd.readouterr()
    assert main(["node", "list"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["NODE", "TASK", "MANAGERS"]
    assert {line.split()[0] for line in lines[1:]} == {node, "tm-1", "elsewhere"}
    assert "MARK_BLOCKED_AND_EVACUATE_TASKS until it is unblocked" in next(line for line in lines if "else" in line)
    assert main(["node", "list", "-o", "json"]) == 0
    assert set(json.loads(capfd.readouterr().out)["blockedNodes"]) == {node, "elsewhere"}


def test_wait_returns_when_no_slot_is_in_use(fake: FakeJobManager, capfd: Output) -> None:
    busy = task_manager_info("tm-1")
    free = rest.TaskManagerDetails(
        **{
            **{name: getattr(busy, name) for name in busy.__struct_fields__},
            "slots_number": 2,
            "free_slots": 2,
        }
    )
    leaving = rest.EvacuationInfo(
        executors=2,
        executors_waiting=1,
        shuffle_blocks=31,
        cached_blocks=1,
        at_least=True,
        drivers_moving=1,
        drivers_staying=1,
    )
    fake.task_managers = [
        rest.TaskManagerDetails(
            **{
                **{name: getattr(busy, name) for name in busy.__struct_fields__},
                "slots_number": 2,
                "free_slots": 0,
                "emberkeep": msgspec.structs.replace(busy.emberkeep, evacuation=leaving),
            }
        )
    ]
    later = threading.Timer(0.7, lambda: setattr(fake, "task_managers", [free]))
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


def changed(task_manager: rest.TaskManagerDetails, free_slots: int, **own: object) -> rest.TaskManagerDetails:
    return rest.TaskManagerDetails(
        **{
            **{name: getattr(task_manager, name) for name in task_manager.__struct_fields__},
            "free_slots": free_slots,
            "emberkeep": msgspec.structs.replace(task_manager.emberkeep, **own),
        }
    )


def test_wait_says_whose_drivers_stay(fake: FakeJobManager, capfd: Output) -> None:
    job = job_info("a" * 32, "report.py")
    fake.jobs = {job.jid: job, "b" * 32: job_info("b" * 32, "elsewhere.py")}
    driver = rest.DriverOnTaskManager(jid=job.jid, attempt=1, state=ProcessState.RUNNING, pid=7, memory_mb=1)
    stays = rest.EvacuationInfo(
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


def test_until_in_words() -> None:
    assert until(2**63 - 1) == "until it is unblocked"
    assert until(8000 * YEAR).startswith("until 99")
