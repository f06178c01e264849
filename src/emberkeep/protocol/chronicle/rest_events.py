"""REST bodies about events: what has happened to a job or to the cluster."""

from __future__ import annotations

from emberkeep.protocol.rest import Kebab


class Event(Kebab, frozen=True, kw_only=True):
    """Something that has happened.

    ``id``: grows with each event; the cursor of the next page. ``type``: such as attempt-started or leader-started; a
    newer release may have more types. ``by``: the identity that asked for it, as in the audit log; "" if none did.
    ``jobid``, ``attempt``, ``task-manager`` and ``node``: what the event is about, "" or 0 if nothing of the kind.
    ``details``: further facts by name.
    """

    id: str
    timestamp: int  # Unix milliseconds, by the leader's clock
    type: str
    message: str
    by: str
    jobid: str
    attempt: int
    task_manager: str
    node: str
    details: dict[str, str]


class EventList(Kebab, frozen=True, kw_only=True):
    """Events, newest first; with ``after``, oldest first.

    ``next``: the parameter ``before`` for the next page, "" if there are no older events. With ``after``: the parameter
    ``after`` for the next page.
    """

    events: list[Event]
    next: str
