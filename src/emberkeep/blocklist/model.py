"""The blocklist and its entries, as they are stored and sent: plain data.

Terms and their meanings are those of Flink's FLIP-224. The list is versioned: each change increments its revision.
Removals are remembered for a while, so that a message from before a removal cannot bring the entry back.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

from emberkeep.base.compatible import Compatible
from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import parse_task_manager_id

PERMANENT = 2**63 - 1  # end of an entry that does not expire
CAUSE_LENGTH = 500  # characters
CAUSES_KEPT = 8  # per entry, the first ones
PLATFORM_CAUSE = "out of service: "  # begins the causes that a resource manager gives, which it also removes again
NODE_ID_LENGTH = 253  # characters


class BlockAction(enum.Enum):
    """What happens to processes that run on a blocked node or task manager."""

    MARK_BLOCKED = "MARK_BLOCKED"  # running processes stay; no new slot is allocated
    MARK_BLOCKED_AND_EVACUATE_TASKS = "MARK_BLOCKED_AND_EVACUATE_TASKS"  # also replaces its executors elsewhere


class EvacuatedDrivers(enum.Enum):
    """What an evacuation does with drivers of jobs without a streaming query. Other drivers always move."""

    WAIT = "wait"  # each stays until its job ends
    RESTART = "restart"  # each restarts elsewhere, from the beginning of its script


class PlaceKind(enum.Enum):
    NODE = "node"
    TASK_MANAGER = "taskmanager"


class Place(Compatible, frozen=True, order=False):
    """The subject of an entry: a node by its id, or a task manager by its resource id."""

    kind: PlaceKind
    id: str

    def __str__(self) -> str:
        return f"{'node' if self.kind is PlaceKind.NODE else 'task manager'} {self.id}"


class _Entry(Compatible, frozen=True, kw_only=True, tag_field="kind"):
    """The fields of all entries. Times are Unix milliseconds.

    ``causes``: in the order in which they were given, without repeats. ``drivers`` matters only if tasks are evacuated.
    """

    id: str
    action: BlockAction
    start_ms: int
    end_ms: int = PERMANENT
    causes: tuple[str, ...]
    drivers: EvacuatedDrivers = EvacuatedDrivers.WAIT

    @property
    def cause(self) -> str:
        return "; ".join(self.causes)


class BlockedNode(_Entry, frozen=True, kw_only=True, tag="node"):
    """A blocked node, and thereby every task manager on it."""

    @property
    def place(self) -> Place:
        return Place(PlaceKind.NODE, self.id)


class BlockedTaskManager(_Entry, frozen=True, kw_only=True, tag="taskmanager"):
    """One blocked task manager; its ``id`` is the resource id."""

    @property
    def place(self) -> Place:
        return Place(PlaceKind.TASK_MANAGER, self.id)


Blocked: TypeAlias = BlockedNode | BlockedTaskManager


def is_of_platform(entry: Blocked) -> bool:
    """True if no operator and no detection has added a cause to an entry of the platform's."""
    return all(cause.startswith(PLATFORM_CAUSE) for cause in entry.causes)


class Removal(Compatible, frozen=True, kw_only=True):
    """The change with this revision removed the entry about ``place`` at ``at_ms`` (Unix milliseconds).

    ``by_hand``: True if an operator removed the entry, False if it expired or the platform withdrew it. Older records
    lack ``by_hand`` and ``at_ms``.
    """

    place: Place
    revision: int
    by_hand: bool = False
    at_ms: int = 0


class Blocklist(Compatible, frozen=True, kw_only=True):
    """The whole list.

    ``removals``: the newest ones, oldest first. ``floor``: revision of the newest removal that is no longer among them.
    A process that knows only an older revision may not know of that removal, or of others that were dropped.
    """

    revision: int = 0
    entries: tuple[Blocked, ...] = ()
    removals: tuple[Removal, ...] = ()
    floor: int = 0


class Report(Compatible, frozen=True, kw_only=True):
    """An entry that a JobMaster asks for. A removal after ``known``, the revision that the JobMaster had, wins."""

    entry: Blocked
    known: int


def entry_about(
    place: Place,
    *,
    action: BlockAction,
    start_ms: int,
    end_ms: int,
    causes: tuple[str, ...],
    drivers: EvacuatedDrivers = EvacuatedDrivers.WAIT,
) -> Blocked:
    """Return an entry that blocks ``place``: a BlockedNode for a node, a BlockedTaskManager for a task manager."""
    kind = BlockedNode if place.kind is PlaceKind.NODE else BlockedTaskManager
    return kind(id=place.id, action=action, start_ms=start_ms, end_ms=end_ms, causes=causes, drivers=drivers)


def parse_node_id(text: str) -> str:
    """Check a node id from outside. Raises InvalidInput."""
    if not text or text != text.strip() or len(text) > NODE_ID_LENGTH or not text.isprintable():
        raise InvalidInput(
            f"{text[:64]!r} is not a node id",
            field="nodeid",
            hint=f"1 to {NODE_ID_LENGTH} printable characters, as in taskmanager.node-id",
        )
    return text


def parse_cause(text: str) -> str:
    """Return the cause as one line of text. Raises InvalidInput."""
    cause = " ".join(text.split())
    if not cause or len(cause) > CAUSE_LENGTH:
        raise InvalidInput(
            "the cause is empty" if not cause else f"the cause has {len(cause)} characters",
            field="cause",
            hint=f"say why, in at most {CAUSE_LENGTH} characters",
        )
    return cause


def check_entry(entry: Blocked) -> None:
    """Check an entry that another process made. Raises InvalidInput."""
    if entry.place.kind is PlaceKind.NODE:
        parse_node_id(entry.id)
    else:
        parse_task_manager_id(entry.id)
    if not entry.causes:
        parse_cause("")
    for cause in entry.causes:
        parse_cause(cause)


def parse_end(end_ms: int | None, now_ms: int) -> int:
    """Return the end of an entry that begins now, checked; PERMANENT if ``end_ms`` is None. Raises InvalidInput."""
    if end_ms is None:
        return PERMANENT
    if end_ms <= now_ms:
        raise InvalidInput(
            f"endTimestamp {end_ms} is in the past: the JobManager's clock says {now_ms}",
            field="endTimestamp",
            hint="Unix milliseconds; leave it out to block until it is unblocked",
        )
    if end_ms > PERMANENT:
        raise InvalidInput(f"endTimestamp {end_ms} is larger than {PERMANENT}", field="endTimestamp")
    return end_ms
