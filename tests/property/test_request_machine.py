"""The requests to one job under any order of events: what must never happen, and that this test would notice it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from emberkeep.base.errors import Conflict, Fatal, IllegalTransition, UnknownOutcome
from emberkeep.base.ids import JobId
from emberkeep.lifecycle.model import Procedure, ProcedurePhase, ProcedureProgress, ProcedureRequest
from emberkeep.lifecycle.requests import events as ev
from emberkeep.lifecycle.requests.machine import RequestMachine
from emberkeep.lifecycle.requests.transitions import TRANSITIONS, RequestPhase
from tests.campaign import examples

JOB = JobId("a" * 32)
DEADLINE_MS = 1_000
STOPS = (Procedure.SUSPEND, Procedure.DRAIN)
FINAL = (ProcedurePhase.COMPLETED, ProcedurePhase.FAILED)


def request(number: int, procedure: Procedure) -> ProcedureRequest:
    deadline = 0 if procedure is Procedure.MOVE else DEADLINE_MS
    return ProcedureRequest(trigger_id=f"{number:032x}", procedure=procedure, deadline_ms=deadline)


RARELY = st.sampled_from([False, False, False, True])
REQUESTS = [request(number, procedure) for number, procedure in enumerate((*Procedure, *Procedure), start=1)]


class Store:
    """What the job store has of the job, and which requests it has ended."""

    def __init__(self) -> None:
        self.request: ProcedureRequest | None = None
        self.stopped: ProcedureRequest | None = None
        self.job_ended = False
        self.ever: set[str] = set()  # triggers of requests that it has had
        self.ends: set[str] = set()  # triggers of requests whose end it has


class RequestLife(RuleBasedStateMachine):
    """People ask, drivers work and die, writes are slow, repeated or refused, and leaders die at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store()
        self.machine = RequestMachine(JOB)
        self.now_ms = 1
        self.attempt = 1
        self.driver = True  # False: the job has none, and none is being started
        self.begun: bool | None = None  # an attempt is being recorded; True once the store has it
        self.write: ev.WriteRequest | ev.WriteEnd | ev.DeleteRequest | None = None
        self.applied = False  # the write has reached the store, perhaps several times
        self.asking: dict[int, ProcedureRequest] = {}  # callers that wait
        self.accepted: set[str] = set()
        self.reported: ProcedureProgress | None = None  # by the current driver
        # Moves that were being written while the next attempt was recorded. Whether the store still has them depends on
        # which write came first; the machine cannot know. At worst the next attempt moves once more.
        self.crossed: set[str] = set()
        self.numbers = itertools.count(1)
        self._feed(ev.TakenOver())

    def _feed(self, event: ev.Event) -> None:
        for effect in self.machine.handle(event, self.now_ms):
            self._take(effect)

    def _take(self, effect: ev.Effect) -> None:
        match effect:
            case ev.WriteRequest() | ev.WriteEnd() | ev.DeleteRequest():
                assert self.write is None, "one write at a time"
                self.write, self.applied = effect, False
            case ev.Accept(callers):
                for caller in callers:
                    asked = self.asking.pop(caller)
                    assert asked.trigger_id in self.store.ever, "a request is durable before it is acknowledged"
                    self.accepted.add(asked.trigger_id)
            case ev.Refuse(callers):
                for caller in callers:
                    del self.asking[caller]
            case ev.StopJob():
                assert self.store.stopped is not None, "a stop is durable before it is acted upon"
            case ev.Ended():
                over = self.store.job_ended or effect.trigger_id in self.store.ends | self.crossed
                assert over, "an end is durable before people hear of it"
            case ev.WatchDeadline():
                pass

    # --- people -------------------------------------------------------------------------------------------------------

    @rule(asked=st.sampled_from(REQUESTS))
    def asks(self, asked: ProcedureRequest) -> None:
        if asked.trigger_id in self.store.ends:
            return  # the caller is told its end
        if asked.procedure is Procedure.MOVE and (not self.driver or self.begun is not None):
            return  # only a driver that runs is asked to move
        caller, before = next(self.numbers), self.machine.phase
        self.asking[caller] = asked
        try:
            self._feed(ev.RequestMade(asked, caller, has_driver=self.driver))
        except Conflict:
            del self.asking[caller]
            assert self.machine.phase is before, "a refusal changes nothing"
        else:
            assert self.store.stopped is None or self.machine.stopped is None, "nothing follows a stop"

    # --- the store ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.write is not None and not self.store.job_ended)
    @rule()
    def write_takes_effect(self) -> None:
        """Perhaps again: a write is repeated until its outcome is known."""
        store, write = self.store, self.write
        assert write is not None
        if isinstance(write, ev.WriteRequest):
            self._replace(write.request)
        elif isinstance(write, ev.DeleteRequest):
            self._end(write.request)
        elif write.attempt in (0, self.attempt):
            self._end(write.request)
            if write.request.procedure in STOPS:
                store.stopped = write.request
        else:
            return
        self.applied = True

    def _replace(self, by: ProcedureRequest) -> None:
        store, known = self.store, self.store.request
        if known is not None and known != by:
            assert known.procedure is Procedure.MOVE, "only a move gives way"
            store.ends.add(known.trigger_id)
        assert store.stopped is None, "nothing follows a stop"
        store.request = by
        store.ever.add(by.trigger_id)

    def _end(self, ended: ProcedureRequest) -> None:
        store = self.store
        assert store.request in (None, ended), "the end of one request does not delete another"
        store.request = None
        store.ends.add(ended.trigger_id)

    @precondition(lambda self: self.write is not None)
    @rule()
    def write_reports(self) -> None:
        write, self.write = self.write, None
        if isinstance(write, ev.WriteRequest):
            error = Fatal("no space left")
            self._feed(ev.RequestWritten() if self.applied else ev.RequestNotWritten(error))
        else:
            self._feed(ev.EndWritten() if self.applied else ev.EndNotWritten())

    @precondition(lambda self: self.write is not None and not self.store.job_ended)
    @rule()
    def write_succeeds(self) -> None:
        self.write_takes_effect()
        self.write_reports()

    @precondition(lambda self: self.driver and self.begun is None and not self.store.job_ended)
    @rule(asked=st.sampled_from(REQUESTS), phase=st.sampled_from(FINAL))
    def request_is_carried_out(self, asked: ProcedureRequest, phase: ProcedurePhase) -> None:
        """As it usually goes, up to the write of the end."""
        self.asks(asked)
        if isinstance(self.write, ev.WriteRequest):
            self.write_succeeds()
        if self.machine.phase is RequestPhase.OPEN:
            self.driver_reports(phase)

    @precondition(lambda self: isinstance(self.write, ev.WriteRequest))
    @rule()
    def write_takes_long(self) -> None:
        self._feed(ev.WriteUncertain(UnknownOutcome("no answer")))

    # --- drivers ------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.driver and self.begun is None)
    @rule()
    def driver_is_lost(self) -> None:
        self.driver, self.reported = False, None

    @precondition(lambda self: self.driver and isinstance(self.write, ev.WriteEnd))
    @rule(asked=st.sampled_from(REQUESTS))
    def driver_is_lost_while_its_end_is_written(self, asked: ProcedureRequest) -> None:
        """A short way to what rules one by one seldom reach: someone asks at that moment."""
        self.driver_is_lost()
        self.asks(asked)

    @precondition(lambda self: not self.driver and self.machine.phase is not RequestPhase.RECORDING_END)
    @rule()
    def attempt_begins(self) -> None:
        """Once the end of a request is recorded, which may have stopped the job."""
        if self.store.stopped is None and not self.store.job_ended:
            self.driver, self.begun = True, False

    @precondition(lambda self: self.begun is False and not self.store.job_ended)
    @rule()
    def attempt_is_written(self) -> None:
        self.begun = True
        self.attempt += 1
        if isinstance(self.write, ev.WriteRequest) and self.write.request.procedure is Procedure.MOVE:
            self.crossed.add(self.write.request.trigger_id)
        known = self.store.request
        if known is not None and known.procedure is Procedure.MOVE:
            self.store.request = None
            self.store.ends.add(known.trigger_id)

    @precondition(lambda self: self.begun)
    @rule()
    def attempt_is_reported(self) -> None:
        self.begun = None
        self._feed(ev.NextAttemptRecorded())

    @precondition(lambda self: self.driver and self.begun is None and self.machine.phase is RequestPhase.OPEN)
    @rule()
    def driver_is_replaced(self) -> None:
        """As it usually goes when a driver is lost."""
        self.driver_is_lost()
        self.attempt_begins()
        if self.begun is False:
            self.attempt_is_written()
            self.attempt_is_reported()

    @precondition(lambda self: self.driver and self.begun is None and self.machine.current is not None)
    @rule(phase=st.sampled_from([ProcedurePhase.COPYING, *FINAL]))
    def driver_reports(self, phase: ProcedurePhase) -> None:
        current = self.machine.current
        assert current is not None
        known = self.reported
        if known is None or known.trigger_id != current.trigger_id or not known.phase.is_final:
            known = ProcedureProgress(trigger_id=current.trigger_id, phase=phase, procedure=current.procedure)
        self.reported = known
        self._feed(ev.Reported(self.attempt, known))

    @precondition(lambda self: self.driver and self.begun is None and self.machine.current is None)
    @rule()
    def driver_repeats_its_report(self) -> None:
        if self.reported is not None:
            self._feed(ev.Reported(self.attempt, self.reported))

    @rule(earlier=st.booleans())
    def deadline_passes(self, earlier: bool) -> None:
        """That of an ``earlier`` request may arrive once there is another one."""
        before, current = self.write, self.machine.current
        of_current = current is not None and not earlier
        trigger_id = current.trigger_id if current is not None and not earlier else "f" * 32
        self._feed(ev.DeadlinePassed(trigger_id, "" if self.driver else "a place"))
        if self.write is not before:
            assert of_current, "a request has its time"
            assert not self.driver, "a driver enforces the deadline itself"

    # --- the end ------------------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.store.job_ended)
    @rule(really=RARELY)
    def job_ends(self, really: bool) -> None:
        if really:
            self.store.job_ended = True
            self._feed(ev.JobEnded("FINISHED"))

    @precondition(lambda self: not self.store.job_ended)
    @rule(really=RARELY)
    def leader_dies(self, really: bool) -> None:
        if not really:
            return
        store = self.store
        self.machine, self.write, self.asking = RequestMachine(JOB), None, {}
        self.begun = None
        stopped = None if store.stopped is None else ev.Ended(trigger_id=store.stopped.trigger_id, request=None)
        self._feed(ev.TakenOver(store.request, stopped))

    @precondition(lambda self: isinstance(self.write, ev.WriteEnd) and not self.store.job_ended)
    @rule(really=RARELY)
    def store_is_put_back(self, really: bool) -> None:
        """As it was before the request whose end is being written."""
        request = self.store.request
        if really and request is not None:
            self.store.request = None
            self.accepted.discard(request.trigger_id)
            self.leader_dies(True)

    # --- what always holds --------------------------------------------------------------------------------------------

    @invariant()
    def holds(self) -> None:
        machine, store = self.machine, self.store
        machine.check_invariants()
        assert machine.current is None or machine.current.trigger_id in store.ever, "a driver gets what is durable"
        assert machine.recorded_for(None) in {"", *store.ends, *self.crossed}, (
            "an end is durable before a driver hears of it"
        )
        told = self.reported
        if told is not None and told.phase is ProcedurePhase.COMPLETED and told.procedure in STOPS:
            over = store.stopped is not None or store.job_ended
            assert over or machine.recorded_for(told) != told.trigger_id, "a script goes on once its stop is durable"
        if store.job_ended or self.write is not None or self.begun:
            return
        if not {each.trigger_id for each in (machine.current, store.request) if each} & self.crossed:
            assert machine.current == store.request, "what the store has is carried out"
        assert (machine.stopped is None) == (store.stopped is None)
        open_ones = self.accepted - store.ends
        assert open_ones <= {store.request.trigger_id if store.request is not None else ""}, "nothing is lost"
        assert not self.asking, "every caller is answered"

    def teardown(self) -> None:
        if self.write is not None:
            self.write_reports()
        if self.begun:
            self.attempt_is_reported()
        self.holds()


