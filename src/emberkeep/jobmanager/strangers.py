"""Those who come from JobManagers with another job store, because this one was emptied or is another one.

What they hold is not known here. Whatever was answered from that view would end it: "this attempt is over", "this job
was never accepted". So they are told to try again, until a person has decided.
"""

from __future__ import annotations

import logging

from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import TaskManagerId
from emberkeep.protocol.messages import (
    JobMasterHeartbeat,
    Message,
    RegisterJobMaster,
    RegisterTaskManager,
    ReportOutcome,
    TaskManagerHeartbeat,
)

NAMED = 1000  # task managers that are remembered

_HINT = (
    "give this JobManager back the job store that was there before; or, to give up what runs there, restart the task "
    "manager once with taskmanager.adopt-leader: true"
)

logger = logging.getLogger(__name__)


class Strangers:
    """Task managers that were told to try again, and have not registered since."""

    def __init__(self) -> None:
        self._named: dict[TaskManagerId, str] = {}  # with the lineage that they follow, oldest first

    def named(self) -> tuple[TaskManagerId, ...]:
        return tuple(sorted(self._named))

    def check(self, request: Message, lineage: str) -> None:
        """Raises RetryLater for who follows JobManagers of another job store than ``lineage``."""
        task_manager: TaskManagerId | None = None
        match request:
            case RegisterTaskManager():
                task_manager = request.info.id
            case TaskManagerHeartbeat():
                task_manager = request.id
            case RegisterJobMaster() | JobMasterHeartbeat() | ReportOutcome():
                pass
            case _:
                return
        own = request.lineage
        if not own or own == lineage:
            if task_manager is not None:
                self._named.pop(task_manager, None)
            return
        if isinstance(request, RegisterJobMaster | JobMasterHeartbeat | ReportOutcome):
            who = f"the driver of job {request.job_id}"
        else:
            who = f"task manager {task_manager}"
        problem = f"{who} works for JobManagers with another job store ({own}; this one is {lineage})"
        if task_manager is not None and task_manager not in self._named and len(self._named) < NAMED:
            self._named[task_manager] = own
            logger.warning("%s: it goes on, and is not used here; %s", problem, _HINT)
        raise RetryLater(problem, hint=_HINT)
