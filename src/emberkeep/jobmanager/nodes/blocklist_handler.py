"""The cluster's blocklist: one owner, one change at a time, each durable before it is acknowledged.

A change is made on a copy and written. Then the ResourceManager and the Dispatcher get the new list, and only then does
the caller get its reply. So once a block is acknowledged, no JobManager places anything new there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import structlog

from emberkeep.base.actors import Actor, asked
from emberkeep.base.configuration.options.blocklist import BLOCKLIST_ACCEPTS_LOSS
from emberkeep.base.errors import EmberkeepError, InvalidInput, RetryLater, UnknownOutcome
from emberkeep.base.request_context import caller
from emberkeep.base.system import System
from emberkeep.blocklist.claims import CLAIMS_TAKEN, Claimant, ClaimLimits, admitted
from emberkeep.blocklist.ends import Ends
from emberkeep.blocklist.errors import BlocklistFull
from emberkeep.blocklist.lost import LostBlocklist, why_no_copy
from emberkeep.blocklist.model import Blocked, Blocklist, Place, Report, check_entry
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.blocklist.tracker import BlocklistTracker
from emberkeep.chronicle.ports import Recorder
from emberkeep.jobmanager.nodes.blocklist_recovery import FoundBlocklist
from emberkeep.jobmanager.notes.blocklist_notes import blocklist_changes
from emberkeep.jobmanager.store_writes import StoreWrites
from emberkeep.jobmanager.views.blocklist import Blocking
from emberkeep.protocol.messages.job_master_reports import JobMasterStatus

CHANGES_WAITING = 1000  # requested changes that are not written yet
WATCH_INTERVAL = 0.5  # seconds between two checks for expired entries
INFORM_AGAIN = 0.5  # seconds until an overloaded observer is informed again

_LOST = (
    "nothing new is placed until the drivers of running jobs have reported the list; if no job runs, start the "
    f"JobManager with {BLOCKLIST_ACCEPTS_LOSS.key} to begin with an empty list"
)


log = structlog.get_logger(__name__)


class BlockObserver(Protocol):
    """The ResourceManager or the Dispatcher."""

    async def block(self, places: BlockedPlaces) -> None:
        """Return once no new work is assigned to these places."""


@dataclass(frozen=True)
class _Change:
    """One change to the list. ``make`` applies it to a copy and returns the reply, or raises an EmberkeepError.

    ``answer`` is None if no caller waits. ``by``: the identity that asks, or "".
    """

    what: str
    make: Callable[[BlocklistTracker], Any]
    answer: asyncio.Future[Any] | None
    by: str = ""


class BlocklistHandler(Actor):
    """The blocklist's only owner. Every public method runs as a turn of this actor; nothing else touches the state."""

    def __init__(
        self,
        system: System,
        found: FoundBlocklist,
        writes: StoreWrites,
        chronicle: Recorder,
        limits: ClaimLimits,
        epoch: int,
        *observers: BlockObserver,
    ) -> None:
        """``epoch``: of this leader."""
        super().__init__("blocklist")
        blocklist = found.blocklist
        self._lost = found.lost  # no change is accepted until the list is known again
        self._epoch = epoch
        self._refusal = ""  # of the newest copy that was refused
        self._clock = system.clock
        self._writes = writes
        self._chronicle = chronicle
        self._limits = limits
        self._observers = observers
        self._tracker = BlocklistTracker(blocklist)
        self._listed = blocklist  # durable, and known to the observers
        self._waiting: deque[_Change] = deque()
        self._writing: _Change | None = None
        self._lapsing = False
        self._ends = Ends()
        self._reported: set[Place] = set()  # places whose reports wait

    async def run(self) -> None:
        self.start_effect("watch", self._watch(), deadline=None)
        try:
            await super().run()
        finally:
            for change in (*([self._writing] if self._writing else []), *self._waiting):
                _answer(
                    change,
                    UnknownOutcome(
                        "this JobManager is no longer the leader", hint="check the blocklist before you try again"
                    ),
                )

    def check_invariants(self) -> None:
        """Raise AssertionError if the state contradicts itself. For tests and the simulator."""
        if self._tracker.blocklist != self._listed:
            raise AssertionError("blocklist: this does not hold: the visible list is the last one recorded")

    # --- what the edges ask -------------------------------------------------------------------------------------------

    @asked
    def blocklist(self) -> Blocklist:
        """Return the current blocklist. Raises RetryLater if its record cannot be read."""
        if self._lost is not None:
            raise RetryLater(f"the blocklist cannot be read: {self._lost.why}", hint=_LOST)
        return self._listed

    @asked
    def problem(self) -> str:
        """Return why the record of the blocklist cannot be read; "" if it can."""
        return "" if self._lost is None else self._lost.why

    async def block(self, entry: Blocked, *, merge: bool, keep_drivers: bool = False) -> Blocking:
        """Add an entry, or merge it into the existing one.

        Raises AlreadyBlocked, BlocklistFull, RetryLater, UnknownOutcome, Fatal.
        """

        def make(draft: BlocklistTracker) -> Blocking:
            made, was_merged = draft.put(entry, merge=merge, keep_drivers=keep_drivers)
            return Blocking(entry=made, merged=was_merged)

        reply: Blocking = await self._ask_change(f"block {entry.place}: {entry.cause}", make)
        return reply

    async def unblock(self, place: Place) -> None:
        """Remove an entry. Raises NotBlocked, RetryLater, UnknownOutcome, Fatal."""
        await self._ask_change(f"unblock {place}", lambda draft: draft.remove(place, self._clock.now_ms()))

    async def withdraw(self, place: Place) -> None:
        """Remove an entry that has only causes of the platform. Raises RetryLater, UnknownOutcome, Fatal."""
        await self._ask_change(f"withdraw {place}", lambda draft: draft.withdraw(place, self._clock.now_ms()))

    async def _ask_change(self, what: str, make: Callable[[BlocklistTracker], Any]) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_retrieve)
        await self.ask(partial(self._enqueue, _Change(what, make, answer, caller())))
        return await answer

    # --- JobMasters ---------------------------------------------------------------------------------------------------

    async def exchange(
        self, status: JobMasterStatus, claimant: Claimant | None = None
    ) -> tuple[Blocklist | None, bool]:
        """Take a JobMaster's list revision and reports. Return the list; None if the JobMaster has this revision.

        ``claimant``: who reports; None if reports are not taken. The second value is True if the list cannot be read:
        the JobMaster must send its copy.
        """
        listed = await self.ask(partial(self._exchange, status, claimant))
        if listed is None:
            return None, True
        return (None if listed.revision == status.blocklist_revision else listed), False

    def _exchange(self, status: JobMasterStatus, claimant: Claimant | None) -> Blocklist | None:
        if self._lost is not None:
            if status.blocklist is not None:
                self._hear_copy(self._lost, status.blocklist_epoch, status.blocklist)
            return None  # the JobMaster repeats its reports
        if claimant is not None:
            for report in status.block_reports[:CLAIMS_TAKEN]:
                self._hear(report, claimant)
        return self._listed

    def _hear_copy(self, lost: LostBlocklist, epoch: int, blocklist: Blocklist) -> None:
        refusal = why_no_copy(epoch, blocklist, self._epoch)
        if not refusal:
            lost.hear(epoch, blocklist, self._clock.monotonic())
        elif refusal != self._refusal:
            self._refusal = refusal
            log.warning("refused a driver's copy of the blocklist", reason=refusal)

    def _hear(self, report: Report, claimant: Claimant) -> None:
        place, now = report.entry.place, self._clock.now_ms()
        if place in self._reported or len(self._waiting) >= CHANGES_WAITING:
            return  # the JobMaster will repeat it
        if admitted(report, claimant, self._limits, self._listed, now) is not None:
            self._reported.add(place)
            self._enqueue(_Change(f"report of {place}", partial(self._take_report, report, claimant, now), None))

    def _take_report(self, report: Report, claimant: Claimant, now_ms: int, draft: BlocklistTracker) -> None:
        self._reported.discard(report.entry.place)
        claim = admitted(report, claimant, self._limits, draft.blocklist, now_ms)
        if claim is None:
            return  # the list has changed since the report arrived
        try:
            check_entry(claim.entry)
            draft.report(claim, now_ms)
        except (InvalidInput, BlocklistFull) as error:
            log.warning("rejected a JobMaster's entry", place=str(report.entry.place), reason=str(error))

    # --- time ---------------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_INTERVAL)
            self.tell(self._expire)

    def _expire(self) -> None:
        if self._lost is not None:
            self._find(self._lost)
            return
        ended = self._over()
        if not ended or self._lapsing or len(self._waiting) >= CHANGES_WAITING:
            return
        self._lapsing = True
        over = ", ".join(str(entry.place) for entry in ended)
        self._enqueue(_Change(f"expired: {over}", self._let_lapse, None))

    def _over(self) -> list[Blocked]:
        """Return the listed entries whose time is over."""
        return self._ends.over(self._listed.entries, self._clock.now_ms(), self._clock.monotonic())

    def _find(self, lost: LostBlocklist) -> None:
        """Record the blocklist once JobMasters have reported their copies. That is handled like any change."""
        found = lost.found(self._clock.monotonic())
        if found is None or self._writing is not None:
            return
        log.warning("took the blocklist from JobMasters", revision=found.revision, entries=len(found.entries))
        self._writing = _Change("restored from running jobs", lambda _: None, None)
        self.start_effect("record", self._record(self._writing, BlocklistTracker(found), None), deadline=None)

    def _let_lapse(self, _: BlocklistTracker) -> None:
        self._lapsing = False  # ``_next`` drops expired entries before every change

    # --- one change at a time ----------------------------------------------------------------------------------------

    def _enqueue(self, change: _Change) -> None:
        if self._lost is not None:
            raise RetryLater(f"the blocklist cannot be read: {self._lost.why}", hint=_LOST)
        if len(self._waiting) >= CHANGES_WAITING:
            raise RetryLater(f"{CHANGES_WAITING} changes of the blocklist are waiting", hint="try again in a second")
        self._waiting.append(change)
        self._next()

    def _next(self) -> None:
        while self._waiting and self._writing is None:
            change = self._waiting.popleft()
            draft = BlocklistTracker(self._listed)
            # An expired entry neither refuses a new one nor merges with it.
            draft.expire(self._over(), self._clock.now_ms())
            answer: Any
            try:
                answer = change.make(draft)
            except EmberkeepError as error:
                answer = error  # "not blocked" may be due to an expiry, which must be listed before that is said
            if draft.blocklist == self._listed:
                _answer(change, answer)
                continue
            self._writing = change
            self.start_effect("record", self._record(change, draft, answer), deadline=None)

    async def _record(self, change: _Change, draft: BlocklistTracker, answer: Any) -> None:
        """Write a change, then inform the observers.

        Raises Conflict, which ends the actor, if this JobManager is no longer the leader.
        """
        before, blocklist = self._listed, draft.blocklist
        written = await self._writes.record_blocklist(blocklist, partial(_answer, change))
        if written:
            for occurrence in blocklist_changes(before, blocklist, change.by):
                self._chronicle.note(occurrence)
            places = BlockedPlaces(blocklist.entries)
            for observer in self._observers:
                await _inform(observer, places)
            log.info("blocklist changed", revision=blocklist.revision, change=change.what)
        self.tell(partial(self._recorded, change, draft if written else None, answer))

    def _recorded(self, change: _Change, draft: BlocklistTracker | None, answer: Any) -> None:
        self._writing = None
        if draft is not None:
            self._lost = None
            self._tracker, self._listed = draft, draft.blocklist
            _answer(change, answer)
        self._next()


async def _inform(observer: BlockObserver, places: BlockedPlaces) -> None:
    """Have an observer obey the list.

    Ask again while it is overloaded, because it learns of this change in no other way. The end of the leader's term
    ends this.
    """
    is_said = False
    while True:
        try:
            await observer.block(places)
        except RetryLater as error:
            if not is_said:
                log.warning(
                    "an actor is overloaded, so the blocklist does not take effect there yet", reason=str(error)
                )
                is_said = True
            await asyncio.sleep(INFORM_AGAIN)
        else:
            return


def _answer(change: _Change, answer: Any) -> None:
    """Give the caller of ``change`` the result or the error, if the caller still waits."""
    if change.answer is None:
        if isinstance(answer, EmberkeepError):
            log.warning("a change of the blocklist failed", change=change.what, reason=str(answer))
    elif not change.answer.done():
        if isinstance(answer, EmberkeepError):
            change.answer.set_exception(answer)
        else:
            change.answer.set_result(answer)


def _retrieve(answer: asyncio.Future[Any]) -> None:
    """Fetch the error of a reply whose caller may be gone, so that asyncio does not log it."""
    if not answer.cancelled():
        answer.exception()
