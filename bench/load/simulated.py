"""Task managers that exist as messages only."""

from __future__ import annotations

from emberkeep.base.ids import AllocationId, InstanceId, JobId, TaskManagerId
from emberkeep.protocol.messages.task_manager_reports import TaskManagerReport
from emberkeep.protocol.messages.task_managers import RegisterTaskManager, TaskManagerHeartbeat
from emberkeep.slots.model import Allocation, ResourceProfile, RuntimeVersions, TaskManagerInfo

SLOTS = 10
ONE_CORE = ResourceProfile(cores=1, memory_mb=1408)
RUNTIME = RuntimeVersions(python="3.11", spark="4.3.0")


def task_manager(index: int) -> TaskManagerInfo:
    """A machine with SLOTS slots of one core, and memory for two drivers beside them."""
    return TaskManagerInfo(
        id=TaskManagerId(f"tm-{index:05d}"),
        instance=InstanceId(f"{index:032x}"),
        address="127.0.0.1:1",
        host="127.0.0.1",
        node_id=f"node-{index:05d}",
        pid=1 + index,
        slots=SLOTS,
        driver_places=2,
        total=ResourceProfile(cores=SLOTS, memory_mb=(SLOTS + 2) * ONE_CORE.memory_mb),
        runtime=RUNTIME,
        java_major=17,
        started_ms=1,
    )


def registration(info: TaskManagerInfo) -> RegisterTaskManager:
    return RegisterTaskManager(info=info, report=_report(0, ()))


def heartbeat(info: TaskManagerInfo, sequence: int, held: int) -> TaskManagerHeartbeat:
    """Like most heartbeats it brings new measurements of the machine, and ``held`` slots as before.

    The slots belong to a job that the JobManager has forgotten, so that its reply has to say so, each time.
    """
    return TaskManagerHeartbeat(id=info.id, instance=info.instance, report=_report(sequence, _HELD[:held]))


def _report(sequence: int, allocations: tuple[Allocation, ...]) -> TaskManagerReport:
    return TaskManagerReport(
        sequence=sequence,
        allocations=allocations,
        drivers=(),
        disk_free_mb=100_000,
        memory_used_mb=1_000 + sequence % 100,
        cpu_percent=float(sequence % 100),
    )


_HELD = tuple(
    Allocation(
        id=AllocationId(f"{index:032x}"),
        slot_index=index,
        job_id=JobId("e" * 32),
        attempt=1,
        profile=ONE_CORE,
        job_master="127.0.0.1:1000",
    )
    for index in range(SLOTS)
)
