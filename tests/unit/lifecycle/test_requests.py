"""The machine of a job's requests: a table of cases."""

from __future__ import annotations

from typing import Any

import pytest

from emberkeep.base.errors import Conflict, Fatal
from emberkeep.base.ids import JobId
from emberkeep.lifecycle.model import Procedure, ProcedurePhase, ProcedureProgress, ProcedureRequest
from emberkeep.lifecycle.requests import events as ev
from emberkeep.lifecycle.requests.machine import RequestMachine
from emberkeep.lifecycle.requests.transitions import RequestPhase

JOB = JobId("a" * 32)
LATE_MS = 5_000


def request(number: int, procedure: Procedure = Procedure.SAVEPOINT) -> ProcedureRequest:
    deadline = 0 if procedure is Procedure.MOVE else LATE_MS
    return ProcedureRequest(trigger_id=f"{number:032x}", procedure=procedure, deadline_ms=deadline)


def progress(of: ProcedureRequest, phase: ProcedurePhase) -> ProcedureProgress:
    savepoint = "/savepoints/1" if phase is ProcedurePhase.COMPLETED and of.procedure.makes_savepoint else ""
    return ProcedureProgress(trigger_id=of.trigger_id, phase=phase, savepoint=savepoint, procedure=of.procedure)


def open_machine(current: ProcedureRequest | None = None, stopped: ev.Ended | None = None) -> RequestMachine:
    machine = RequestMachine(JOB)
    machine.handle(ev.TakenOver(current, stopped), 1)
    return machine


def open_progress(machine: RequestMachine) -> ProcedureProgress | None:
    return machine.progress


SAVEPOINT, SUSPEND, MOVE = request(1), request(2, Procedure.SUSPEND), request(3, Procedure.MOVE)
STOPPED = ev.Ended(trigger_id="f" * 32, request=None, savepoint="/savepoints/0")


@pytest.mark.req("END-5")
@pytest.mark.parametrize(
    ("current", "stopped", "facts", "refusal"),
    [
        (None, None, {}, ""),
        (None, None, {"ending": "CANCELLING"}, "is ending: it is CANCELLING"),
        (None, STOPPED, {}, f"was stopped by request {STOPPED.trigger_id}"),
        (SAVEPOINT, None, {}, "a savepoint is being made"),
        (SAVEPOINT, None, {"has_driver": False}, "a savepoint is being made"),
        (SUSPEND, None, {"has_driver": False}, "it is being suspended"),
        (MOVE, None, {}, "it is being moved"),
        (MOVE, None, {"has_driver": False}, ""),
    ],
)
def test_which_request_a_job_takes(
    current: ProcedureRequest | None, stopped: ev.Ended | None, facts: dict[str, Any], refusal: str
) -> None:
    machine, wanted = open_machine(current, stopped), request(9)
    if refusal:
        with pytest.raises(Conflict, match=refusal):
            machine.handle(ev.RequestMade(wanted, 1, **facts), 1)
        assert machine.newest is current
    else:
        assert machine.handle(ev.RequestMade(wanted, 1, **facts), 1) == [ev.WriteRequest(wanted)]
        assert (machine.newest, machine.current) == (wanted, current), "drivers still get what is durable"


@pytest.mark.parametrize(
    ("waits_for", "passed", "fails"),
    [("a place", SUSPEND, True), ("a place", SAVEPOINT, False), ("", SUSPEND, False)],
)
@pytest.mark.req("END-6")
@pytest.mark.parametrize("now_ms", [1, 10**15])  # whatever the clock shows
def test_a_deadline_is_enforced_while_the_job_has_no_driver(
    waits_for: str, passed: ProcedureRequest, fails: bool, now_ms: int
) -> None:
    effects = open_machine(SUSPEND).handle(ev.DeadlinePassed(passed.trigger_id, waits_for), now_ms)
    assert effects == ([ev.DeleteRequest(SUSPEND)] if fails else [])


@pytest.mark.req("END-4")
@pytest.mark.parametrize(
    ("current", "phase", "after", "stops"),
    [
        (SAVEPOINT, ProcedurePhase.COMPLETED, RequestPhase.IDLE, False),
        (SUSPEND, ProcedurePhase.COMPLETED, RequestPhase.STOPPED, True),
        (SUSPEND, ProcedurePhase.FAILED, RequestPhase.IDLE, False),
        (MOVE, ProcedurePhase.COMPLETED, RequestPhase.IDLE, False),
    ],
)
def test_what_follows_the_end_of_a_request(
    current: ProcedureRequest, phase: ProcedurePhase, after: RequestPhase, stops: bool
) -> None:
    machine, told = open_machine(current), progress(current, phase)
    (write,) = machine.handle(ev.Reported(3, told), 2)
    failed = phase is ProcedurePhase.FAILED
    assert write == (ev.DeleteRequest(current) if failed else ev.WriteEnd(current, 3, told))
    assert machine.recorded_for(told) == "", "its end is not durable"
    ended, *more = machine.handle(ev.EndWritten(), 3)
    assert isinstance(ended, ev.Ended)
    assert (ended.savepoint, ended.failure) == (told.savepoint, "it failed" if failed else "")
    assert more == ([ev.StopJob()] if stops else [])
    assert (machine.phase, machine.recorded_for(told)) == (after, current.trigger_id)


@pytest.mark.req("END-4")
def test_a_stop_that_the_store_does_not_know_is_recorded_before_the_script_goes_on() -> None:
    """As after a store was restored from a copy that is older than the request."""
    machine, told = open_machine(), progress(SUSPEND, ProcedurePhase.COMPLETED)
    assert machine.recorded_for(told) == ""
    (write,) = machine.handle(ev.Reported(3, told), 2)
    assert isinstance(write, ev.WriteEnd)
    assert (write.request.trigger_id, write.request.procedure) == (SUSPEND.trigger_id, SUSPEND.procedure)
    assert machine.recorded_for(told) == ""
    assert machine.handle(ev.EndWritten(), 3)[1:] == [ev.StopJob()]
    assert (machine.phase, machine.recorded_for(told)) == (RequestPhase.STOPPED, SUSPEND.trigger_id)


