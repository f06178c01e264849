"""Ports of a task manager: process launcher, record store, allocation listeners and node usage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

import msgspec

from emberkeep.base.ids import AllocationId, ExecutorId, JobId
from emberkeep.jobs.model import AttemptOutcome
from emberkeep.local_state.model import Caller
from emberkeep.protocol.messages.executors import StartExecutor
from emberkeep.protocol.messages.task_manager_reports import (
    BlobCacheReport,
    LocalStateReport,
    ReservedStandbyReport,
    StandbyReport,
    StateGatewayReport,
)
from emberkeep.protocol.messages.task_managers import ReservedStandby, StartDriver
from emberkeep.protocol.transport import RpcClient, RpcService
from emberkeep.slots.model import Allocation, ProcessStart
from emberkeep.taskmanager.agent_record import AgentRecord


class DriverKey(msgspec.Struct, frozen=True, kw_only=True):
    job_id: JobId
    attempt: int


class ExecutorKey(msgspec.Struct, frozen=True, kw_only=True):
    job_id: JobId
    attempt: int
    allocation_id: AllocationId
    executor_id: ExecutorId


ProcessKey = DriverKey | ExecutorKey


class ProcessExit(msgspec.Struct, frozen=True, kw_only=True):
    """A process that has ended, with nothing left of its session.

    ``outcome``: how a driver ended, from its outcome file, or derived from the exit code or signal if it wrote none.
    ``detail``: the last lines of its log if it failed.
    """

    key: ProcessKey
    exit_code: int | None  # negative: minus the signal; None: unknown, an earlier task manager process started it
    outcome: AttemptOutcome | None = None
    detail: str = ""


class StartedProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A driver or an executor that runs. ``why_cold``: why it took no standby process; "" if it took one."""

    pid: int
    start: ProcessStart
    why_cold: str = ""


class Adopted(msgspec.Struct, frozen=True, kw_only=True):
    """The result of adopting the processes of an earlier task manager process.

    ``alive``: process ids of the adopted processes. ``outcomes``: how drivers ended, for every ``wanted`` driver that
    is not alive, and for those other drivers that wrote an outcome.
    """

    alive: dict[ProcessKey, int]
    outcomes: dict[DriverKey, AttemptOutcome]


class Launcher(Protocol):
    """Starts and stops processes. Each process leads its own session and outlives the task manager process."""

    def on_exit(self, callback: Callable[[ProcessExit], None]) -> None:
        """Set the callback for ended processes: called on the event loop, once for each started or adopted process."""

    async def adopt(
        self, wanted: AbstractSet[ProcessKey], ended: AbstractSet[DriverKey], jobs: AbstractSet[JobId] | None
    ) -> Adopted:
        """Adopt the ``wanted`` processes that an earlier task manager process started and that are still alive.

        Adopted processes continue to run, and their ends are reported to the callback. Stop all other processes that
        the earlier task manager process left, read how the drivers in ``ended`` ended, and delete the files of jobs
        that are not in ``jobs``. ``jobs`` None: there is no record of jobs, so the outcomes of all drivers that wrote
        one are returned, and the files of their jobs are kept.

        Call once, before starting anything. Raises Unavailable if a driver's outcome cannot be read now, NewerFormat if
        a newer release wrote it; in both cases no files have been deleted.
        """

    async def start_driver(self, request: StartDriver) -> StartedProcess:
        """Fetch the job's files, prepare the directory, start the driver.

        Raises Fatal if the attempt has failed (missing or corrupt file, no interpreter, no Java, no space), RetryLater.
        If it raises or is cancelled, nothing of the driver is left and the driver does not start later.
        """

    async def start_executor(self, request: StartExecutor) -> StartedProcess:
        """Fetch the job's files, prepare the directory, start Spark's executor.

        Raises Fatal, RetryLater. If it raises or is cancelled, nothing of the executor is left and it does not start
        later.
        """

    def reserve_standbys(self, reserved: tuple[ReservedStandby, ...]) -> None:
        """Keep a standby driver for each of these jobs, and for no others.

        Those that are not known yet and come without their job graph are left out. Returns at once.
        """

    async def stop(self, key: ProcessKey, grace: float) -> None:
        """Send SIGTERM, and after ``grace`` seconds SIGKILL to the rest of the session. 0: SIGKILL at once.

        Return when the process has ended and its end has been reported to the callback. If files of the process are
        still being fetched, the process does not start and the call that starts it raises Fatal. Ignore unknown keys.
        """

    def decommission(self, key: ExecutorKey) -> None:
        """Ask a running executor to hand over its blocks to other executors and exit (SIGPWR).

        Idempotent; unknown keys are ignored.
        """

    async def forget_job(self, job_id: JobId) -> None:
        """Delete the files of a job except its logs. The job has no processes here: it has ended, or left long ago."""


class AgentStore(Protocol):
    """Stores a task manager's record. One call at a time."""

    async def read(self) -> AgentRecord:
        """Return the last written record. Raises Absent, Fatal (damaged or of another version)."""

    async def write(self, record: AgentRecord) -> None:
        """Replace the record; it is durable on return.

        Raises Fatal, RetryLater. After an error either the old or the new record is stored.
        """


class AllocationListener(Protocol):
    """Follows a task manager's slots, to keep files for them on this node.

    Calls come on the event loop and return at once.
    """

    def allocation_recovered(self, allocation: Allocation) -> None:
        """Note an allocation that the previous task manager process held.

        These calls come before all others. What was kept for any other allocation has no owner.
        """

    def allocation_begun(self, allocation: Allocation) -> None:
        """Note that a slot was reserved for an attempt. Its executor has not been started."""

    def allocation_freed(self, allocation: Allocation, may_return: bool) -> None:
        """Note that a slot was released and nothing of its executor is left.

        ``may_return`` True: the job's next slot may be on this node again, as the executor or the whole attempt has
        ended or the slot was never used. False: the job continues without the slot, or no JobMaster claimed it.
        """

    def job_forgotten(self, job_id: JobId) -> None:
        """Note that the job has ended, or has held nothing here for a long time."""


class ProcessEnvironment(Protocol):
    """Adds variables to the environment of processes that this node starts."""

    def environ(self, caller: Caller) -> dict[str, str]:
        """Return the variables of one process, which is ``caller`` to the node's state gateway."""


class NodeUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Resource usage of a task manager's machine, for display. Zero where nothing is measured."""

    disk_free_mb: int = 0
    disk_total_mb: int = 0
    memory_used_mb: int = 0
    memory_total_mb: int = 0
    cpu_percent: float = 0.0
    blobs: BlobCacheReport | None = None
    local_state: tuple[LocalStateReport, ...] = ()
    state_gateway: StateGatewayReport | None = None
    connections_rejected: int = 0
    standbys: StandbyReport | None = None
    reserved_standbys: tuple[ReservedStandbyReport, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TaskManagerPorts:
    """The ports that a task manager uses.

    ``store`` keeps the slots for the next task manager process, see ``Journal``. ``usage`` measures the machine for
    each report and must not block; by default nothing is measured. ``logs`` serves ListLogs, SearchLog and UploadLog;
    without it they are refused. ``listeners`` follow the slots. ``local_state`` serves ListLocalState; without it the
    reply is empty.
    """

    rpc: RpcClient
    launcher: Launcher
    store: AgentStore
    usage: Callable[[], NodeUsage] = NodeUsage
    logs: RpcService | None = None
    listeners: Sequence[AllocationListener] = ()
    local_state: RpcService | None = None
