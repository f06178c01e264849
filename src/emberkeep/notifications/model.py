"""A notification as plain data, in the form in which webhooks send it."""

from __future__ import annotations

import enum

import msgspec

from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import JobId

VERSION = 1


class EventKind(enum.Enum):
    ALARM_RAISED = "alarm-raised"
    ALARM_CLEARED = "alarm-cleared"
    JOB_RESTARTING = "job-restarting"
    JOB_FINISHED = "job-finished"
    JOB_CANCELED = "job-canceled"
    JOB_FAILED = "job-failed"


class NotifiedJob(msgspec.Struct, frozen=True, kw_only=True):
    id: JobId
    name: str
    namespace: str
    attempt: int


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to a job.

    ``id`` is the same in each repetition, so that a receiver can drop those. ``alarm``: the alarm's kind, and
    ``query`` the streaming query that it is about; "" for other events. ``time_ms``: Unix milliseconds.
    """

    id: str
    event: EventKind
    time_ms: int
    job: NotifiedJob
    message: str
    alarm: str = ""
    query: str = ""
    version: int = VERSION


def encode(notification: Notification) -> bytes:
    """Return the notification as JSON."""
    return msgspec.json.encode(notification)


def parse_events(text: str, key: str) -> frozenset[EventKind]:
    """Return the events in a list separated by commas, the value of ``key``. Raises InvalidInput."""
    events = set()
    for name in filter(None, (each.strip() for each in text.split(","))):
        try:
            events.add(EventKind(name))
        except ValueError:
            known = ", ".join(kind.value for kind in EventKind)
            raise InvalidInput(
                f"{key}: there is no event {name[:80]!r}", field=key, hint=f"the events are {known}"
            ) from None
    return frozenset(events)