SETTINGS = settings(max_examples=examples(75), stateful_step_count=40, deadline=None, report_multiple_bugs=False)
TestRequestLife = RequestLife.TestCase
TestRequestLife.settings = SETTINGS
TestRequestLife.pytestmark = [pytest.mark.req(req) for req in ("END-4", "END-5", "END-6")]  # type: ignore[attr-defined]


# --- bugs that the property catches -----------------------------------------------------------------------------------

Original = Callable[..., Any]


def gives_way_while_its_end_is_written(_: Original) -> Original:
    def gives_way(self: RequestMachine, newest: ProcedureRequest, event: ev.RequestMade) -> bool:
        written = self.phase in (RequestPhase.OPEN, RequestPhase.RECORDING_END)
        return written and newest.procedure is Procedure.MOVE and not event.has_driver

    return gives_way


def everything_gives_way(_: Original) -> Original:
    return lambda *_: True


def acknowledged_at_once(original: Original) -> Original:
    def ask(self: RequestMachine, event: ev.RequestMade, now_ms: int) -> list[ev.Effect]:
        effects: list[ev.Effect] = original(self, event, now_ms)
        if self._callers:
            self._callers = ()
            effects.append(ev.Accept((event.caller,)))
        return effects

    return ask


def acknowledged_although_refused(original: Original) -> Original:
    def not_written(self: RequestMachine, event: ev.RequestNotWritten, now_ms: int) -> list[ev.Effect]:
        effects: list[ev.Effect] = original(self, event, now_ms)
        return [ev.Accept(each.callers) if isinstance(each, ev.Refuse) else each for each in effects]

    return not_written


