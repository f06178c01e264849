"""Options of slots and of who gets them first."""

from __future__ import annotations

from emberkeep.base.configuration.option_types import choice, duration, size
from emberkeep.base.configuration.values import Option, define

SLOT_TIMEOUT = define(
    Option(
        "taskmanager.slot.timeout",
        10.0,
        duration,
        "duration",
        "How long a slot stays reserved for a job that does not accept it. A slot that a restarted task "
        "manager has recovered stays reserved for `heartbeat.timeout` longer.",
    )
)
PRIORITY_PATIENCE = define(
    Option(
        "slotmanager.priority.patience",
        60.0,
        duration,
        "duration",
        "A job that has waited for this long without any slot, or for its driver's place, counts as one of the highest "
        "`job.priority` that waits. Also the longest time for which a job that restarts keeps its place and slots.",
    )
)
MIN_FREE_DISK = define(
    Option(
        "slotmanager.min-free-disk",
        200 * 1024**2,
        size,
        "size",
        "A task manager gets no new work while less than this is free on the disk with its working directory; of a "
        "disk below twenty times this size, while less than 5 % are free. 0: it always gets new work.",
    )
)
PREEMPTION = define(
    Option(
        "slotmanager.preemption",
        "elastic",
        choice("none", "elastic", "executors", "jobs"),
        "choice",
        "Which running jobs give executors back for namespaces below their guarantee "
        "(`security.quota.guaranteed-slots`), and for jobs of a higher `job.priority` in the same namespace. "
        "`elastic`: jobs with dynamic allocation or autoscaling, down to their smallest number of executors. "
        "`executors`: after them also jobs with a fixed number of executors, if their priority is lower, down to one "
        "executor, but no gangs. `jobs`: after them also whole jobs of a lower priority, gangs included: their drivers "
        "continue without executors until slots are free again. `none`: guarantees and priorities only order the free "
        "slots.",
    )
)
PREEMPTION_TIMEOUT = define(
    Option(
        "slotmanager.preemption.timeout",
        120.0,
        duration,
        "duration",
        "How long an executor may take to end its tasks, hand over its blocks and end, once its slot is to be given "
        "back to other jobs. After that time it is terminated: its running tasks, and blocks that it still held, are "
        "computed again.",
    )
)
SLOT_REQUEST_TIMEOUT = define(
    Option(
        "slot.request.timeout",
        300.0,
        duration,
        "duration",
        "How long a job may have no slot at all, or no driver place, before it fails. 0: no limit.",
    )
)
