"""What the parts of the gateway share: the seat of the leader."""

from __future__ import annotations

from emberkeep.base.configuration.values import Configuration
from emberkeep.jobmanager.leader import Leader, LeaderSeat
from emberkeep.jobmanager.surroundings import Surroundings


class Seated:
    """A part of the gateway of the leader in ``seat``. Its calls raise RetryLater if there is no leader."""

    def __init__(self, configuration: Configuration, surroundings: Surroundings, seat: LeaderSeat) -> None:
        self._configuration = configuration
        self._surroundings = surroundings
        self._seat = seat

    @property
    def _leader(self) -> Leader:
        return self._seat.leader

    def _confirmed_leader(self) -> Leader:
        """Return the leader. Raises RetryLater while its session with the job store is interrupted."""
        leader = self._seat.leader
        leader.term.authority.check_session()
        return leader
