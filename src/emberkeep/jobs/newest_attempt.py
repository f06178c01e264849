"""Determines which attempt of a job is the newest.

Usually it is the newest one in the job store. If the store was restored from an older copy, task managers and drivers
know of newer attempts. Such an attempt is adopted: its driver may be alive, and continues under its number. A leader
that has read a job from the store waits a while for reports before it writes the job's next number, so that no two
drivers run under one number.
"""

from __future__ import annotations

from emberkeep.jobs import events as ev
from emberkeep.jobs.driver import Driver
from emberkeep.jobs.events import Moment
from emberkeep.jobs.model import AttemptOutcome, FailureKind, JobStatus
from emberkeep.jobs.state import JobState
from emberkeep.jobs.transitions import Phase

_ADOPTS = frozenset(
    {
        Phase.WITHOUT_GRAPH,
        Phase.PLACING,
        Phase.RECORDING_ATTEMPT,
        Phase.ADOPTING,
        Phase.STARTING,
        Phase.RUNNING,
        Phase.ENDING,
        Phase.BACKING_OFF,
    }
)


class NewestAttempt(JobState):
    """The part of a job machine that begins attempts and adopts those that another leader has begun."""

    def _record_next_attempt(self) -> None:
        self.attempt = max(self.attempt, self._seen) + 1
        self._writing = self.attempt
        self.phase = Phase.RECORDING_ATTEMPT
        self._effects.append(ev.RecordAttempt(self.attempt))

    def _listens(self, now: Moment) -> bool:
        """Back off while task managers may still report newer attempts. Return True if the job must wait for them."""
        if now.at >= self._listens_until:
            return False
        self.phase, self._restart_at = Phase.BACKING_OFF, self._listens_until
        return True

    def _await_driver(self, now: Moment) -> None:
        """Wait for the driver of the newest attempt, which may be alive."""
        self.driver = Driver(attempt=self.attempt, since=now.at, heard_at=now.at, place=None, home=self._home)
        self.history.attempt_started(self.attempt, self._home.task_manager if self._home else None, now.ms)
        self._enter(JobStatus.INITIALIZING, now)

    def _follow_driver(self, now: Moment) -> None:
        self.phase = Phase.RUNNING if self._live().registered else Phase.STARTING
        if self.stopped:
            self._script_until = now.at + self._policy.script_timeout

    def is_news(self, attempt: int) -> bool:
        """True if another leader began this attempt and the job store does not have it."""
        unused = self.phase is Phase.RECORDING_ATTEMPT  # this leader has not used the number yet
        return attempt > self.attempt or (unused and attempt == self.attempt)

    def _attempt_seen(self, event: ev.AttemptSeen, now: Moment) -> None:
        is_news = self.is_news(event.number)
        self._seen = max(self._seen, event.number)
        if is_news and self.phase in _ADOPTS and self.verdict is None:
            self._adopt(event.number, now)

    def _adopt(self, number: int, now: Moment) -> None:
        if self.driver is not None and not self.driver.gone:
            outcome = AttemptOutcome(exit_code=1, kind=FailureKind.LOST, message=f"attempt {number} has followed")
            self.history.attempt_ended(self.driver.attempt, outcome, now.ms)
            if self.phase is not Phase.WITHOUT_GRAPH:
                self._effects.append(ev.AttemptOver(self.driver.attempt))
        if self.phase in (Phase.PLACING, Phase.RECORDING_ATTEMPT):
            self._effects.append(ev.WithdrawPlace())
        self._place = self._home = self._end_to_judge = None
        self._explain_at = self._restart_at = self._script_until = None
        self._moving = False
        self.attempt = number
        self._await_driver(now)
        if self.phase is Phase.WITHOUT_GRAPH:
            return
        if self.phase in (Phase.RECORDING_ATTEMPT, Phase.ADOPTING):
            self.phase = Phase.ADOPTING  # adopted as soon as the write that is under way has finished
        else:
            self._write_adopted()

    def _write_adopted(self) -> None:
        self.phase = Phase.ADOPTING
        self._writing = self.attempt
        self._effects.append(ev.AdoptAttempt(self.attempt))
