"""The events that happen to a job and the effects that follow, as plain data.

Events with an ``attempt`` are facts from the network. They may be late or repeated; those of an attempt other than the
current one are dropped. The other events come from the JobManager itself, each exactly when the job's state machine
asked for it.
"""

from __future__ import annotations

import msgspec

from emberkeep.base.ids import InstanceId, TaskManagerId
from emberkeep.jobs.model import AttemptOutcome, DriverHome, ExceptionEntry, JobGraph, JobResult
from emberkeep.jobs.policy import JobPolicy
from emberkeep.jobs.restart import RestartStrategy
from emberkeep.jobs.traces.recovery_trace import TraceReport
from emberkeep.slots.model import ProcessStart


class DriverPlace(msgspec.Struct, frozen=True):
    """The place of a driver: an instance of a task manager."""

    task_manager: TaskManagerId
    instance: InstanceId
    address: str
    node_id: str = ""  # the machine that the task manager runs on

    @property
    def home(self) -> DriverHome:
        """The ids of this place, which the job store keeps with the attempt; the address is left out."""
        return DriverHome(task_manager=self.task_manager, node_id=self.node_id, instance=self.instance)


# --- events -----------------------------------------------------------------------------------------------------------


class Begin(msgspec.Struct, frozen=True):
    """The state machine is in service.

    ``problem``: why the job can never be started (damaged graph); "" if it can.
    ``recovered``: the job comes from the job store, and task managers may not have reported to this leader yet.
    """

    problem: str = ""
    recovered: bool = False


class BeginWithoutGraph(msgspec.Struct, frozen=True):
    """The state machine is in service with a placeholder for the job's graph, which cannot be read now.

    ``reason`` says why, and where the graph is stored.
    """

    reason: str


class GraphRead(msgspec.Struct, frozen=True):
    """Reply to ReadGraph: the graph, and the settings from the job's own options."""

    graph: JobGraph
    policy: JobPolicy
    strategy: RestartStrategy


class GraphStillAway(msgspec.Struct, frozen=True):
    """Another try to read the graph has failed. ReadGraph stays in effect, and another reply to it follows."""

    reason: str


class GraphDamaged(msgspec.Struct, frozen=True):
    """Reply to ReadGraph: the job can never be started, for the reason ``problem``."""

    problem: str


class PlaceGranted(msgspec.Struct, frozen=True):
    """Reply to RequestPlace: the driver has a place.

    ``only_node``: no other node could take the driver, even if nothing else ran there. Computed only after a failed
    start.
    """

    place: DriverPlace
    only_node: bool = False


class PlaceExplained(msgspec.Struct, frozen=True):
    """Reply to ExplainPlace: a text that says why there is no place.

    ``blocked``: True if unblocking nodes, or room on their disks, may help.
    """

    text: str
    blocked: bool = False


class AttemptRecorded(msgspec.Struct, frozen=True):
    """The attempt number is durable."""


class AttemptUnknown(msgspec.Struct, frozen=True):
    """The result of writing the attempt number is unknown. A new attempt takes the next number."""


class AttemptSeen(msgspec.Struct, frozen=True):
    """A task manager or a driver knows of this attempt.

    If it is newer than the newest attempt in the job store, another leader began it, and the store was restored from an
    older copy.
    """

    number: int


class ResultRecorded(msgspec.Struct, frozen=True):
    """The result is durable and the handle removed."""


class CancelRequested(msgspec.Struct, frozen=True):
    """A cancellation of the job was requested.

    ``grace``: seconds until the driver is killed, or None to use the configured time. A repeated request may shorten
    it.
    """

    grace: float | None = None


class MoveDriver(msgspec.Struct, frozen=True):
    """This attempt's driver must stop, and the next one start elsewhere: the node is evacuated. Not a failure."""

    attempt: int


class RestartDriver(msgspec.Struct, frozen=True):
    """This attempt's driver makes no progress: it counts as lost, and the restart strategy decides what follows."""

    attempt: int
    reason: str


class StopRecorded(msgspec.Struct, frozen=True):
    """The job's suspension or drain is durable: no attempt follows the current one."""


class Tick(msgspec.Struct, frozen=True):
    """Time has passed; sent when ``deadline()`` is due. Early or repeated ticks do no harm."""


class TaskManagerLost(msgspec.Struct, frozen=True):
    instance: InstanceId


class PlaceBlocked(msgspec.Struct, frozen=True):
    """This instance of a task manager no longer gets anything new.

    Sent for a place at which the driver's start was not ordered yet, or at which the order is neither under way nor
    known to be accepted.
    """

    instance: InstanceId


