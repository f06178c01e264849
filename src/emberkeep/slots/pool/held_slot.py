"""A slot that an attempt holds, and the executor in it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from emberkeep.base.ids import ExecutorId
from emberkeep.slots.model import Allocation, ProcessStart, TaskManagerInfo


class ExecutorState(enum.Enum):
    """The state of an executor's process, as its task manager reports it."""

    STARTING = "STARTING"  # start requested; not known to run yet
    RUNNING = "RUNNING"


class ExecutorLiveness(enum.Enum):
    """What Spark's last report shows about an executor."""

    UNREGISTERED = "unregistered"  # Spark has never listed it
    SILENT = "silent"  # Spark has listed it; there are no recent heartbeats, or it is no longer listed
    ALIVE = "alive"  # listed, with recent heartbeats


class DepartureState(enum.Enum):
    """How far a slot is on its way out: of a closed place, to other jobs, or because Spark needs fewer executors.

    Only a slot that stays counts towards the requirement.
    """

    STAYS = "stays"
    # Its place is blocked: the executor is cordoned once a replacement runs. Or its disk is full: once any other runs.
    OUTGOING = "outgoing"
    # Its place is evacuated, or it is given back: the executor waits for another one that can take its blocks.
    LEAVING = "leaving"
    DECOMMISSIONED = "decommissioned"  # heartbeats ask the task manager to make the executor hand over and end
    DISMISSED = "dismissed"  # Spark has asked the executor itself to hand over and end


@dataclass
class HeldExecutor:
    """The one executor in a slot."""

    id: ExecutorId
    unseen_since: float  # the time since which Spark has not listed it; if Spark lists it: the last check
    state: ExecutorState = ExecutorState.STARTING
    pid: int = 0
    start: ProcessStart | None = None  # how it got its process, None if unknown
    why_cold: str = ""
    spark: ExecutorLiveness = ExecutorLiveness.UNREGISTERED
    takes_blocks: bool = False  # from Spark's last report: it can take blocks of executors that leave
    cordoned: bool = False  # from Spark's last report: it takes no new task
    lacks_space_until: float | None = None  # None: no task has failed there lately because its disk is full

    @property
    def is_registered(self) -> bool:
        """True if Spark has listed the executor."""
        return self.spark is not ExecutorLiveness.UNREGISTERED

    @property
    def is_alive(self) -> bool:
        """True if Spark's last report lists the executor with recent heartbeats."""
        return self.spark is ExecutorLiveness.ALIVE

    @property
    def lacks_space(self) -> bool:
        """True if tasks have failed there lately because its disk is full."""
        return self.lacks_space_until is not None

    @property
    def is_known_to_run(self) -> bool:
        """True if the executor's process is known to run, from its task manager or from Spark."""
        return self.state is ExecutorState.RUNNING or self.is_registered


@dataclass
class HeldSlot:
    """A slot that the attempt has accepted."""

    allocation: Allocation
    task_manager: TaskManagerInfo
    executor: HeldExecutor
    departure: DepartureState = DepartureState.STAYS
    reclaimed: bool = False  # it is leaving because other jobs are entitled to it
    leaving_since: float = 0.0  # when the timeout began to run, if it is leaving

    @property
    def stays(self) -> bool:
        """True if the slot counts towards the requirement."""
        return self.departure is DepartureState.STAYS

    @property
    def is_outgoing(self) -> bool:
        """True if the executor works as before until another one runs in its place."""
        return self.departure is DepartureState.OUTGOING

    @property
    def takes_new_work(self) -> bool:
        """True if Spark may place tasks, blocks and state here: the executor does not leave, and is not cordoned."""
        return not (self.is_leaving or self.is_dismissed or self.executor.cordoned)

    @property
    def is_leaving(self) -> bool:
        """True if the executor must hand over to another one and end."""
        return self.departure in (DepartureState.LEAVING, DepartureState.DECOMMISSIONED)

    @property
    def is_decommissioned(self) -> bool:
        """True if the executor must hand over now."""
        return self.departure is DepartureState.DECOMMISSIONED

    @property
    def is_dismissed(self) -> bool:
        """True if Spark removes the executor, which ends by itself."""
        return self.departure is DepartureState.DISMISSED

    def leave(self, now: float, *, reclaimed: bool = False) -> None:
        """Begin to leave. The timeout runs from ``now``."""
        self.departure, self.leaving_since, self.reclaimed = DepartureState.LEAVING, now, reclaimed
