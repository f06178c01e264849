"""What a JobMaster is told: by task managers, by its own driver, by itself, by the effects of what it has decided."""

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
    """Asks for the present JobMasterStatus."""


class TakeSlots(msgspec.Struct, frozen=True):
    """Asks for the present HeldSlots."""


class TakeReply(msgspec.Struct, frozen=True):
    reply: JobMasterReply


class ReportBlocked(msgspec.Struct, frozen=True):
    """This job puts nothing there any more, and the ResourceManager is to see that others do not either."""

    entry: Blocked


class BeatDue(msgspec.Struct, frozen=True):
    """Time to beat to the task managers."""


class BeatReturned(msgspec.Struct, frozen=True):
    """``reply`` None: no answer."""

    task_manager: TaskManagerId
    instance: InstanceId
    asked: tuple[AllocationId, ...]
    reply: SlotsReply | None


class Superseded(msgspec.Struct, frozen=True):
    """The JobManager has refused this attempt."""

    message: str


class Ending(msgspec.Struct, frozen=True):
    """The script has ended; a refusal of this attempt means nothing any more."""


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