class StartAccepted(msgspec.Struct, frozen=True):
    """The task manager has accepted the order to start the driver."""

    attempt: int


class StartRefused(msgspec.Struct, frozen=True):
    """The task manager refuses to start the driver, because it has no room or knows of a newer attempt."""

    attempt: int
    message: str


class DriverNeverThere(msgspec.Struct, frozen=True):
    """The task manager that was ordered to stop the driver has none, and refuses to start it from now on."""

    attempt: int
    instance: InstanceId


class DriverListed(msgspec.Struct, frozen=True):
    """A task manager's report lists the driver as starting or running.

    ``pid``: 0 while it has no process. ``start``: how it got the process; None if unknown. ``why_cold``: why it took no
    standby process.
    """

    attempt: int
    place: DriverPlace
    pid: int
    start: ProcessStart | None = None
    why_cold: str = ""


class DriverExited(msgspec.Struct, frozen=True):
    attempt: int
    place: DriverPlace
    outcome: AttemptOutcome


class DriverVanished(msgspec.Struct, frozen=True):
    """The task manager instance that listed the driver no longer lists it."""

    attempt: int
    instance: InstanceId


class DriverNotAtHome(msgspec.Struct, frozen=True):
    """A task manager has reported everything that it holds to this leader, and the driver is not in the report.

    So the driver does not run there and will no longer be started there. ``continues``: this instance has taken over
    everything that the previous one had started.
    """

    attempt: int
    place: DriverPlace
    continues: bool


class JobMasterRegistered(msgspec.Struct, frozen=True):
    """``trace``: see TraceReported; None if the driver reports none."""

    attempt: int
    task_manager: TaskManagerId
    pid: int
    trace: TraceReport | None = None


class JobMasterHeard(msgspec.Struct, frozen=True):
    attempt: int


class ExceptionsNoted(msgspec.Struct, frozen=True):
    """Failures that the attempt survived, such as a lost executor."""

    attempt: int
    entries: tuple[ExceptionEntry, ...]


class TraceReported(msgspec.Struct, frozen=True):
    """The JobMaster reports which milestones of its start the attempt has reached."""

    attempt: int
    trace: TraceReport


class OutcomeReported(msgspec.Struct, frozen=True):
    """The JobMaster reports that the script has ended and Spark is stopped. Its process exits soon."""

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
    | RestartDriver
    | StopRecorded
    | Tick
    | TaskManagerLost
    | PlaceBlocked
    | StartAccepted
    | StartRefused
    | DriverNeverThere
    | DriverListed
    | DriverExited
    | DriverVanished
    | DriverNotAtHome
    | JobMasterRegistered
    | JobMasterHeard
    | ExceptionsNoted
    | TraceReported
    | OutcomeReported
)


# --- effects ----------------------------------------------------------------------------------------------------------


class ReadGraph(msgspec.Struct, frozen=True):
    """Read the job's graph, with retries until that succeeds; answered by GraphRead or GraphDamaged eventually."""


class RequestPlace(msgspec.Struct, frozen=True):
    """Ask for a driver place; answered by PlaceGranted eventually."""


class ExplainPlace(msgspec.Struct, frozen=True):
    """Ask why there is no place yet; answered by PlaceExplained at once."""


class WithdrawPlace(msgspec.Struct, frozen=True):
    """No place is needed: cancel the request, or release the granted place."""


class RecordAttempt(msgspec.Struct, frozen=True):
    """Write the number of a new attempt to the job store; answered by AttemptRecorded or AttemptUnknown."""

    attempt: int


class AdoptAttempt(msgspec.Struct, frozen=True):
    """Record in the job store the number of an attempt that another leader began; answered by AttemptRecorded."""

    attempt: int


class StartDriver(msgspec.Struct, frozen=True):
    """Order the driver's start; answered by StartAccepted, StartRefused or not at all."""

    attempt: int
    place: DriverPlace


class StopDriver(msgspec.Struct, frozen=True):
    attempt: int
    place: DriverPlace
    grace: float


class DropRequirements(msgspec.Struct, frozen=True):
    """The attempt needs no more slots; its JobMaster returns those that it has."""

    attempt: int


class AttemptOver(msgspec.Struct, frozen=True):
    """Release the attempt's slots and place, and stop its driver, wherever they are reported."""

    attempt: int


class RecordResult(msgspec.Struct, frozen=True):
    """Write the job's result to the job store; answered by ResultRecorded."""

    result: JobResult


class JobOver(msgspec.Struct, frozen=True):
    """The result is durable, and the driver is gone or the time allowed for its end has passed: forget the job."""


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
