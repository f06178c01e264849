"""A JobManager's part in the election: feed the leadership machine and carry out its decisions.

Each term as leader is a ``Turn`` with a store, actors and an epoch of its own. A later turn uses nothing from an
earlier one. When a turn has ended, for whatever reason, the process becomes a standby again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Protocol

import structlog

from emberkeep.base.actors import Actor, told
from emberkeep.base.beacon import retry_pause
from emberkeep.base.errors import Conflict, RetryLater, UnknownOutcome
from emberkeep.leadership.machine import LeadershipMachine
from emberkeep.leadership.model import (
    AbandonClaim,
    ClaimRefused,
    Confirmed,
    ConfirmEpoch,
    Deposed,
    Effect,
    EpochWritten,
    Event,
    GiveUpLatch,
    PauseService,
    ResumeService,
    ServiceEnded,
    Shutdown,
    Standing,
    StartService,
    StopService,
    TakeLatch,
    WriteEpoch,
)
from emberkeep.leadership.ports import Election

_LONGEST_PAUSE = 2.0  # seconds between two tries to write or confirm the epoch

log = structlog.get_logger(__name__)


class Turn(Protocol):
    """One term as leader, from the claim to its end."""

    async def claim(self) -> int:
        """Write the epoch and return it.

        Raises Conflict (another JobManager was first), RetryLater, UnknownOutcome, Fatal.
        """

    async def serve(self, epoch: int) -> None:
        """Lead until cancelled.

        Raises Conflict if there is a newer leader, or if this JobManager steps aside for another.
        """

    async def confirm(self) -> None:
        """Confirm the epoch. Raises Conflict if a newer one exists, RetryLater, UnknownOutcome."""

    def pause(self) -> None:
        """Make no decision until ``resume``. Running work continues."""

    def resume(self) -> None:
        """Make decisions again."""

    async def retire(self) -> None:
        """Remove data that only this process needs: called before an orderly shutdown, while still leading.

        Be quick and raise nothing: the next leader waits for this.
        """

    async def close(self) -> None:
        """Release what ``claim`` has taken. Idempotent; raises nothing."""


class Contender(Actor):
    """Takes part in the election, one turn as leader at a time.

    ``turn``: the current term while this JobManager leads, else None. ``closed``: set once this JobManager has left the
    election permanently.
    """

    def __init__(self, election: Election, new_turn: Callable[[], Turn], rng: random.Random) -> None:
        super().__init__("contender")
        self.turn: Turn | None = None
        self.closed = asyncio.Event()
        self._election = election
        self._new_turn = new_turn
        self._rng = rng
        self._machine = LeadershipMachine()
        self._claimed: Turn | None = None
        self._claiming: asyncio.Task[None] | None = None
        self._serving: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None

    @property
    def standing(self) -> Standing:
        return self._machine.standing

    @property
    def epoch(self) -> int:
        """Epoch of the current term; 0 while this JobManager does not lead."""
        return self._machine.epoch

    async def run(self) -> None:
        """Take part in the election until cancelled. Raises Fatal, and any unexpected error of a turn."""
        self.start_effect("election", self._election.run(self.take), deadline=None)
        await super().run()

    async def retire(self) -> None:
        """Let the current turn clean up before ``leave``, if this JobManager is certainly the leader."""
        if self.turn is not None and self.standing is Standing.LEADING:
            await self.turn.retire()

    async def leave(self) -> None:
        """Release leadership, if this process is the leader, and leave the election. Returns when that is done."""
        self.take(Shutdown())
        await self.closed.wait()

    @told
    def take(self, event: Event) -> None:
        """Feed the machine and carry out its effects."""
        before = self.standing
        effects = self._machine.handle(event)
        if self.standing is not before:
            log.info(
                "leadership", was=before.value, now=self.standing.value, because=type(event).__name__, epoch=self.epoch
            )
        for effect in effects:
            self._perform(effect)
        if self.standing is Standing.CLOSED:
            self.closed.set()

    def _perform(self, effect: Effect) -> None:
        match effect:
            case TakeLatch(latch):
                self._election.take(latch)
            case GiveUpLatch(latch):
                self._election.give_up(latch)
            case WriteEpoch(claim):
                self._claimed = self._new_turn()
                self._claiming = self.start_effect(f"claim {claim}", self._claim(claim, self._claimed), deadline=None)
            case AbandonClaim(claim):
                self.start_effect(f"abandon claim {claim}", _abandon(self._claiming, self._claimed), deadline=None)
            case StartService(epoch):
                self._start(epoch)
            case PauseService():
                self._present().pause()
            case ConfirmEpoch(epoch):
                self.start_effect(f"confirm {epoch}", self._confirm(epoch, self._present()), deadline=None)
            case ResumeService():
                self._present().resume()
            case StopService(epoch):
                turn, self.turn = self._present(), None
                turn.pause()
                self.start_effect(f"stop {epoch}", self._stop(epoch, turn), deadline=None)

    def _present(self) -> Turn:
        assert self.turn is not None, "a turn exists while the service runs"  # noqa: S101
        return self.turn

    # --- the claim --------------------------------------------------------------------------------------------------

    async def _claim(self, claim: int, turn: Turn) -> None:
        failures = 0
        while True:
            try:
                epoch = await turn.claim()
            except Conflict as error:
                log.info("another JobManager took leadership", reason=str(error))
                self.take(ClaimRefused(claim))
                return
            except (RetryLater, UnknownOutcome) as error:
                failures += 1
                log.info("the epoch is not written yet", reason=str(error))
                await asyncio.sleep(retry_pause(failures, _LONGEST_PAUSE, self._rng))
            else:
                self.take(EpochWritten(claim, epoch))
                return

    # --- the service ------------------------------------------------------------------------------------------------

    def _start(self, epoch: int) -> None:
        assert self._claimed is not None, "the claim comes first"  # noqa: S101
        self.turn = self._claimed
        self._serving = self.start_effect(f"lead with epoch {epoch}", self._lead(epoch, self.turn), deadline=None)
        self._watching = self.start_effect(f"watch epoch {epoch}", self._watch(epoch), deadline=None)

    async def _lead(self, epoch: int, turn: Turn) -> None:
        try:
            await turn.serve(epoch)
        except Conflict as error:
            log.warning("deposed", epoch=epoch, reason=str(error))
            self.take(Deposed(epoch))

    async def _watch(self, epoch: int) -> None:
        leader = await self._election.newer(epoch)
        log.warning("deposed", epoch=epoch, by=leader.address, newer=leader.epoch)
        self.take(Deposed(epoch))

    async def _confirm(self, epoch: int, turn: Turn) -> None:
        """Retry until the epoch is confirmed or refused. Stop if the connection breaks: the next one checks again."""
        failures = 0
        while self._machine.standing is Standing.CONFIRMING and self.epoch == epoch:
            try:
                await turn.confirm()
            except Conflict:
                self.take(Deposed(epoch))
                return
            except (RetryLater, UnknownOutcome):
                failures += 1
                await asyncio.sleep(retry_pause(failures, _LONGEST_PAUSE, self._rng))
            else:
                self.take(Confirmed(epoch))
                return

    async def _stop(self, epoch: int, turn: Turn) -> None:
        for task in (self._watching, self._serving):
            if task is not None:
                await _ended(task)
        await turn.close()
        self.take(ServiceEnded(epoch))


async def _abandon(task: asyncio.Task[None] | None, turn: Turn | None) -> None:
    if task is not None:
        await _ended(task)
    if turn is not None:
        await turn.close()


async def _ended(task: asyncio.Task[None]) -> None:
    """Cancel the task and wait for it. Its supervisor handles its error."""
    task.cancel()
    await asyncio.wait({task})
