"""Faults of the demonstration: when it counts a job as recovered."""

from __future__ import annotations

import pytest

from demo.faults import AgentKilled, ExecutorsKilled, LeaderKilled, NodeEvacuated, NotKept, ProcessesKept, processes
from emberkeep.base.ids import ExecutorId, TaskManagerId
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.messages.task_manager_reports import ProcessState
from emberkeep.protocol.rest_jobs import DriverInfo, ExecutorInfo, JobDetailsInfo
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


def test_killed_executors_must_be_replaced() -> None:
    assert KILLED.outcome(job(("1", 12))) is None
    assert KILLED.outcome(job(("0", 11), ("1", 12))) is None
    assert KILLED.outcome(job(("1", 12), ("2", 13), registered=False)) is None
    assert KILLED.outcome(job(("1", 12), ("2", 13))) == "executors 1 on 127.0.0.2, 2 on 127.0.0.2"


def test_processes_are_listed_driver_first_then_executors_by_number() -> None:
    assert processes(job(("10", 12), ("2", 11)).emberkeep) == (100, 11, 12)
    assert processes(job(("1", 11), driver=0).emberkeep) == ()


@pytest.mark.parametrize("fault", [TAKEN_OVER, ADOPTED])
def test_recovery_is_complete_once_all_processes_are_known_again(fault: ProcessesKept) -> None:
    assert fault.outcome(job(("1", 11), ("2", 12), state=JobStatus.INITIALIZING)) is None
    assert fault.outcome(job(("1", 11))) is None
    assert fault.outcome(job(("1", 11), ("2", 12), driver=0)) is None
    words = "driver (pid 100) and executors (pids 11 and 12) are the same as before"
    assert fault.outcome(job(("2", 12), ("1", 11))) == words


@pytest.mark.parametrize(
    "disturbed",
    [
        job(("1", 11), ("2", 12), attempt=2),
        job(("1", 11), ("2", 12), driver=101),
        job(("1", 11), ("3", 13)),
    ],
)
def test_a_lost_leader_or_task_manager_process_must_not_cost_a_process_of_the_job(disturbed: JobDetailsInfo) -> None:
    for fault in (TAKEN_OVER, ADOPTED):
        with pytest.raises(NotKept, match="was replaced"):
            fault.outcome(disturbed)


def test_executors_leave_an_evacuated_node_and_the_driver_elsewhere_continues() -> None:
    assert EVACUATED.outcome(job(("0", 11), ("1", 12), ("2", 13))) is None, (
        "the replacement runs, the executor has not left yet"
    )
    assert EVACUATED.outcome(job(("1", 12))) is None
    assert EVACUATED.outcome(job(("1", 12), ("2", 13))) == (
        "127.0.0.3 is empty; executors 1 on 127.0.0.2, 2 on 127.0.0.2"
    )
    with pytest.raises(NotKept, match="restarted"):
        EVACUATED.outcome(job(("1", 12), ("2", 13), attempt=2))
