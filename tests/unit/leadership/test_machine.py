"""What a JobManager does about leadership, event by event."""

from __future__ import annotations

import pytest

from emberkeep.base.errors import IllegalTransition
from emberkeep.leadership.machine import LeadershipMachine
from emberkeep.leadership.model import (
    AbandonClaim,
    ClaimRefused,
    Confirmed,
    ConfirmEpoch,
    Connected,
    Deposed,
    EpochWritten,
    Event,
    GiveUpLatch,
    Granted,
    Lost,
    PauseService,
    ResumeService,
    Revoked,
    ServiceEnded,
    Shutdown,
    Standing,
    StartService,
    StopService,
    Suspended,
    TakeLatch,
    WriteEpoch,
)

TO_LEADING: tuple[Event, ...] = (Connected(), Granted(1), EpochWritten(1, 5))


def after(*events: Event) -> LeadershipMachine:
    machine = LeadershipMachine()
    for event in events:
        machine.handle(event)
        machine.check_invariants()
    return machine


def test_the_way_to_leadership() -> None:
    machine = LeadershipMachine()
    assert machine.handle(Connected()) == [TakeLatch(1)]
    assert machine.handle(Granted(1)) == [WriteEpoch(1)]
    assert machine.handle(EpochWritten(1, 5)) == [StartService(5)]
    assert machine.may_decide
    assert machine.epoch == 5


@pytest.mark.req("HA-9")
def test_suspended_takes_no_decision_and_keeps_running() -> None:
    machine = after(*TO_LEADING)
    assert machine.handle(Suspended()) == [PauseService(5)]
    assert (machine.may_decide, machine.standing) == (False, Standing.PAUSED)
    assert machine.handle(Suspended()) == []


@pytest.mark.req("HA-9")
def test_it_decides_again_only_when_its_epoch_is_confirmed() -> None:
    machine = after(*TO_LEADING, Suspended())
    assert machine.handle(Connected()) == [ConfirmEpoch(5)]
    assert not machine.may_decide
    assert machine.handle(Confirmed(4)) == []
    assert machine.handle(Confirmed(5)) == [ResumeService(5)]
    assert machine.may_decide


def test_an_interrupted_confirmation_is_asked_for_again() -> None:
    machine = after(*TO_LEADING, Suspended(), Connected())
    assert machine.handle(Suspended()) == []
    assert machine.handle(Confirmed(5)) == []
    assert machine.handle(Connected()) == [ConfirmEpoch(5)]


@pytest.mark.parametrize("before", [(), (Suspended(),), (Suspended(), Connected())])
def test_lost_stops_leading_at_once_and_stands_by_again(before: tuple[Event, ...]) -> None:
    machine = after(*TO_LEADING, *before)
    assert machine.handle(Lost()) == [StopService(5)]
    assert not machine.may_decide
    assert machine.handle(Connected()) == []
    assert machine.handle(ServiceEnded(5)) == [TakeLatch(2)]
    assert machine.standing is Standing.WAITING


def test_after_lost_it_waits_for_a_session() -> None:
    machine = after(*TO_LEADING, Lost(), ServiceEnded(5))
    assert machine.standing is Standing.OUT
    assert machine.handle(Connected()) == [TakeLatch(2)]


@pytest.mark.req("HA-6")
def test_a_deposed_leader_goes_to_the_end_of_the_queue() -> None:
    machine = after(*TO_LEADING)
    assert machine.handle(Deposed(5)) == [GiveUpLatch(1), StopService(5)]
    assert machine.handle(Deposed(5)) == []
    assert machine.handle(Granted(1)) == []
    assert machine.handle(ServiceEnded(5)) == [TakeLatch(2)]


def test_a_refused_claim_goes_to_the_end_of_the_queue() -> None:
    machine = after(Connected(), Granted(1))
    assert machine.handle(ClaimRefused(1)) == [GiveUpLatch(1), TakeLatch(2)]
    assert machine.handle(ClaimRefused(1)) == []


def test_a_session_lost_while_claiming_abandons_the_claim() -> None:
    machine = after(Connected(), Granted(1))
    assert machine.handle(Lost()) == [AbandonClaim(1)]
    assert machine.handle(EpochWritten(1, 5)) == []
    assert machine.handle(Connected()) == [TakeLatch(2)]
    assert machine.handle(Granted(2)) == [WriteEpoch(2)]
    assert machine.handle(EpochWritten(1, 5)) == []


@pytest.mark.req("HA-9")
def test_an_epoch_written_while_the_connection_breaks_leads_without_deciding() -> None:
    machine = after(Connected(), Granted(1), Suspended())
    assert machine.handle(EpochWritten(1, 5)) == [StartService(5), PauseService(5)]
    assert machine.handle(Connected()) == [ConfirmEpoch(5)]


def test_a_removed_latch_ends_leadership_and_is_taken_again() -> None:
    machine = after(*TO_LEADING)
    assert machine.handle(Revoked(1)) == [StopService(5)]
    assert machine.handle(ServiceEnded(5)) == [TakeLatch(2)]
    assert machine.handle(Revoked(1)) == []
    assert machine.handle(Revoked(2)) == [TakeLatch(3)]


def test_a_shutdown_ends_the_service_before_it_gives_up_the_latch() -> None:
    machine = after(*TO_LEADING)
    assert machine.handle(Shutdown()) == [StopService(5)]
    assert machine.handle(Shutdown()) == []
    assert machine.handle(ServiceEnded(5)) == [GiveUpLatch(1)]
    assert machine.standing is Standing.CLOSED
    assert machine.handle(Lost()) == []
    assert machine.handle(Connected()) == []


@pytest.mark.parametrize(
    ("before", "effects"),
    [
        ((), []),
        ((Connected(),), [GiveUpLatch(1)]),
        ((Connected(), Granted(1)), [AbandonClaim(1), GiveUpLatch(1)]),
    ],
)
def test_a_standby_ends_at_once(before: tuple[Event, ...], effects: list[object]) -> None:
    machine = after(*before)
    assert machine.handle(Shutdown()) == effects
    assert machine.standing is Standing.CLOSED


@pytest.mark.parametrize(("before", "epoch"), [(TO_LEADING, 5), ((*TO_LEADING, Shutdown()), 4)])
def test_a_service_that_ends_unasked_is_an_error_with_history(before: tuple[Event, ...], epoch: int) -> None:
    machine = after(*before)
    with pytest.raises(IllegalTransition, match="EpochWritten"):
        machine.handle(ServiceEnded(epoch))


@pytest.mark.parametrize("event", [Suspended(), Lost()])
def test_a_session_that_ends_before_it_begins_changes_nothing(event: Event) -> None:
    machine = after(event)
    assert machine.handle(Suspended()) == []
    assert machine.standing is Standing.OUT
    assert machine.handle(Connected()) == [TakeLatch(1)]


def test_a_standby_that_loses_its_session_leaves_the_queue_and_comes_back() -> None:
    machine = after(Connected())
    assert machine.handle(Lost()) == []
    assert machine.standing is Standing.OUT
    assert machine.handle(Granted(1)) == []
    assert machine.handle(Connected()) == [TakeLatch(2)]
