"""What happens to a job (events) and what is to be done about it (effects), as plain data.

Events that carry an ``attempt`` are facts from the network: they may be late or repeated, and those of another attempt
than the present one are dropped. The others come from the JobManager itself, each exactly when it was asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

from emberkeep.base.ids import InstanceId, TaskManagerId
from emberkeep.jobs.model import AttemptOutcome, DriverHome, ExceptionEntry, JobGraph, JobResult
from emberkeep.jobs.policy import JobPolicy
from emberkeep.jobs.restart import RestartStrategy


@dataclass(frozen=True)
class Moment:
    """What the outside says when an event happens: monotonic seconds, Unix milliseconds, a random number in [0, 1), and
    since when (monotonic seconds) this leader hears most of its peers, None while it does not."""

    at: float
    ms: int
    chance: float = 0.5
    hears_since: float | None = 0.0


@dataclass(frozen=True)
class DriverPlace:
    """Where a driver is: one life of a task manager."""

    task_manager: TaskManagerId
    instance: InstanceId
    address: str
    node_id: str = ""  # the machine that the task manager stands on

    @property
    def home(self) -> DriverHome:
        """What is kept of it with the attempt."""
        return DriverHome(task_manager=self.task_manager, node_id=self.node_id, instance=self.instance)


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Begin:
    """The machine is in service. ``problem``: why the job can never be started (damaged graph), "" if it can.
    ``recovered``: from the job store, by a leader that has not been told yet what task managers know."""

    problem: str = ""
    recovered: bool = False


@dataclass(frozen=True)
class BeginWithoutGraph:
    """The machine is in service with a stand-in for the job's graph, which cannot be read at present. ``reason`` says
    why, and where the graph lies."""

    reason: str


@dataclass(frozen=True)
class GraphRead:
    """Answer to ReadGraph: the graph, and what the job's own options say."""

    graph: JobGraph
    policy: JobPolicy
    strategy: RestartStrategy


@dataclass(frozen=True)
class GraphStillAway:
    """The graph was looked for again, in vain; some time there is another answer to ReadGraph."""

    reason: str


@dataclass(frozen=True)
class GraphDamaged:
    """Answer to ReadGraph: the job can never be started, and ``problem`` says why."""

    problem: str


@dataclass(frozen=True)
class PlaceGranted:
    """``only_node``: no other node could take the driver, whatever runs there. Asked for after a failed start only."""

    place: DriverPlace
    only_node: bool = False


@dataclass(frozen=True)
class PlaceExplained:
    """Answer to ExplainPlace: why there is none, in words. ``blocked``: there may be one once nodes are not blocked any
    more."""

    text: str
    blocked: bool = False


@dataclass(frozen=True)
class AttemptRecorded:
    """The attempt number is durable."""


@dataclass(frozen=True)
class AttemptUnknown:
    """Whether the attempt number was written is not known: that number is burnt."""


@dataclass(frozen=True)
class AttemptSeen:
    """A task manager or a driver has heard of this attempt. One that is newer than the newest in the job store was
    begun by another leader: the store was put back from an older copy."""

    number: int


@dataclass(frozen=True)
class ResultRecorded:
    """The result is durable and the handle removed."""


@dataclass(frozen=True)
class CancelRequested:
    """``grace``: seconds until the driver is killed, None for the configured ones. A repeat may shorten them."""

    grace: float | None = None


@dataclass(frozen=True)
class MoveDriver:
    """End this attempt's driver and start the next one elsewhere: its node is evacuated. No failure."""

    attempt: int


@dataclass(frozen=True)
class StopRecorded:
    """That the job has been suspended or drained is durable: no attempt follows the present one."""


@dataclass(frozen=True)
class Tick:
    """Time has passed; sent when ``deadline()`` is due (early or repeated ticks do no harm)."""


@dataclass(frozen=True)
class TaskManagerLost:
    instance: InstanceId


@dataclass(frozen=True)
class PlaceBlocked:
    """Nothing new goes to this life of a task manager any more. Sent for a place whose driver was not ordered yet, and
    for one where no order to start it is under way and none was accepted, as far as is known."""

    instance: InstanceId


@dataclass(frozen=True)
class StartAccepted:
    """The task manager has taken the order to start the driver."""

    attempt: int


