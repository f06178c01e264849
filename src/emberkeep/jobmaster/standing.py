"""Decides what a process knows about its attempt: whether it is still its job's current one (HA-7, P3). Pure.

The leader starts a newer attempt only if it has received nothing from this one for the lease. So a confirmation by a
leader holds for a part of the lease, counted from the moment at which this process asked for it. Afterwards the
process is *alone*: it cannot distinguish a lost JobManager, without which jobs continue (HA-9), from a network that
separates it from a leader that has started a newer attempt. The marks of attempts in the shared storage distinguish
them: a newer attempt writes its mark before its script begins (``local_state.attempt_marks``).

Two things put the attempt *in doubt*: the process was stopped (SIGSTOP, a machine that sleeps) and did not notice what
happened, or it is alone and has not been able to read the marks for as long as a confirmation holds.
"""

from __future__ import annotations


class AttemptStanding:
    """What is known at one moment. Times are seconds of a clock that also advances while the process is stopped.

    ``freeze``: for how long a confirmation holds, and the longest gap between two readings of the clock. Less than the
    silence after which a newer attempt may run, so that the process notices a stop, or its solitude, early enough.
    """

    def __init__(self, freeze: float, now: float) -> None:
        self._freeze = freeze
        self._looked = now
        self._contact = now  # when the newest confirmation was asked for
        self._proof = now  # the same, or when the newest reading of marks began that showed no newer attempt
        self._stopped_until: float | None = None  # the end of a gap that no leader's confirmation has followed

    def shorten(self, freeze: float) -> None:
        """Note how long a confirmation holds for another process. The shortest time that is known applies."""
        self._freeze = min(self._freeze, freeze)

    def look(self, now: float) -> None:
        """Note that the process runs at ``now``."""
        if now - self._looked > self._freeze:
            self._stopped_until = now
        self._looked = now

    def is_in_doubt(self) -> bool:
        """True if the process may do nothing for its attempt: it was stopped, or knows nothing recent."""
        return self._stopped_until is not None or self._looked - self._proof > self._freeze

    def was_stopped(self) -> bool:
        """True if the process was stopped, and no leader has confirmed the attempt since then."""
        return self._stopped_until is not None

    def is_alone(self) -> bool:
        """True if each commit must be preceded by a reading of the marks."""
        return self._looked - self._contact > self._freeze

    def needs_confirmation(self) -> bool:
        """True if the next message to the leader must ask it to confirm the attempt."""
        return self._looked - self._contact >= self._freeze / 4

    def needs_marks(self) -> bool:
        """True if the marks must be read, although no commit waits for it."""
        return self._looked - self._contact >= self._freeze / 2 and self._looked - self._proof >= self._freeze / 4

    def confirmed(self, asked: float) -> None:
        """Note that a leader, which is certainly the leader, has confirmed the attempt. ``asked``: when it was asked.

        This ends the doubt after a stop only if the leader was asked after the stop.
        """
        self._contact = max(self._contact, asked)
        self._proof = max(self._proof, asked)
        if self._stopped_until is not None and asked >= self._stopped_until:
            self._stopped_until = None

    def marks_read(self, begun: float) -> None:
        """Note that the marks were read and showed no newer attempt. ``begun``: when the reading began."""
        self._proof = max(self._proof, begun)