@pytest.mark.req("END-4")
def test_a_stop_that_the_store_does_not_know_ends_a_later_request() -> None:
    machine, told = open_machine(SAVEPOINT), progress(SUSPEND, ProcedurePhase.COMPLETED)
    assert machine.handle(ev.Reported(3, told), 2) == [ev.DeleteRequest(SAVEPOINT)]
    (ended,) = machine.handle(ev.EndWritten(), 3)
    assert isinstance(ended, ev.Ended)
    assert f"request {SUSPEND.trigger_id} has stopped the job" in ended.failure
    assert machine.recorded_for(told) == ""
    assert isinstance(machine.handle(ev.Reported(3, told), 4)[0], ev.WriteEnd)


@pytest.mark.parametrize(("asked", "phase"), [(SUSPEND, ProcedurePhase.FAILED), (SAVEPOINT, ProcedurePhase.COMPLETED)])
def test_no_other_end_that_the_store_does_not_know_is_recorded(asked: ProcedureRequest, phase: ProcedurePhase) -> None:
    machine, told = open_machine(), progress(asked, phase)
    assert machine.handle(ev.Reported(3, told), 2) == []
    assert (machine.phase, machine.recorded_for(told)) == (RequestPhase.IDLE, told.trigger_id)


def test_an_end_that_is_not_written_is_reported_again() -> None:
    machine, told = open_machine(SAVEPOINT), progress(SAVEPOINT, ProcedurePhase.COMPLETED)
    machine.handle(ev.Reported(3, told), 2)
    assert machine.handle(ev.EndNotWritten(), 3) == []
    assert (machine.phase, machine.current) == (RequestPhase.OPEN, SAVEPOINT)
    assert machine.handle(ev.Reported(3, told), 4) == [ev.WriteEnd(SAVEPOINT, 3, told)]


@pytest.mark.req("END-5")
def test_every_caller_of_a_write_gets_its_outcome() -> None:
    machine, refused = open_machine(), Fatal("no space left")
    machine.handle(ev.RequestMade(SAVEPOINT, 1), 1)
    assert machine.handle(ev.RequestMade(SAVEPOINT, 2), 1) == []
    assert machine.handle(ev.WriteUncertain(refused), 2) == [ev.Refuse((1, 2), refused)]
    machine.handle(ev.RequestMade(SAVEPOINT, 3), 3)
    assert machine.handle(ev.RequestNotWritten(refused), 4) == [ev.Refuse((3,), refused)]
    assert machine.newest is None


def test_a_job_that_ends_fails_its_request_and_a_write_under_way_is_still_answered() -> None:
    machine = open_machine()
    machine.handle(ev.RequestMade(SUSPEND, 1), 1)
    (ended,) = machine.handle(ev.JobEnded("CANCELED"), 2)
    assert isinstance(ended, ev.Ended)
    assert (ended.trigger_id, "it is CANCELED" in ended.failure) == (SUSPEND.trigger_id, True)
    assert machine.handle(ev.RequestWritten(), 3) == [ev.Accept((1,))]
    assert machine.current is None


def test_the_progress_of_a_move_is_not_shown_for_the_request_that_replaces_it() -> None:
    machine, told = open_machine(MOVE), progress(MOVE, ProcedurePhase.FINISHING_BATCHES)
    machine.handle(ev.Reported(1, told), 1)
    assert open_progress(machine) == told
    machine.handle(ev.RequestMade(SAVEPOINT, 1, has_driver=False), 2)
    assert machine.newest == SAVEPOINT
    assert open_progress(machine) is None
    ended, watch, accept = machine.handle(ev.RequestWritten(), 3)
    assert ended == ev.Ended(trigger_id=MOVE.trigger_id, request=MOVE)
    assert (watch, accept) == (ev.WatchDeadline(SAVEPOINT), ev.Accept((1,)))


def test_the_progress_of_a_request_begins_again_with_the_next_attempt() -> None:
    machine = open_machine(SAVEPOINT)
    machine.handle(ev.Reported(1, progress(SAVEPOINT, ProcedurePhase.FINISHING_BATCHES)), 1)
    assert machine.handle(ev.NextAttemptRecorded(), 2) == []
    assert (machine.current, open_progress(machine)) == (SAVEPOINT, None)


def test_a_move_that_is_written_after_the_next_attempt_does_not_move_that_attempt() -> None:
    """The reply to its first write was lost, for instance. The driver that had to leave is gone."""
    machine = open_machine()
    machine.handle(ev.RequestMade(MOVE, 1), 1)
    assert machine.handle(ev.NextAttemptRecorded(), 2) == []
    assert machine.handle(ev.RequestWritten(), 3) == [ev.Accept((1,)), ev.DeleteRequest(MOVE)]
    assert machine.current is None, "its driver is not told"
    with pytest.raises(Conflict, match="it is being moved"):
        machine.handle(ev.RequestMade(SAVEPOINT, 2), 4)
    machine.check_invariants()
    assert machine.handle(ev.EndWritten(), 5) == [ev.Ended(trigger_id=MOVE.trigger_id, request=MOVE)]
    assert machine.phase is RequestPhase.IDLE
    machine.handle(ev.RequestMade(MOVE, 3), 6)
    machine.handle(ev.RequestWritten(), 7)
    assert machine.current == MOVE, "a move that is asked of the newer attempt is carried out"
