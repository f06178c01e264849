"""A job's knowledge of its current attempt's driver, and the rules by which the driver counts as silent or gone."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from emberkeep.base.ids import InstanceId
from emberkeep.jobs.events import DriverPlace
from emberkeep.jobs.model import DriverHome
from emberkeep.jobs.policy import JobPolicy


class StartState(enum.Enum):
    """How far the driver's task manager is known to have followed the order to start the driver."""

    ORDERED = "ordered"
    ACCEPTED = "accepted"  # it has accepted the order, or has listed the driver before it was lost
    LISTED = "listed"  # a report from the driver's place lists it


class JobMasterContact(enum.Enum):
    """What has arrived from the driver's JobMaster. A registration implies a message."""

    NONE = "none"
    HEARD = "heard"  # a message, but no registration
    REGISTERED = "registered"


class DriverEnd(enum.Enum):
    """Whether the driver has ended, as far as that is decided."""

    OPEN = "open"  # it may be alive
    CONDEMNED = "condemned"  # judged over without its own report: its JobMaster is refused
    GONE = "gone"  # proven to have ended


@dataclass
class Driver:
    """Facts about the current attempt's driver. Times are monotonic seconds."""

    attempt: int
    since: float  # when it was ordered to start, or recovered
    heard_at: float  # last message of its JobMaster; before the first one, as ``since``
    place: DriverPlace | None  # None: recovered, and no task manager has listed it yet
    home: DriverHome | None = None  # if recovered: where it was ordered to start, if known
    ordered: bool = False  # this leader ordered its start, so its script runs only after it has registered here
    moving: bool = False  # it is being stopped, to start elsewhere
    stuck: str = ""  # why it was ended although it was alive; "" if it was not
    pid: int = 0
    start: StartState = StartState.ORDERED
    contact: JobMasterContact = JobMasterContact.NONE
    lost_at: float | None = None  # when its task manager was lost
    stop_at: float | None = None  # when it was first ordered to stop
    stop_until: float = 0.0  # when its grace period ends
    order_again_at: float = 0.0  # when to repeat an order without visible effect
    end: DriverEnd = DriverEnd.OPEN
    fell_silent: bool = False  # it is presumed lost, because messages stayed away
    reported_end: bool = False  # its outcome is its own report, not our presumption

    @property
    def is_registered(self) -> bool:
        """True if its JobMaster has registered."""
        return self.contact is JobMasterContact.REGISTERED

    @property
    def is_gone(self) -> bool:
        """True if it is proven to have ended."""
        return self.end is DriverEnd.GONE

    @property
    def stands_at(self) -> DriverHome | None:
        """The driver's place; for a recovered driver, where it was ordered to start. None if that is unknown."""
        return self.home if self.place is None else self.place.home

    @property
    def reachable(self) -> bool:
        """True if its task manager is known and not lost."""
        return self.place is not None and self.lost_at is None

    def is_missing_at(self, place: DriverPlace, *, continues: bool) -> bool:
        """True if a report from ``place`` that does not list the driver proves it gone.

        There are two such cases. The driver was recovered: it could run nowhere else, this task manager knows what its
        earlier instances started, and no message of the driver has arrived since the recovery. Or this leader ordered
        an earlier instance of this task manager to start the driver, and the driver never registered; if it registers
        now, it is refused.
        """
        home = self.home
        if self.contact is not JobMasterContact.NONE:
            return False
        if self.ordered and self.place is not None:
            return place.task_manager == self.place.task_manager and place.instance != self.place.instance
        if home is None or self.place is not None:
            return False
        is_home = (home.task_manager, home.node_id) == (place.task_manager, place.node_id)
        return is_home and (continues or home.instance == place.instance)

    def was_never_at(self, instance: InstanceId) -> bool:
        """True if the driver is gone because ``instance`` has none and was ordered to stop it.

        The order to start the driver has not arrived there, and is refused if it still arrives. That proves nothing
        about a driver of which anything was heard, and nothing about another task manager.
        """
        is_unheard = self.start is not StartState.LISTED and self.contact is JobMasterContact.NONE
        is_ordered_there = self.ordered and self.place is not None and self.place.instance == instance
        return is_unheard and is_ordered_there and self.stop_at is not None

    def is_twin_of(self, place: DriverPlace, pid: int) -> bool:
        """True if process ``pid`` at ``place`` is a second driver: another task manager lists another process."""
        if self.start is not StartState.LISTED or self.place is None or self.place.task_manager == place.task_manager:
            return False
        return (self.place.node_id, self.pid) != (place.node_id, pid)

    def hear(self, now: float) -> None:
        """Note that a message of the driver's JobMaster has arrived."""
        self.heard_at = now
        if self.contact is JobMasterContact.NONE:
            self.contact = JobMasterContact.HEARD

    def register(self, now: float, pid: int) -> None:
        """Note that the driver's JobMaster has registered."""
        self.hear(now)
        self.contact = JobMasterContact.REGISTERED
        self.pid = pid

    def count_from(self, now: float) -> None:
        """Count the driver's silence from ``now``."""
        self.since = self.heard_at = now

    def start_accepted(self) -> None:
        """Note that the task manager has accepted the order to start the driver."""
        if self.start is StartState.ORDERED:
            self.start = StartState.ACCEPTED

    def seen_at(self, place: DriverPlace, pid: int) -> None:
        self.place = place
        self.pid = pid or self.pid
        self.start = StartState.LISTED
        self.lost_at = None

    def task_manager_lost(self, instance: InstanceId, now: float) -> None:
        if self.place is not None and self.place.instance == instance and self.lost_at is None:
            self.lost_at = now
            if self.start is StartState.LISTED:
                self.start = StartState.ACCEPTED

    def silent_at(self, policy: JobPolicy, hears_since: float | None) -> float | None:
        """Return when a driver without contact counts as silent, so that its task manager is ordered to stop it.

        Return None if no such order is possible or needed: the task manager is not reachable, or has already received
        the order. Silence is measured from ``hears_since`` on; None means that silence proves nothing now.
        """
        if hears_since is None or not self.reachable or self.stop_at is not None:
            return None
        if self.is_registered:
            return max(self.heard_at, hears_since) + policy.heartbeat_timeout
        return max(self.since, hears_since) + policy.start_timeout

    def gone_at(self, policy: JobPolicy, hears_since: float | None) -> float | None:
        """Return the time at which a driver without contact counts as gone, even if no task manager reports its end.

        Return None if only a report of a task manager can show that the driver is gone.

        - The task manager is lost or unknown: one lease (``policy.lease``) after the JobMaster's last message. If the
          JobMaster has not registered, the lease does not begin before the task manager was lost, or the driver was
          started.
        - The task manager is reachable, was ordered to stop the driver, and has not listed it: one lease after the
          later of that order and the JobMaster's last message. In that case, the order to start the driver has not
          arrived. If it arrives later, the driver is refused when it registers, before its script runs.

        No lease begins before ``hears_since``, the time since which this leader has had contact with most of its peers.
        None means that it has no such contact now, and that no driver counts as gone.
        """
        if hears_since is None:
            return None
        if not self.reachable:
            silent_since = self.heard_at if self.is_registered else max(self.heard_at, self.lost_at or self.since)
            return max(silent_since, hears_since) + policy.lease
        if self.stop_at is not None and self.start is not StartState.LISTED:
            return max(self.stop_at, self.heard_at, hears_since) + policy.lease
        return None

    def order_due_at(self) -> float | None:
        """Return when to repeat the order to start or to stop; None if there is nothing to repeat."""
        if not self.reachable or self.is_gone:
            return None
        if self.stop_at is not None:
            return self.order_again_at
        return self.order_again_at if self.start is StartState.ORDERED and not self.is_registered else None
