"""Those who come from JobManagers with another job store, because this one was emptied, is another one, or is an older
copy of it.

What they hold is not known here. Whatever was answered from that view would end it: "this attempt is over", "this job
was never accepted". So they are told to try again, until a person has decided.
"""

from __future__ import annotations

import logging

from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import TaskManagerId
from emberkeep.jobmanager.views.cluster import Stranger
from emberkeep.protocol.messages import (
    JobMasterHeartbeat,
    JobMasterReply,
    Message,
    RegisterJobMaster,
    RegisterTaskManager,
    ReportOutcome,
    TaskManagerHeartbeat,
    TaskManagerHeartbeatReply,
    TaskManagerRegistered,
)
from emberkeep.slots.model import TaskManagerInfo

NAMED = 1000  # task managers that are remembered

_HINT = (
    "give this JobManager back the job store that was there before; or, to give up what runs there, restart the task "
    "manager once with taskmanager.adopt-leader: true"
)

_RAISE = 'raise the epoch: see "A job store put back from an older copy" in docs/storage.md'
_Speaks = RegisterTaskManager | TaskManagerHeartbeat | RegisterJobMaster | JobMasterHeartbeat | ReportOutcome

logger = logging.getLogger(__name__)


class Strangers:
    """Task managers that were told to try again, and have not registered since."""

    def __init__(self) -> None:
        self._named: dict[TaskManagerId, Stranger] = {}
        self._told_of_older = False

    def named(self) -> tuple[Stranger, ...]:
        return tuple(self._named[key] for key in sorted(self._named))

    def answer(self, request: Message, lineage: str, epoch: int) -> Message | None:
        """What such a one is answered instead of the usual; None for who follows ``lineage`` or any job store. Raises
        RetryLater for most: only who does not say where it is is asked to register, which is answered by RetryLater."""
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
        if own == lineage and request.epoch > epoch:
            return self._answer_of_older(request, lineage, epoch)
        if not own or own == lineage:
            if task_manager is not None:
                self._named.pop(task_manager, None)
            return None
        if isinstance(request, TaskManagerHeartbeat) and request.id not in self._named:
            return TaskManagerHeartbeatReply(epoch=epoch, known=False, lineage=lineage)
        problem = f"{who} works for JobManagers with another job store ({own}; this one is {lineage})"
        if isinstance(request, RegisterTaskManager):
            self._note(request.info, own, problem, _HINT)
        raise RetryLater(problem, hint=_HINT)

    def _answer_of_older(self, request: _Speaks, lineage: str, epoch: int) -> Message:
        """To one that has heard of a later leader: another one leads, or the job store was put back from an older copy.
        What it holds may be unknown here, and is not ended: with the answer comes the epoch, which it does not follow.
        Raises RetryLater."""
        problem = (
            f"a JobManager with epoch {request.epoch} has led since, and this one has epoch {epoch}: its job store was "
            "put back from an older copy, if it leads"
        )
        if not self._told_of_older:
            logger.warning("%s; what runs goes on, and is not followed up here; %s", problem, _RAISE)
            self._told_of_older = True
        match request:
            case RegisterTaskManager(info=info):
                place = f"{lineage}, epoch {request.epoch} (the JobManager: {epoch})"
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
            logger.warning("%s: it goes on at %s, and is not used here; %s", problem, info.address, hint)
