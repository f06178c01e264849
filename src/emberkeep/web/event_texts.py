"""What the pages show of events: a job's timeline, lists with filters in their addresses, and the leaders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

from emberkeep.base.errors import Unavailable
from emberkeep.base.identity import Identity
from emberkeep.chronicle.occurrence import CANCELED, Occurrence, What
from emberkeep.chronicle.ports import ChronicleReader
from emberkeep.chronicle.selection import MOST_LISTED, Page, Selection
from emberkeep.chronicle.terms import LeaderTerm, StoreDoubt, leader_terms, store_doubts
from emberkeep.chronicle.timeline import Timeline, timeline
from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.web.event_filter import EventFilter, parse_event_filter

PER_PAGE: Final = 100
_ON_JOB_PAGE: Final = 15
_ON_NODE_PAGE: Final = 50

_OF_JOBS: Final = frozenset(
    {
        What.SUBMITTED,
        What.STATUS,
        What.WAITING,
        What.ATTEMPT_STARTED,
        What.ATTEMPT_ENDED,
        What.FIRST_RESULT,
        What.REATTACHED,
        What.SLOTS_MISSING,
        What.SLOTS_COMPLETE,
        What.EXECUTORS_REGISTERED,
        What.EXECUTORS_ENDED,
        What.EXECUTORS_SCALED,
        What.SLOTS_RECLAIMED,
        What.FLOW,
        What.EXCEPTION,
        What.REQUESTED,
        What.SAVEPOINT,
        What.PERIODIC_SAVEPOINT,
        What.PERIODIC_SAVEPOINT_FAILED,
        What.NO_PERIODIC_SAVEPOINTS,
        What.SAVEPOINT_RETIRED,
        What.SAVEPOINT_NOT_RETIRED,
        What.REQUEST_ENDED,
        What.REQUEST_FAILED,
        What.CANCEL_REQUESTED,
        What.UPGRADE,
        What.MOVING,
        What.ALARM_RAISED,
        What.ALARM_CLEARED,
    }
)
_TONES: Final[Mapping[str, str]] = {
    What.FIRST_RESULT: "running",
    What.REATTACHED: "running",
    What.SLOTS_COMPLETE: "running",
    What.EXECUTORS_REGISTERED: "running",
    What.TASK_MANAGER_REGISTERED: "running",
    What.TASK_MANAGER_BACK: "running",
    What.DISK_HAS_ROOM: "running",
    What.STORE_BACK: "running",
    What.SAVEPOINT: "finished",
    What.PERIODIC_SAVEPOINT: "finished",
    What.REQUEST_ENDED: "finished",
    What.ALARM_CLEARED: "finished",
    What.LEADER_STARTED: "finished",
    What.ATTEMPT_STARTED: "finished",
    What.WAITING: "waiting",
    What.SLOTS_MISSING: "waiting",
    What.SLOTS_RECLAIMED: "waiting",
    What.MOVING: "waiting",
    What.BLOCKED: "waiting",
    What.STORE_IN_DOUBT: "failed",
    What.TASK_MANAGER_SILENT: "waiting",
    What.EXCEPTION: "failed",
    What.REQUEST_FAILED: "failed",
    What.PERIODIC_SAVEPOINT_FAILED: "failed",
    What.NO_PERIODIC_SAVEPOINTS: "waiting",
    What.SAVEPOINT_NOT_RETIRED: "failed",
    What.ALARM_RAISED: "failed",
    What.DETECTED: "failed",
    What.DISK_FULL: "failed",
    What.TASK_MANAGER_LOST: "failed",
    What.TASK_MANAGER_NOT_STARTED: "failed",
    What.QUOTA_REFUSED: "failed",
    What.EVENTS_LOST: "failed",
}


# By phase: going back to the old code is what a person looks for.
_TONES_OF_UPGRADES: Final[Mapping[str, str]] = {
    "DONE": "finished",
    "UNCHANGED": "cancelled",
    "CANCELLING": "failed",
    "RETURNING": "failed",
    "RETURNED": "failed",
    "FAILED": "failed",
}


_TONES_OF_FLOWS: Final[Mapping[str, str]] = {"RUNNING": "running", "COMPLETED": "finished", "FAILED": "failed"}


def event_tone(occurrence: Occurrence) -> str:
    """Return the class of the colour in which a type of event is shown."""
    if occurrence.what == What.ATTEMPT_ENDED and occurrence.details.get("cause") not in ("", "moved", CANCELED):
        return "failed"
    if occurrence.what == What.UPGRADE:
        return _TONES_OF_UPGRADES.get(occurrence.details.get("phase", ""), "waiting")
    if occurrence.what == What.FLOW:
        return _TONES_OF_FLOWS.get(occurrence.details.get("state", ""), "waiting")
    return _TONES.get(occurrence.what, "cancelled")


class JobLife(msgspec.Struct, frozen=True, kw_only=True):
    """What the page of a job shows of its events. ``problem``: why they cannot be read now, or ""."""

    timeline: Timeline
    newest: tuple[Occurrence, ...] = ()
    problem: str = ""


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a list of events, with its filters."""

    page: Page
    filter: EventFilter
    types: list[str]
    lost: int


