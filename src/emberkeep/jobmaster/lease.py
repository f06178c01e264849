"""The right to commit for an attempt, shared by all threads of its driver. ``standing`` decides; this module waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from emberkeep.base.clock import since_boot
from emberkeep.jobmaster.standing import AttemptStanding

LOOKS_PER_FREEZE = 20
# A newer attempt starts only after this one has been silent for the whole lease. A stop or a silence of half that time
# is thus detected early enough.
CONFIRMED_SHARE = 0.5


@dataclass(frozen=True)
class Reading:
    """A reading of the attempts' marks: its number among all readings, and when it began."""

    number: int
    begun: float


class AttemptLease:
    """The right to commit: suspended while in doubt, and while alone until the marks have been read again.

    Any thread may use it.

    ``freeze``: see AttemptStanding; CONFIRMED_SHARE of the lease that this process knows.
    ``clock`` returns seconds, and also advances while this process is stopped.
    """

    def __init__(self, freeze: float, clock: Callable[[], float] = since_boot) -> None:
        self.interval = freeze / LOOKS_PER_FREEZE  # longest allowed seconds between two readings of the clock
        self._clock = clock
        self._changed = threading.Condition()
        self._standing = AttemptStanding(freeze, clock())
        self._begun = 0  # readings of the marks
        self._read = 0  # newest reading that showed no newer attempt
        self._is_wanted = False  # a commit waits for a reading that has not begun

    def shorten(self, lease: float) -> None:
        """Note the lease by which a leader judges this attempt, in seconds. The shortest that is known applies.

        This process has its own lease from a task manager, and a leader need not have the same configuration.
        """
        with self._changed:
            freeze = lease * CONFIRMED_SHARE
            self._standing.shorten(freeze)
            self.interval = min(self.interval, freeze / LOOKS_PER_FREEZE)

    def look(self) -> bool:
        """Read the clock; return True if the lease is in doubt."""
        with self._changed:
            self._look()
            return self._standing.is_in_doubt()

    def was_stopped(self) -> bool:
        """True if the lease is in doubt because the process was stopped."""
        with self._changed:
            return self._standing.was_stopped()

    def needs_confirmation(self) -> bool:
        """True if the next message to the leader must ask it to confirm the attempt."""
        with self._changed:
            self._look()
            return self._standing.needs_confirmation()

    def asking(self) -> float:
        """Return the time to pass to ``confirmed``. Call this right before asking the JobManager."""
        with self._changed:
            return self._look()

    def confirmed(self, asked: float) -> None:
        """Note that the leader has confirmed the attempt. ``asked``: the result of ``asking``."""
        with self._changed:
            self._look()
            self._standing.confirmed(asked)
            self._changed.notify_all()

    # --- commits ------------------------------------------------------------------------------------------------------

    def ask_to_commit(self) -> int:
        """Return the number of the newest reading of marks that began too early for a commit that begins now."""
        with self._changed:
            return self._begun

    def may_commit(self, too_early: int) -> bool:
        """True if a commit may take place now. ``too_early``: the result of ``ask_to_commit``.

        If False, the commit waits for a confirmation, or for a reading of the marks, which is requested.
        """
        with self._changed:
            self._look()
            if not self._standing.is_in_doubt() and (not self._standing.is_alone() or self._read > too_early):
                return True
            self._is_wanted = True
            self._changed.notify_all()
            return False

    def wait(self) -> None:
        """Return once this attempt may commit.

        In a superseded attempt this never returns: its process is killed while it waits.
        """
        too_early = self.ask_to_commit()
        with self._changed:
            while not self.may_commit(too_early):
                self._changed.wait(self.interval)

    def wait_for_certainty(self) -> None:
        """Return once the lease is not in doubt."""
        with self._changed:
            while self.look():
                self._changed.wait(self.interval)

    # --- marks --------------------------------------------------------------------------------------------------------

    def needs_marks(self) -> bool:
        """True if the marks must be read now: a commit waits for it, or the last confirmation is not recent."""
        with self._changed:
            self._look()
            return self._is_wanted or self._standing.needs_marks()

    def wait_until_marks_are_needed(self) -> None:
        with self._changed:
            while not self.needs_marks():
                self._changed.wait(self.interval)

    def begin_reading(self) -> Reading:
        """Return a reading of the marks that begins now."""
        with self._changed:
            self._begun += 1
            self._is_wanted = False
            return Reading(self._begun, self._look())

    def marks_read(self, reading: Reading) -> None:
        """Note that a reading of the marks has ended, and that it showed no newer attempt."""
        with self._changed:
            self._look()
            self._read = max(self._read, reading.number)
            self._standing.marks_read(reading.begun)
            self._changed.notify_all()

    def _look(self) -> float:
        now = self._clock()
        self._standing.look(now)
        return now