def told_before_it_is_durable(original: Original) -> Original:
    def begin_end(self: RequestMachine, current: ProcedureRequest, *more: Any) -> list[ev.Effect]:
        self.recorded = current.trigger_id
        effects: list[ev.Effect] = original(self, current, *more)
        return effects

    return begin_end


def taken_for_written(_: Original) -> Original:
    return lambda self, event, now_ms: self._end_written(ev.EndWritten(), now_ms)


def nothing(_: Original) -> Original:
    return lambda *_: []


def without_a_look_at_the_driver(original: Original) -> Original:
    def looked(self: RequestMachine, event: ev.DeadlinePassed, now_ms: int) -> list[ev.Effect]:
        passed = ev.DeadlinePassed(event.trigger_id, event.waits_for or "nothing")
        effects: list[ev.Effect] = original(self, passed, now_ms)
        return effects

    return looked


def runs_on_after_a_stop(original: Original) -> Original:
    def end_written(self: RequestMachine, event: ev.EndWritten, now_ms: int) -> list[ev.Effect]:
        effects: list[ev.Effect] = original(self, event, now_ms)
        if self.phase is RequestPhase.STOPPED:
            self.phase, self.stopped = RequestPhase.IDLE, None
        return effects

    return end_written


def takes_every_end_for_durable(original: Original) -> Original:
    def recorded_for(self: RequestMachine, told: ProcedureProgress | None) -> str:
        durable: str = original(self, told)
        return told.trigger_id if told is not None and told.phase.is_final and self.current is None else durable

    return recorded_for