class EventTexts:
    """Reads the chronicle for the pages."""

    def __init__(self, chronicle: ChronicleReader) -> None:
        self._chronicle = chronicle

    async def life(self, job: JobView, identity: Identity) -> JobLife:
        """Return the timeline and the newest events of a job. The page is useful without events, too."""
        try:
            stream = (await self._chronicle.read(job.job_id, Selection(limit=MOST_LISTED))).occurrences[::-1]
            leaders = () if identity.namespace else await self._leaders()
        except Unavailable as error:
            return JobLife(timeline=timeline(tuple(_known_states(job))), problem=error.message)
        known = any(each.what in (What.SUBMITTED, What.STATUS) for each in stream)
        whole = stream if known else (*_known_states(job), *stream)
        return JobLife(timeline=timeline(whole, leaders), newest=stream[::-1][:_ON_JOB_PAGE])

    async def _leaders(self) -> tuple[Occurrence, ...]:
        starts = Selection(types=frozenset({What.LEADER_STARTED}), limit=MOST_LISTED)
        return (await self._chronicle.read("", starts)).occurrences[::-1]

    async def chosen(self, job_id: str, path: str, query: Mapping[str, str], wanted: Sequence[str]) -> Chosen:
        """Return the page of a job's events, or of the cluster's, that a query asks for. Raises InvalidInput.

        ``path``: of the list. ``wanted``: the types that the query names.
        """
        types = [each.value for each in What if (each in _OF_JOBS) is bool(job_id)]
        chosen = parse_event_filter(path, query, wanted, types)
        page = await self._chronicle.read(job_id, chosen.selection(PER_PAGE))
        return Chosen(page=page, filter=chosen, types=types, lost=self._chronicle.lost)

    async def of_node(self, node: str, task_managers: Iterable[str]) -> tuple[Occurrence, ...]:
        """Return the newest events of a node and of its task managers, the newest first. Raises Unavailable."""
        there = set(task_managers)
        page = await self._chronicle.read("", Selection(limit=MOST_LISTED))
        found = (each for each in page.occurrences if each.node == node or each.task_manager in there)
        return tuple(islice(found, _ON_NODE_PAGE))

    async def of_task_manager(self, task_manager: str, node: str) -> tuple[Occurrence, ...]:
        """Return the newest events of a task manager, and those of its whole node. Raises Unavailable."""
        page = await self._chronicle.read("", Selection(limit=MOST_LISTED))
        found = (
            each
            for each in page.occurrences
            if each.task_manager == task_manager or (each.node == node and not each.task_manager)
        )
        return tuple(islice(found, _ON_NODE_PAGE))

    async def terms(self) -> tuple[LeaderTerm, ...]:
        """Return the terms of leaders that are on record, the newest first. Raises Unavailable."""
        types = frozenset({What.LEADER_STARTED, What.LEADER_ENDED})
        page = await self._chronicle.read("", Selection(types=types, limit=MOST_LISTED))
        return leader_terms(page.occurrences[::-1])

    async def doubts(self) -> tuple[StoreDoubt, ...]:
        """Return when the job store did not confirm the leader, the newest first. Raises Unavailable."""
        types = frozenset({What.STORE_IN_DOUBT, What.STORE_BACK})
        page = await self._chronicle.read("", Selection(types=types, limit=MOST_LISTED))
        return store_doubts(page.occurrences[::-1])


def _known_states(job: JobView) -> Iterator[Occurrence]:
    """Yield the states that the leader itself knows, for jobs from before there were events."""
    yield Occurrence(what=What.SUBMITTED, message="", job_id=job.job_id, time_ms=job.submitted_ms)
    for status, time_ms in sorted(job.status_times_ms.items(), key=lambda item: item[1]):
        yield Occurrence(
            what=What.STATUS,
            message=status.value,
            job_id=job.job_id,
            time_ms=time_ms,
            attempt=job.attempt,
            details={"status": status.value},
        )
