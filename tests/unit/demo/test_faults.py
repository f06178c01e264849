"""Whether a job got over a blow, as the demonstration sees it."""

from __future__ import annotations

import pytest

from demo.sabotage import AgentKilled, ExecutorsKilled, Harmed, LeaderKilled, NodeEvacuated, Undisturbed, processes
from emberkeep.base.ids import ExecutorId, TaskManagerId
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.messages import ProcessState
from emberkeep.protocol.rest import DriverInfo, ExecutorInfo, JobDetailsInfo
from tests.unit.client.fake_job_manager import job_info


def job(
    *executors: tuple[str, int],
    driver: int = 100,
    attempt: int = 1,
    state: JobStatus = JobStatus.RUNNING,
    registered: bool = True,
) -> JobDetailsInfo:
    """``executors``: id and pid of each."""
    infos = [
        ExecutorInfo(
            id=ExecutorId(number),
            taskmanager_id=TaskManagerId("tm-1"),
            host="127.0.0.2",
            state=ProcessState.RUNNING,
            registered=registered,
            pid=pid,
            cores=1,
            heap_mb=512,
            away=False,
        )
        for number, pid in executors
    ]
    place = DriverInfo(taskmanager_id=TaskManagerId("tm-1"), pid=driver)
    return job_info("a" * 32, state=state, driver=place, executors=infos, attempt=attempt)


KILLED = ExecutorsKilled("killed", frozenset({"0"}))
TAKEN_OVER = LeaderKilled("killed", 1, (100, 11, 12), "127.0.0.1:1")
EVACUATED = NodeEvacuated("evacuated", "127.0.0.3", frozenset({"0"}), 1)
ADOPTED = AgentKilled("killed", 1, (100, 11, 12), "tm-1")


def test_killed_executors_have_to_be_replaced() -> None:
    assert KILLED.outcome(job(("1", 12))) is None
    assert KILLED.outcome(job(("0", 11), ("1", 12))) is None
    assert KILLED.outcome(job(("1", 12), ("2", 13), registered=False)) is None
    assert KILLED.outcome(job(("1", 12), ("2", 13))) == "executors 1 on 127.0.0.2, 2 on 127.0.0.2"


def test_the_processes_have_an_order_of_their_own() -> None:
    assert processes(job(("10", 12), ("2", 11)).emberkeep) == (100, 11, 12)
    assert processes(job(("1", 11), driver=0).emberkeep) == ()


@pytest.mark.parametrize("blow", [TAKEN_OVER, ADOPTED])
def test_all_processes_have_to_be_known_again(blow: Undisturbed) -> None:
    assert blow.outcome(job(("1", 11), ("2", 12), state=JobStatus.INITIALIZING)) is None
    assert blow.outcome(job(("1", 11))) is None
    assert blow.outcome(job(("1", 11), ("2", 12), driver=0)) is None
    words = "driver (pid 100) and executors (pids 11 and 12) are the same as before"
    assert blow.outcome(job(("2", 12), ("1", 11))) == words


@pytest.mark.parametrize(
    "harmed",
    [
        job(("1", 11), ("2", 12), attempt=2),
        job(("1", 11), ("2", 12), driver=101),
        job(("1", 11), ("3", 13)),
    ],
)
def test_neither_a_takeover_nor_an_agents_loss_costs_a_process(harmed: JobDetailsInfo) -> None:
    for blow in (TAKEN_OVER, ADOPTED):
        with pytest.raises(Harmed, match="kept"):
            blow.outcome(harmed)


def test_an_evacuated_node_is_left_and_the_driver_elsewhere_goes_on() -> None:
    assert EVACUATED.outcome(job(("0", 11), ("1", 12), ("2", 13))) is None, "its replacement is there, it has not left"
    assert EVACUATED.outcome(job(("1", 12))) is None
    assert EVACUATED.outcome(job(("1", 12), ("2", 13))) == (
        "127.0.0.3 is empty; executors 1 on 127.0.0.2, 2 on 127.0.0.2"
    )
    with pytest.raises(Harmed, match="started again"):
        EVACUATED.outcome(job(("1", 12), ("2", 13), attempt=2))
