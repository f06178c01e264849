"""One occurrence: something that happened to a job or to the cluster. Users know it as an *event*.

The state machines have events too, but those are their inputs: most of them are of no interest to users. So in code, an
entry of the chronicle is an ``Occurrence``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.inert_text import cut_short

MOST_TEXT: Final = 500  # characters of one value
# Begins the names of details that only the next leader needs: the settings in the record of a leader's start.
SETTING: Final = "setting:"
# The detail ``cause`` of the end of an attempt that somebody has cancelled. Others are the kind of its failure.
CANCELED: Final = "canceled"


class What(StrEnum):
    """The type of an occurrence. The texts are part of the API; a newer release may have others."""

    # in the stream of a job
    SUBMITTED = "submitted"
    STATUS = "status"  # the job has entered a state: see the detail ``status``
    WAITING = "waiting"  # for a driver place; the message says for which
    ATTEMPT_STARTED = "attempt-started"
    ATTEMPT_ENDED = "attempt-ended"
    FIRST_RESULT = "first-result"  # the attempt works: its first micro-batch or stage is complete
    REATTACHED = "reattached"  # a new leader has found the driver running
    SLOTS_MISSING = "slots-missing"  # the attempt waits for executors
    SLOTS_COMPLETE = "slots-complete"
    EXECUTORS_REGISTERED = "executors-registered"
    EXECUTORS_ENDED = "executors-ended"
    EXECUTORS_SCALED = "executors-scaled"  # dynamic allocation has changed their number
    SLOTS_RECLAIMED = "slots-reclaimed"  # it gives slots back
    FLOW = "flow"  # a flow of a pipeline has another state: see the details ``flow`` and ``state``
    EXCEPTION = "exception"  # a failure that the attempt has survived
    REQUESTED = "requested"  # a savepoint, a stop or a move
    SAVEPOINT = "savepoint"
    PERIODIC_SAVEPOINT = "periodic-savepoint"  # one that the JobManager has made by itself
    PERIODIC_SAVEPOINT_FAILED = "periodic-savepoint-failed"
    NO_PERIODIC_SAVEPOINTS = "no-periodic-savepoints"  # the job can make none; the message says why
    SAVEPOINT_RETIRED = "savepoint-retired"  # a periodic one was deleted by retention
    SAVEPOINT_NOT_RETIRED = "savepoint-not-retired"  # it cannot be deleted now
    REQUEST_ENDED = "request-ended"
    REQUEST_FAILED = "request-failed"
    CANCEL_REQUESTED = "cancel-requested"
    UPGRADE = "upgrade"  # to new code, or back: see the detail ``phase``
    MOVING = "moving"  # the driver leaves its node
    ALARM_RAISED = "alarm-raised"  # by the watchdog; the detail ``kind`` says which alarm
    ALARM_CLEARED = "alarm-cleared"

    # in the stream of the cluster
    LEADER_STARTED = "leader-started"
    LEADER_ENDED = "leader-ended"
    STORE_IN_DOUBT = "store-in-doubt"  # the job store does not confirm the leader, which decides nothing
    STORE_BACK = "store-back"  # it has confirmed the leader again
    CONFIGURATION_CHANGED = "configuration-changed"
    TASK_MANAGER_REGISTERED = "task-manager-registered"
    TASK_MANAGER_SILENT = "task-manager-silent"
    TASK_MANAGER_BACK = "task-manager-back"
    TASK_MANAGER_LOST = "task-manager-lost"
    TASK_MANAGER_LEFT = "task-manager-left"
    DISK_FULL = "disk-full"  # a task manager gets nothing new until its disk has room
    DISK_HAS_ROOM = "disk-has-room"
    TASK_MANAGER_NOT_STARTED = "task-manager-not-started"  # the platform refuses or does not answer
    BLOCKED = "blocked"
    UNBLOCKED = "unblocked"
    DETECTED = "detected"  # a node is blocked because processes keep failing there
    ADMINISTERED = "administered"  # an operator changed tokens, the storage or the cluster
    QUOTA_REFUSED = "quota-refused"
    EVENTS_LOST = "events-lost"  # occurrences that could not be stored


# What happens often, and must not push everything else out of a bounded stream.
MINOR: Final = frozenset(
    {
        What.WAITING,
        What.SLOTS_MISSING,
        What.SLOTS_COMPLETE,
        What.EXECUTORS_REGISTERED,
        What.EXECUTORS_ENDED,
        What.EXECUTORS_SCALED,
        What.SLOTS_RECLAIMED,
        What.FLOW,
        What.PERIODIC_SAVEPOINT,
        What.PERIODIC_SAVEPOINT_FAILED,
        What.SAVEPOINT_RETIRED,
        What.STORE_IN_DOUBT,
        What.STORE_BACK,
        What.TASK_MANAGER_REGISTERED,
        What.DISK_FULL,
        What.DISK_HAS_ROOM,
        What.QUOTA_REFUSED,
    }
)


class Occurrence(Compatible, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of the chronicle.

    ``id`` and ``time_ms`` are set by the chronicle. Ids grow with the leaders' epochs and, within one epoch, with each
    entry. ``what``: a text of What, or one that a newer release knows. ``by``: the identity that asked for it; "" if
    nobody did. ``job_id``: the job whose stream it belongs to; "" for the cluster's stream. ``details``: facts for
    programs, by name.
    """

    id: str = ""
    time_ms: int = 0
    what: str
    message: str
    by: str = ""
    job_id: str = ""
    attempt: int = 0
    task_manager: str = ""
    node: str = ""
    details: dict[str, str] = msgspec.field(default_factory=dict)


def occurrence_id(epoch: int, number: int) -> str:
    """Return an id that sorts by the leader's epoch, then by ``number``."""
    return f"{epoch:015d}-{number:09d}"


def epoch_of(identifier: str) -> int:
    """Return the epoch in an id; 0 if the id has none."""
    digits = identifier.partition("-")[0]
    return int(digits) if digits.isascii() and digits.isdecimal() else 0


def shortened(text: str, most: int = MOST_TEXT) -> str:
    """Return the text, not longer than ``most`` and on one line."""
    return cut_short(" ".join(text.split()), most)
