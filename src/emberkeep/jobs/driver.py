"""What a job knows of the driver of its present attempt, and the rules by which it counts as silent or gone."""

from __future__ import annotations

from dataclasses import dataclass

from emberkeep.base.ids import InstanceId
from emberkeep.jobs.events import DriverPlace
from emberkeep.jobs.model import DriverHome
from emberkeep.jobs.policy import JobPolicy


@dataclass
class Driver:
    """Times are monotonic seconds."""

    attempt: int
    since: float  # ordered to start, or recovered
    heard_at: float  # newest word of its JobMaster; before one, as ``since``
    place: DriverPlace | None  # None: recovered, and no task manager has listed it yet
    home: DriverHome | None = None  # recovered: where it was to be started, as far as is known
    ordered: bool = False  # by this leader: nothing of its script runs before it has registered here
    pid: int = 0
    accepted: bool = False  # its task manager has taken the order
    listed: bool = False  # in a report of the present place
    registered: bool = False
    heard: bool = False  # there was a word of its JobMaster
    lost_at: float | None = None  # its task manager was lost
    stop_at: float | None = None  # first ordered to stop
    stop_until: float = 0.0  # end of its grace
    order_again_at: float = 0.0  # when an order without visible effect is given again
    condemned: bool = False  # judged over without its own word: its JobMaster is refused
    told: bool = False  # its outcome is its own word, not our presumption
    gone: bool = False  # proven

    @property
    def stands_at(self) -> DriverHome | None:
        """Where it is, as far as is known."""
        return self.home if self.place is None else self.place.home

    @property
    def reachable(self) -> bool:
        """Its task manager is known and alive."""
        return self.place is not None and self.lost_at is None

    def is_missing_at(self, place: DriverPlace, *, continues: bool) -> bool:
        """Whether it is proven gone when ``place`` does not list it: it was to be nowhere else, the task manager there
        knows what its earlier lives have started, and nobody has heard of the driver since the recovery. Or it was
        ordered from an earlier life of that task manager, and never came up: should it do so now, it is refused."""
        home = self.home
        if self.registered or self.heard:
            return False
        if self.ordered and self.place is not None:
            return place.task_manager == self.place.task_manager and place.instance != self.place.instance
        if home is None or self.place is not None:
            return False
        is_home = (home.task_manager, home.node_id) == (place.task_manager, place.node_id)
        return is_home and (continues or home.instance == place.instance)

    def is_twin_of(self, place: DriverPlace, pid: int) -> bool:
        """Whether the process ``pid`` at ``place`` is another one than this, which its own task manager lists."""
        if not self.listed or self.place is None or self.place.task_manager == place.task_manager:
            return False
        return (self.place.node_id, self.pid) != (place.node_id, pid)

    def hear(self, now: float) -> None:
        """Take a word of its JobMaster."""
        self.heard_at = now
        self.heard = True

    def count_from(self, now: float) -> None:
        """Forget its silence so far."""
        self.since = self.heard_at = now

    def seen_at(self, place: DriverPlace, pid: int) -> None:
        self.place = place
        self.pid = pid or self.pid
        self.accepted = self.listed = True
        self.lost_at = None

    def task_manager_lost(self, instance: InstanceId, now: float) -> None:
        if self.place is not None and self.place.instance == instance and self.lost_at is None:
            self.lost_at = now
            self.listed = False

    def silent_at(self, policy: JobPolicy, hears_since: float | None) -> float | None:
        """When it has been silent for too long although its task manager could end it; None while that is not so.
        Silence counts from ``hears_since`` on (None: not at present)."""
        if hears_since is None or not self.reachable or self.stop_at is not None:
            return None
        if self.registered:
            return max(self.heard_at, hears_since) + policy.heartbeat_timeout
        return max(self.since, hears_since) + policy.start_timeout

    def gone_at(self, policy: JobPolicy, hears_since: float | None) -> float | None:
        """When it counts as gone without a task manager's word; None: only its task manager can prove that.

        With its task manager lost or unknown, after a lease without a word of its JobMaster. With a live one that was
        told to end it and never listed it, after the same time: the order to start has not arrived then, and a driver
        that starts later is refused when it registers, before it runs any of the script. Silence counts from
        ``hears_since`` on (None: not at present).
        """
        if hears_since is None:
            return None
        if not self.reachable:
            silent_since = self.heard_at if self.registered else max(self.heard_at, self.lost_at or self.since)
            return max(silent_since, hears_since) + policy.lease
        if self.stop_at is not None and not self.listed:
            return max(self.stop_at, self.heard_at, hears_since) + policy.lease
        return None

    def order_due_at(self) -> float | None:
        """When the order to start or to stop is to be repeated; None while there is nothing to repeat."""
        if not self.reachable or self.gone:
            return None
        if self.stop_at is not None:
            return self.order_again_at
        return None if self.accepted or self.registered else self.order_again_at