@dataclass(frozen=True)
class StartRefused:
    """The task manager will not start the driver (it has no room, or was told of a newer attempt)."""

    attempt: int
    message: str


@dataclass(frozen=True)
class DriverListed:
    """The report of a task manager lists the driver as starting or running."""

    attempt: int
    place: DriverPlace
    pid: int


@dataclass(frozen=True)
class DriverExited:
    attempt: int
    place: DriverPlace
    outcome: AttemptOutcome


@dataclass(frozen=True)
class DriverVanished:
    """The life of a task manager that listed the driver lists it no more."""

    attempt: int
    instance: InstanceId


@dataclass(frozen=True)
class DriverNotAtHome:
    """A task manager has said all that it holds, knowing that this JobManager leads, and the driver is not among it: it
    does not run there, and will not be started there any more. ``continues``: this life of the task manager has taken
    over all that the one before it had started."""

    attempt: int
    place: DriverPlace
    continues: bool


@dataclass(frozen=True)
class JobMasterRegistered:
    attempt: int
    task_manager: TaskManagerId
    pid: int


@dataclass(frozen=True)
class JobMasterHeard:
    attempt: int


@dataclass(frozen=True)
class ExceptionsNoted:
    """Failures that the attempt survived (a lost executor)."""

    attempt: int
    entries: tuple[ExceptionEntry, ...]


@dataclass(frozen=True)
class OutcomeReported:
    """The JobMaster says that the script has ended and Spark is stopped; its process exits next."""

    attempt: int
    outcome: AttemptOutcome


Event = (
    Begin
    | BeginWithoutGraph
    | GraphRead
    | GraphStillAway
    | GraphDamaged
    | PlaceGranted
    | PlaceExplained
    | AttemptRecorded
    | AttemptUnknown
    | AttemptSeen
    | ResultRecorded
    | CancelRequested
    | MoveDriver
    | StopRecorded
    | Tick
    | TaskManagerLost
    | PlaceBlocked
    | StartAccepted
    | StartRefused
    | DriverListed
    | DriverExited
    | DriverVanished
    | DriverNotAtHome
    | JobMasterRegistered
    | JobMasterHeard
    | ExceptionsNoted
    | OutcomeReported
)


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReadGraph:
    """Read the graph again, until it can be; answered by GraphRead or GraphDamaged, some time."""


@dataclass(frozen=True)
class RequestPlace:
    """Ask for a driver place; answered by PlaceGranted, some time."""


@dataclass(frozen=True)
class ExplainPlace:
    """Ask why there is no place yet; answered by PlaceExplained at once."""


@dataclass(frozen=True)
class WithdrawPlace:
    """The place is not needed: give up the request or what was granted."""


@dataclass(frozen=True)
class RecordAttempt:
    """Write the number; answered by AttemptRecorded or AttemptUnknown."""

    attempt: int


@dataclass(frozen=True)
class AdoptAttempt:
    """Write the number of an attempt that another leader has begun; answered by AttemptRecorded."""

    attempt: int


@dataclass(frozen=True)
class StartDriver:
    """Order the driver's start; answered by StartAccepted, StartRefused or not at all."""

    attempt: int
    place: DriverPlace


@dataclass(frozen=True)
class StopDriver:
    attempt: int
    place: DriverPlace
    grace: float


@dataclass(frozen=True)
class DropRequirements:
    """The attempt wants no slots any more; those it has are given back by its JobMaster."""

    attempt: int


@dataclass(frozen=True)
class AttemptOver:
    """Nothing of the attempt may live on: its slots, its place and its driver are void wherever they are reported."""

    attempt: int


@dataclass(frozen=True)
class RecordResult:
    """Write the result; answered by ResultRecorded."""

    result: JobResult


@dataclass(frozen=True)
class JobOver:
    """The result is durable and the driver is gone or had its time: forget the job's resources."""


Effect = (
    ReadGraph
    | RequestPlace
    | ExplainPlace
    | WithdrawPlace
    | RecordAttempt
    | AdoptAttempt
    | StartDriver
    | StopDriver
    | DropRequirements
    | AttemptOver
    | RecordResult
    | JobOver
)
