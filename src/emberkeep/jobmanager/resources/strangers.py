"""Processes that follow JobManagers with another job store, or a later epoch of this one.

Such processes exist if this job store was emptied, is a different one, or is an older copy. This JobManager does not
know what they run, and its usual replies, such as "this attempt has ended" or "this job was never accepted", would end
that work. So it replies that they must try again, until an operator has decided.
"""

from __future__ import annotations

import structlog

from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import TaskManagerId
from emberkeep.jobmanager.views.cluster import Stranger
from emberkeep.protocol.messages.job_masters import JobMasterHeartbeat, JobMasterReply, RegisterJobMaster, ReportOutcome
from emberkeep.protocol.messages.root import Message
from emberkeep.protocol.messages.task_managers import (
    RegisterTaskManager,
    TaskManagerHeartbeat,
    TaskManagerHeartbeatReply,
    TaskManagerRegistered,
)
from emberkeep.slots.model import TaskManagerInfo

NAMED = 1000  # task managers to remember

_HINT = (
    "start this JobManager with its previous job store; or, to end what runs there, restart the task manager once with "
    "taskmanager.adopt-leader: true"
)

_RAISE = 'raise the epoch: see "A job store put back from an older copy" in docs/storage.md'
_Speaks = RegisterTaskManager | TaskManagerHeartbeat | RegisterJobMaster | JobMasterHeartbeat | ReportOutcome

log = structlog.get_logger(__name__)


class Strangers:
    """Task managers that must try again, until they report as followers of this job store."""

    def __init__(self) -> None:
        self._named: dict[TaskManagerId, Stranger] = {}
        self._warned_of_older = False

    def named(self) -> tuple[Stranger, ...]:
        return tuple(self._named[key] for key in sorted(self._named))

    def answer(self, request: Message, lineage: str, epoch: int) -> Message | None:
        """Return a special answer to a stranger; None if the sender follows ``lineage``, or accepts every job store.

        A stranger gets RetryLater. The exception is a heartbeat from a stranger that is not listed here yet: the reply
        has ``known`` False, so that the task manager registers, is listed, and then gets RetryLater.
        ``_answer_of_older`` answers senders that know of a later epoch.
        """
        task_manager: TaskManagerId | None = None
        match request:
            case RegisterTaskManager():
                task_manager, who = request.info.id, f"task manager {request.info.id}"
            case TaskManagerHeartbeat():
                task_manager, who = request.id, f"task manager {request.id}"
            case RegisterJobMaster() | JobMasterHeartbeat() | ReportOutcome():
                who = f"the driver of job {request.job_id}"
            case _:
                return None
        own = request.lineage
        if own == lineage and request.known_epoch > epoch:
            return self._answer_of_older(request, lineage, epoch)
        if not own or own == lineage:
            if task_manager is not None:
                self._named.pop(task_manager, None)
            return None
        if isinstance(request, TaskManagerHeartbeat) and request.id not in self._named:
            return TaskManagerHeartbeatReply(epoch=epoch, known=False, lineage=lineage)
        problem = f"{who} works for another job store ({own}; the one of this JobManager is {lineage})"
        if isinstance(request, RegisterTaskManager):
            self._note(request.info, own, problem, _HINT)
        raise RetryLater(problem, hint=_HINT)

    def _answer_of_older(self, request: _Speaks, lineage: str, epoch: int) -> Message:
        """Answer a process that knows of a later leader.

        Either another JobManager is the leader, or the job store was restored from an older copy. What the sender holds
        may be unknown here, and must not be ended. The answer carries this epoch, which the sender does not follow.
        Raises RetryLater for a ReportOutcome.
        """
        problem = (
            f"a JobManager with epoch {request.known_epoch} has been the leader, and this one has epoch {epoch}: if "
            "this one is the leader, its job store was put back from an older copy"
        )
        if not self._warned_of_older:
            log.warning("what runs continues, but this JobManager does not manage it", reason=problem, hint=_RAISE)
            self._warned_of_older = True
        match request:
            case RegisterTaskManager(info=info):
                place = f"{lineage}, epoch {request.known_epoch} (the JobManager: {epoch})"
                self._note(info, place, f"task manager {info.id}: {problem}", _RAISE)
                return TaskManagerRegistered(epoch=epoch, heartbeat_interval=0.0, lineage=lineage)
            case TaskManagerHeartbeat():
                return TaskManagerHeartbeatReply(epoch=epoch, known=False, lineage=lineage)
            case RegisterJobMaster() | JobMasterHeartbeat():
                return JobMasterReply(epoch=epoch, known=False, heartbeat_interval=0.0, lineage=lineage)
        raise RetryLater(problem, hint=_RAISE)

    def _note(self, info: TaskManagerInfo, own: str, problem: str, hint: str) -> None:
        known = info.id in self._named
        if not known and len(self._named) >= NAMED:
            return
        self._named[info.id] = Stranger(
            id=info.id, address=info.address, node_id=info.node_id, pid=info.pid, lineage=own
        )
        if not known:
            log.warning(
                "the work of this task manager continues, and this JobManager does not use it",
                address=info.address,
                reason=problem,
                hint=hint,
            )
