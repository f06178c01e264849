"""Events of a JobMaster: from task managers, from its own driver, from itself, and results of its effects."""

from __future__ import annotations

import msgspec

from emberkeep.base.ids import AllocationId, InstanceId, TaskManagerId
from emberkeep.blocklist.model import Blocked
from emberkeep.jobmaster.ports import Application, SparkView
from emberkeep.lifecycle.machine import StepDone, StepFailed
from emberkeep.protocol.messages import ExecutorChanged, JobMasterReply, OfferSlots, SlotsReply
from emberkeep.slots.pool.events import PoolEvent


class StartedApplication(msgspec.Struct, frozen=True):
    application: Application


class SparkViewed(msgspec.Struct, frozen=True):
    view: SparkView | None


class TakeStatus(msgspec.Struct, frozen=True):
    """Ask for the current JobMasterStatus."""


class TakeSlots(msgspec.Struct, frozen=True):
    """Ask for the slots that the attempt holds now (HeldSlots)."""


class TakeReply(msgspec.Struct, frozen=True):
    reply: JobMasterReply


class ReportBlocked(msgspec.Struct, frozen=True):
    """Place nothing more at the entry's place, and report the entry to the ResourceManager for all jobs' blocklist."""

    entry: Blocked


class BeatDue(msgspec.Struct, frozen=True):
    """It is time to send a heartbeat to the task managers."""


class BeatReturned(msgspec.Struct, frozen=True):
    """A heartbeat to a task manager has ended. ``reply`` is None if it was not answered, or refused."""

    task_manager: TaskManagerId
    instance: InstanceId
    asked: tuple[AllocationId, ...]
    reply: SlotsReply | None


class Superseded(msgspec.Struct, frozen=True):
    """The JobManager has refused this attempt."""

    message: str


class Ending(msgspec.Struct, frozen=True):
    """The script has ended. From now on the JobMaster ignores a refusal of this attempt."""


Event = (
    OfferSlots
    | ExecutorChanged
    | StartedApplication
    | SparkViewed
    | TakeStatus
    | TakeSlots
    | TakeReply
    | ReportBlocked
    | BeatDue
    | BeatReturned
    | Superseded
    | Ending
    | StepDone
    | StepFailed
    | PoolEvent
)
