"""Who answers requests in a JobManager."""

from __future__ import annotations

import pytest

from emberkeep.base.errors import RetryLater
from emberkeep.jobmanager.leader import LeaderSeat


def test_without_a_leader_requests_are_refused_and_no_term_is_known() -> None:
    seat = LeaderSeat()
    assert (seat.is_taken, seat.epoch, seat.started_ms) == (False, 0, 0)
    with pytest.raises(RetryLater, match="not the leader"):
        _ = seat.leader
    seat.leave()
    assert not seat.is_taken
