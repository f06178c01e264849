"""Decide what a JobManager does about leadership. Pure: events in, effects out, no clock.

- Suspended: take no decisions, keep the service running.
- Lost: stop leading at once.
- Deposed: stop leading and move to the end of the queue, so that a leader that others could not reach does not take the
  epoch straight back.

Answers may arrive late, so events about an earlier latch, claim or epoch are ignored.

A JobManager that cannot read the shared storage leaves leadership to one that can: it skips its turns, and steps down
if it is the leader. It does so at most MAX_PASSED times in a row, because the others' reports may be out of date; then
it leads anyway.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from emberkeep.base.errors import IllegalTransition
from emberkeep.leadership.model import (
    AbandonClaim,
    ClaimRefused,
    Confirmed,
    ConfirmEpoch,
    Connected,
    Deposed,
    Effect,
    EpochWritten,
    Event,
    GiveUpLatch,
    Granted,
    Lost,
    PauseService,
    ResumeService,
    Revoked,
    ServiceEnded,
    Session,
    Shutdown,
    Standing,
    StartService,
    StopService,
    StorageSeen,
    Suspended,
    TakeLatch,
    WriteEpoch,
)

HISTORY = 50  # recent events that the error for an illegal event shows
MAX_PASSED = 3  # turns that a JobManager without storage leaves to others before it leads anyway

_S = Standing
# For each standing, the standings that may follow it. Remaining in the same standing is always allowed.
TRANSITIONS: dict[Standing, frozenset[Standing]] = {
    _S.OUT: frozenset({_S.WAITING, _S.CLOSED}),
    _S.WAITING: frozenset({_S.OUT, _S.CLAIMING, _S.CLOSED}),
    _S.CLAIMING: frozenset({_S.OUT, _S.WAITING, _S.LEADING, _S.PAUSED, _S.CLOSED}),
    _S.LEADING: frozenset({_S.PAUSED, _S.STOPPING}),
    _S.PAUSED: frozenset({_S.CONFIRMING, _S.STOPPING}),
    _S.CONFIRMING: frozenset({_S.LEADING, _S.PAUSED, _S.STOPPING}),
    _S.STOPPING: frozenset({_S.OUT, _S.WAITING, _S.CLOSED}),
    _S.CLOSED: frozenset(),
}


class LeadershipMachine:
    """One JobManager's leadership.

    ``standing``: its current state. ``epoch``: the epoch of the running service; 0 if none runs.
    """

    def __init__(self) -> None:
        self.session = Session.AWAY
        self.standing = Standing.OUT
        self.epoch = 0
        self._latch = 0  # number of the newest latch
        self._has_latch = False
        self._claim = 0
        self._closing = False
        self._storage = StorageSeen(own=True, elsewhere=False)
        self._passed = 0  # turns skipped since this JobManager could last read the storage
        self._history: deque[str] = deque(maxlen=HISTORY)
        self._handlers: dict[type[Any], Callable[[Any], list[Effect]]] = {
            Connected: self._connected,
            Suspended: self._suspended,
            Lost: self._lost,
            Granted: self._granted,
            Revoked: self._revoked,
            EpochWritten: self._epoch_written,
            ClaimRefused: self._claim_refused,
            Confirmed: self._confirmed,
            Deposed: self._deposed,
            ServiceEnded: self._service_ended,
            StorageSeen: self._storage_seen,
            Shutdown: self._shutdown,
        }

    @property
    def may_decide(self) -> bool:
        """True if this JobManager may start, stop or change anything."""
        return self.standing is Standing.LEADING

    def handle(self, event: Event) -> list[Effect]:
        """Apply one event and return the effects to run.

        Raises IllegalTransition for an event that only a bug can cause.
        """
        if event != self._storage:  # an unchanged StorageSeen is repeated often and would fill the history
            self._history.append(f"{self.standing.name}/{self.session.name} {event}")
        return self._handlers[type(event)](event)

    # --- the session ------------------------------------------------------------------------------------------------

    def _connected(self, _: Connected) -> list[Effect]:
        self.session = Session.CONNECTED
        match self.standing:
            case Standing.OUT:
                return self._stand_in_queue()
            case Standing.PAUSED:
                self._go(Standing.CONFIRMING)
                return [ConfirmEpoch(self.epoch)]
            case _:
                return []

    def _suspended(self, _: Suspended) -> list[Effect]:
        if self.session is Session.AWAY:
            return []
        self.session = Session.SUSPENDED
        match self.standing:
            case Standing.LEADING:
                self._go(Standing.PAUSED)
                return [PauseService(self.epoch)]
            case Standing.CONFIRMING:
                self._go(Standing.PAUSED)
                return []
            case _:
                return []

    def _lost(self, _: Lost) -> list[Effect]:
        self.session = Session.AWAY
        self._has_latch = False
        match self.standing:
            case Standing.WAITING:
                self._go(Standing.OUT)
                return []
            case Standing.CLAIMING:
                self._go(Standing.OUT)
                return [AbandonClaim(self._claim)]
            case Standing.LEADING | Standing.PAUSED | Standing.CONFIRMING:
                self._go(Standing.STOPPING)
                return [StopService(self.epoch)]
            case _:
                return []

    # --- the latch --------------------------------------------------------------------------------------------------

    def _granted(self, event: Granted) -> list[Effect]:
        if event.latch != self._latch or not self._has_latch or self.standing is not Standing.WAITING:
            return []
        if self._passes():
            return [*self._leave_queue(), *self._stand_in_queue()]
        self._claim += 1
        self._go(Standing.CLAIMING)
        return [WriteEpoch(self._claim)]

    def _revoked(self, event: Revoked) -> list[Effect]:
        if event.latch != self._latch or not self._has_latch:
            return []
        self._has_latch = False
        match self.standing:
            case Standing.WAITING:
                self._go(Standing.OUT)
                return self._stand_in_queue()
            case Standing.CLAIMING:
                self._go(Standing.OUT)
                return [AbandonClaim(self._claim), *self._stand_in_queue()]
            case Standing.LEADING | Standing.PAUSED | Standing.CONFIRMING:
                self._go(Standing.STOPPING)
                return [StopService(self.epoch)]
            case _:
                return []

    def _stand_in_queue(self) -> list[Effect]:
        """Take a new latch. Without a session there is no queue, so do nothing: Connected will follow."""
        if self.session is Session.AWAY:
            return []
        self._latch += 1
        self._has_latch = True
        self._go(Standing.WAITING)
        return [TakeLatch(self._latch)]

    def _leave_queue(self) -> list[Effect]:
        if not self._has_latch:
            return []
        self._has_latch = False
        return [GiveUpLatch(self._latch)]

    # --- the storage ------------------------------------------------------------------------------------------------

    def _storage_seen(self, event: StorageSeen) -> list[Effect]:
        self._storage = event
        if event.own:
            self._passed = 0
        if self.standing is not Standing.LEADING or not self._passes():
            return []
        # Give up the latch only when the service has ended, as at a shutdown.
        self._go(Standing.STOPPING)
        return [StopService(self.epoch)]

    def _passes(self) -> bool:
        """True if another JobManager should lead instead. Counts each time it returns True."""
        if self._storage.own or not self._storage.elsewhere or self._passed >= MAX_PASSED:
            return False
        self._passed += 1
        return True

    # --- the epoch --------------------------------------------------------------------------------------------------

    def _epoch_written(self, event: EpochWritten) -> list[Effect]:
        if event.claim != self._claim or self.standing is not Standing.CLAIMING:
            return []
        self.epoch = event.epoch
        if self.session is Session.CONNECTED:
            self._go(Standing.LEADING)
            return [StartService(self.epoch)]
        self._go(Standing.PAUSED)
        return [StartService(self.epoch), PauseService(self.epoch)]

    def _claim_refused(self, event: ClaimRefused) -> list[Effect]:
        if event.claim != self._claim or self.standing is not Standing.CLAIMING:
            return []
        left = self._leave_queue()
        return [*left, *self._stand_in_queue()]

    def _confirmed(self, event: Confirmed) -> list[Effect]:
        if event.epoch != self.epoch or self.standing is not Standing.CONFIRMING:
            return []
        self._go(Standing.LEADING)
        return [ResumeService(self.epoch)]

    def _deposed(self, event: Deposed) -> list[Effect]:
        if event.epoch != self.epoch or self.standing is Standing.STOPPING or not self.standing.has_service:
            return []
        self._go(Standing.STOPPING)
        return [*self._leave_queue(), StopService(self.epoch)]

    # --- the service ------------------------------------------------------------------------------------------------

    def _service_ended(self, event: ServiceEnded) -> list[Effect]:
        if self.standing is not Standing.STOPPING or event.epoch != self.epoch:
            self._impossible(event)
        self.epoch = 0
        if self._closing:
            self._go(Standing.CLOSED)
            return self._leave_queue()
        left = self._leave_queue()
        self._go(Standing.OUT)
        return [*left, *self._stand_in_queue()]

    def _shutdown(self, _: Shutdown) -> list[Effect]:
        if self._closing:
            return []
        self._closing = True
        match self.standing:
            case Standing.LEADING | Standing.PAUSED | Standing.CONFIRMING:
                # Keep the latch until the service has ended: a successor then finds a store without other writers.
                self._go(Standing.STOPPING)
                return [StopService(self.epoch)]
            case Standing.STOPPING:
                return []
            case Standing.CLAIMING:
                self._go(Standing.CLOSED)
                return [AbandonClaim(self._claim), *self._leave_queue()]
            case _:
                self._go(Standing.CLOSED)
                return self._leave_queue()

    # --- transitions and invariants ---------------------------------------------------------------------------------

    def _go(self, standing: Standing) -> None:
        if standing is not self.standing and standing not in TRANSITIONS[self.standing]:
            self._impossible(standing)
        self.standing = standing

    def _impossible(self, what: object) -> None:
        raise IllegalTransition("leadership", self.standing.name, str(what), tuple(self._history))

    def check_invariants(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        away = self.session is Session.AWAY
        self._hold(self.standing.has_service == (self.epoch > 0), "an epoch belongs to a service")
        self._hold(
            self._has_latch or self.standing not in (Standing.WAITING, Standing.CLAIMING),
            "a contender that waits or claims has a latch in the queue",
        )
        self._hold(not (away and self._has_latch), "a latch ends with its session")
        self._hold(
            not away or self.standing in (Standing.OUT, Standing.STOPPING, Standing.CLOSED),
            "a contender without a session is not the leader",
        )
        self._hold(
            not self.may_decide or self.session is Session.CONNECTED,
            "a leader decides only while its session is connected",
        )

    def _hold(self, condition: bool, what: str) -> None:
        if not condition:
            raise AssertionError(f"{what}: {self.standing.name}, {' | '.join(self._history)}")
