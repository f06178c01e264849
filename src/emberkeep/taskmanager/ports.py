"""What a task manager needs from outside: processes, a place for its record, and who follows its slots."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Protocol

import msgspec

from emberkeep.base.ids import AllocationId, ExecutorId, JobId
from emberkeep.jobs.model import AttemptOutcome
from emberkeep.protocol.messages import (
    BlobCacheReport,
    LocalStateReport,
    StartDriver,
    StartExecutor,
    StateGatewayReport,
)
from emberkeep.slots.model import Allocation
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
    """A process has ended and nothing of its session is left. ``outcome`` is what a driver wrote before it ended, or
    made up from the exit code or signal where it wrote nothing. ``detail``: last lines of its log when it failed."""

    key: ProcessKey
    exit_code: int | None  # negative: minus the signal; None: not known, an earlier life had started it
    outcome: AttemptOutcome | None = None
    detail: str = ""


class Adopted(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an earlier life's processes: pids of those that go on, and how drivers have ended: all ``wanted``
    ones that do not go on, and of the others those that have written it down."""

    alive: dict[ProcessKey, int]
    outcomes: dict[DriverKey, AttemptOutcome]


class Launcher(Protocol):
    """Starts and ends processes. Each is a session of its own and outlives the process that runs this."""

    def on_exit(self, callback: Callable[[ProcessExit], None]) -> None:
        """Set who is told of ends; called once per started or adopted process, on the event loop."""

    async def adopt(
        self, wanted: AbstractSet[ProcessKey], ended: AbstractSet[DriverKey], jobs: AbstractSet[JobId] | None
    ) -> Adopted:
        """Take over those ``wanted`` processes that an earlier life has started and that still live: they go on, and
        their ends are told. End everything else that it has left, look how the drivers ``ended`` have ended, and delete
        what it kept for other jobs than ``jobs``. ``jobs`` None: no record tells of them; each driver that has written
        how it ended counts, and its job is kept.

        Returns when all that is done. Call once, before anything is started. Raises Unavailable: how a driver has ended
        cannot be read now, and nothing was deleted.
        """

    async def start_driver(self, request: StartDriver) -> int:
        """Fetch artefacts, prepare the directory, start the driver; returns its pid.

        Raises Fatal (missing or corrupt artefact, no interpreter, no Java, no space: the attempt has failed),
        RetryLater. When it raises or is cancelled, nothing of the driver is left or comes to be.
        """

    async def start_executor(self, request: StartExecutor) -> int:
        """Fetch artefacts, prepare the directory, start Spark's executor; returns its pid.

        Raises Fatal, RetryLater. When it raises or is cancelled, nothing of the executor is left or comes to be.
        """

    async def stop(self, key: ProcessKey, grace: float) -> None:
        """SIGTERM, after ``grace`` seconds SIGKILL to all that is left of the session. 0: SIGKILL at once. Returns when
        the process has ended (its exit is told as well). One whose artefacts are still being fetched is not started:
        Fatal to who starts it. Unknown keys return at once."""

    def decommission(self, key: ExecutorKey) -> None:
        """Have a running executor hand over what it keeps to others and end by itself (SIGPWR). Repeats do no harm;
        unknown keys are ignored."""

    async def forget_job(self, job_id: JobId) -> None:
        """The job has ended, or not been here for long: delete its files except its logs. Its processes have ended."""


class AgentStore(Protocol):
    """Where a task manager keeps its record. One call at a time."""

    async def read(self) -> AgentRecord:
        """What was written last. Raises Absent, Fatal (damaged, of another version)."""

    async def write(self, record: AgentRecord) -> None:
        """Replace it; durable on return. Raises Fatal, RetryLater; the old one or the new one is there then."""


class AllocationListener(Protocol):
    """Who keeps something on this node for each slot. Calls come on the event loop and return at once."""

    def allocation_recovered(self, allocation: Allocation) -> None:
        """The earlier life of this task manager held it. All of these come before anything else: whatever was kept for
        other allocations belongs to nobody any more."""

    def allocation_begun(self, allocation: Allocation) -> None:
        """A slot was reserved for an attempt; its executor has not been started."""

    def allocation_freed(self, allocation: Allocation, may_return: bool) -> None:
        """The slot was given back and nothing of its executor is left. ``may_return``: it, or the whole attempt,
        has ended, or the slot was never used, and the job's next one may come back to this node."""

    def job_forgotten(self, job_id: JobId) -> None:
        """The job has ended, or not been here for long."""


class ProcessEnvironment(Protocol):
    """Adds to the environment of the processes that are started here."""

    def environ(self, job_id: JobId, attempt: int, allocation_id: AllocationId) -> dict[str, str]:
        """Variables for one process; ``allocation_id``: of an executor, ``local_state.model.DRIVER`` for the driver."""


class NodeUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a task manager's machine has left, for people to see; zeros where nothing measures it."""

    disk_free_mb: int = 0
    memory_used_mb: int = 0
    cpu_percent: float = 0.0
    blobs: BlobCacheReport | None = None
    local_state: tuple[LocalStateReport, ...] = ()
    state_gateway: StateGatewayReport | None = None