PLANTS: dict[str, tuple[str, Callable[[Original], Original]]] = {
    "a move gives way while its end is written": ("_gives_way", gives_way_while_its_end_is_written),
    "every request gives way": ("_gives_way", everything_gives_way),
    "a request is acknowledged at once": ("_ask", acknowledged_at_once),
    "a request that was refused is acknowledged": ("_request_not_written", acknowledged_although_refused),
    "a driver is told of an end that is not durable": ("_begin_end", told_before_it_is_durable),
    "an end that was not written is taken for written": ("_end_not_written", taken_for_written),
    "a new attempt does not end a move": ("_attempt_recorded", nothing),
    "callers are forgotten": ("_answer", nothing),
    "a deadline is enforced beside the driver": ("_deadline_passed", without_a_look_at_the_driver),
    "a job runs on after a stop": ("_end_written", runs_on_after_a_stop),
    "every reported end counts as durable": ("recorded_for", takes_every_end_for_durable),
}


@pytest.mark.long
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method, replacement = PLANTS[name]
    # The machine's own checks would notice some of these bugs; here the view from outside has to.
    monkeypatch.setattr(RequestMachine, "check_invariants", lambda _: None)
    monkeypatch.setattr(RequestMachine, method, replacement(getattr(RequestMachine, method)))
    # The search ends at the first failure; the rarest of these bugs takes 200 tries on average.
    tried = settings(SETTINGS, max_examples=5000, database=None, derandomize=True, phases=[Phase.generate])
    with pytest.raises((AssertionError, KeyError, IllegalTransition)) as caught:
        run_state_machine_as_test(RequestLife, settings=tried)
    print(f"{name}: {caught.value}")


# --- the table --------------------------------------------------------------------------------------------------------


def test_every_phase_can_be_left_or_is_the_end() -> None:
    for phase, row in TRANSITIONS.items():
        leads_on = {target for targets in row.values() for target in targets} - {phase}
        assert leads_on or phase is RequestPhase.ENDED


def test_an_impossible_event_names_state_event_and_history() -> None:
    machine = RequestMachine(JOB)
    machine.handle(ev.RequestMade(REQUESTS[0]), 1)
    with pytest.raises(IllegalTransition) as error:
        machine.handle(ev.EndWritten(), 2)
    assert "EndWritten is illegal in state RECORDING_REQUEST" in str(error.value)
    assert error.value.history == ("RequestMade: IDLE → RECORDING_REQUEST",)
