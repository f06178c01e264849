"""Which drivers must leave their places, and how: a table of cases, what must never happen, and that this test notices
it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from emberkeep.base.ids import InstanceId, JobId, TaskManagerId
from emberkeep.blocklist.model import BlockAction, BlockedNode, EvacuatedDrivers
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.jobs import driver_move
from emberkeep.jobs.driver_move import (
    AskToMove,
    DriverFacts,
    Effect,
    LostOnTheWay,
    MoveMachine,
    NoteStateLost,
    PlacesToLeave,
    RestartElsewhere,
    Reviewed,
)
from emberkeep.jobs.model import AttemptOutcome, DriverHome, FailureKind
from emberkeep.lifecycle.model import Procedure, ProcedurePhase, ProcedureProgress, ProcedureRequest
from tests.campaign import examples

JOB = JobId("a" * 32)
HERE = TaskManagerId("tm-1")
HOME = DriverHome(task_manager=HERE, node_id="node-1", instance=InstanceId("tm-1/1"))
PATIENCE, ASK_AGAIN = 100.0, 10.0  # seconds
KILLED = AttemptOutcome(exit_code=137, kind=FailureKind.LOST, message="killed by SIGKILL")
BUG = AttemptOutcome(exit_code=1, kind=FailureKind.SCRIPT, message="ValueError")


def places(evacuated: EvacuatedDrivers | None = None, *, draining: bool = False, room: bool = True) -> PlacesToLeave:
    """Places to leave, as they concern HOME. ``room``: the driver fits elsewhere."""
    entries = []
    if evacuated is not None:
        action = BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS
        entries = [BlockedNode(id="node-1", action=action, start_ms=0, causes=("power",), drivers=evacuated)]
    return PlacesToLeave(
        BlockedPlaces(entries),
        frozenset({HERE}) if draining else frozenset(),
        frozenset({JOB}) if draining and room else frozenset(),
    )


def driver(**changes: Any) -> DriverFacts:
    facts = DriverFacts(job_id=JOB, attempt=1, home=HOME, runs=True, has_query=True, functions=("alerts.Alerts",))
    return msgspec.structs.replace(facts, **changes)


def asked(procedure: Procedure, number: int = 1) -> ProcedureRequest:
    return ProcedureRequest(trigger_id=f"{number:032x}", procedure=procedure)


WAIT, RESTART = EvacuatedDrivers.WAIT, EvacuatedDrivers.RESTART
NOTHING: list[type] = []
CASES: list[tuple[str, dict[str, Any], PlacesToLeave, list[type]]] = [
    ("nothing to leave", {}, places(), NOTHING),
    ("an evacuated node", {}, places(WAIT), [AskToMove]),
    ("an evacuated node where drivers are restarted", {}, places(RESTART), [AskToMove]),
    ("a draining task manager", {}, places(draining=True), [AskToMove]),
    ("a draining task manager, no room elsewhere", {}, places(draining=True, room=False), NOTHING),
    ("no stream, and drivers wait", {"has_query": False}, places(WAIT), NOTHING),
    ("no stream, and drivers are restarted", {"has_query": False}, places(RESTART), [RestartElsewhere]),
    ("no stream, and its task manager drains", {"has_query": False}, places(draining=True), NOTHING),
    ("the script does not run", {"runs": False}, places(RESTART), NOTHING),
    ("no driver", {"home": None}, places(RESTART), NOTHING),
    ("it is being suspended", {"request": asked(Procedure.SUSPEND)}, places(RESTART), NOTHING),
    ("it is being drained", {"request": asked(Procedure.DRAIN)}, places(RESTART), NOTHING),
    ("a savepoint is being made", {"request": asked(Procedure.SAVEPOINT)}, places(RESTART), NOTHING),
    ("it is moving", {"request": asked(Procedure.MOVE)}, places(RESTART), NOTHING),
]


@pytest.mark.req("BLK-18")
@pytest.mark.parametrize(("facts", "leave", "effects"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_the_first_review_decides(facts: dict[str, Any], leave: PlacesToLeave, effects: list[type]) -> None:
    decided = MoveMachine(PATIENCE).handle(Reviewed(driver(**facts), leave), 0.0)
    assert [type(effect) for effect in decided] == effects


@pytest.mark.parametrize(
    ("facts", "leave", "outcome", "moved"),
    [
        ({}, places(WAIT), KILLED, True),
        ({}, places(WAIT), BUG, False),
        ({}, places(), KILLED, False),
        ({"has_query": False}, places(WAIT), KILLED, False),
        ({"has_query": False}, places(RESTART), KILLED, True),
        ({"has_query": False, "request": asked(Procedure.SUSPEND)}, places(WAIT), KILLED, True),
        ({"has_query": False}, places(draining=True, room=False), KILLED, True),
        ({"home": None}, places(RESTART), KILLED, False),
    ],
)
def test_a_driver_that_is_lost_where_it_must_leave_has_moved(
    facts: dict[str, Any], leave: PlacesToLeave, outcome: AttemptOutcome, moved: bool
) -> None:
    judged = MoveMachine(PATIENCE).outcome(driver(**facts), leave, outcome)
    assert (judged.kind is FailureKind.MOVED) == moved


def test_a_driver_that_may_stay_for_a_moment_is_not_asked_more_often() -> None:
    machine, drained = MoveMachine(PATIENCE), places(draining=True)
    asked_at = []
    for second in range(30):
        for leave in (drained, places(draining=True, room=False)):
            if machine.handle(Reviewed(driver(), leave), float(second)):
                asked_at.append(second)
    assert asked_at == [0, 10, 20]


class DriverLife(RuleBasedStateMachine):
    """Nodes are evacuated and repaired, task managers drain, people ask for savepoints and stops, drivers are lost."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = MoveMachine(PATIENCE)
        self.driver = driver()
        self.places = places()
        self.now = 0.0
        self.numbers = itertools.count(1)
        self.asked_at: float | None = None  # when this attempt's driver was last asked
        self.pressed_at: float | None = None  # since when its time has been running
        self.noted: set[int] = set()

    # --- the world ----------------------------------------------------------------------------------------------------

    @rule(
        evacuated=st.sampled_from([None, *EvacuatedDrivers, *EvacuatedDrivers]),
        draining=st.booleans(),
        room=st.booleans(),
    )
    def places_change(self, evacuated: EvacuatedDrivers | None, draining: bool, room: bool) -> None:
        self.places = places(evacuated, draining=draining, room=room)
        self.review()

    @rule(procedure=st.sampled_from([None, *Procedure]))
    def request_changes(self, procedure: Procedure | None) -> None:
        request = None if procedure is None else asked(procedure, next(self.numbers))
        self.driver = msgspec.structs.replace(self.driver, request=request, progress=None)
        self.review()

    @precondition(lambda self: self.driver.request is not None)
    @rule()
    def request_fails(self) -> None:
        request = self.driver.request
        assert request is not None
        told = ProcedureProgress(trigger_id=request.trigger_id, phase=ProcedurePhase.FAILED, failure="no space left")
        self.driver = msgspec.structs.replace(self.driver, progress=told)
        self.review()
        self.driver = msgspec.structs.replace(self.driver, request=None)
        self.review()

    @rule(has_query=st.booleans(), functions=st.sampled_from([(), ("alerts.Alerts",)]))
    def driver_changes(self, has_query: bool, functions: tuple[str, ...]) -> None:
        self.driver = msgspec.structs.replace(self.driver, has_query=has_query, functions=functions)
        self.review()

    @rule(seconds=st.sampled_from([1.0, 5.0, ASK_AGAIN, 40.0, PATIENCE]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.review()

    @rule()
    def driver_is_lost(self) -> None:
        before = self.machine.leaving(self.driver.attempt)
        judged = self.machine.outcome(self.driver, self.places, KILLED)
        assert self.machine.outcome(self.driver, self.places, KILLED) == judged
        assert self.machine.leaving(self.driver.attempt) == before, "a question changes nothing"
        if judged.kind is FailureKind.MOVED:
            assert self._must_leave(also_without_room=True), "only a driver that had to leave has moved"
            for _ in ("its JobMaster", "its task manager"):  # both may report the end
                self._check_notes(self.machine.handle(LostOnTheWay(self.driver), self.now))
        self.next_attempt()

    def next_attempt(self) -> None:
        self.driver = driver(attempt=self.driver.attempt + 1)
        self.asked_at = self.pressed_at = None

    # --- what must hold -----------------------------------------------------------------------------------------------

    def _must_leave(self, *, also_without_room: bool = False) -> bool:
        evacuated = self.places.is_evacuated(HOME)
        return evacuated or (HERE in self.places.draining and (also_without_room or bool(self.places.movable)))

    def review(self) -> None:
        self._note_pressure()
        self._check(self.machine.handle(Reviewed(self.driver, self.places), self.now))

    def _note_pressure(self) -> None:
        """Note since when the driver's time has been running; see MoveMachine."""
        known = self.driver
        if known.is_asked_for(Procedure.SUSPEND, Procedure.DRAIN) and self._must_leave():
            return
        streams = known.has_query or known.is_asked_for(Procedure.MOVE) or self.pressed_at is not None
        if not self._must_leave() or not streams:
            self.pressed_at = None
        elif self.pressed_at is None or self._is_patient():
            self.pressed_at = self.now

    def _is_patient(self) -> bool:
        return not self.places.is_evacuated(HOME) or self.driver.is_asked_for(Procedure.SAVEPOINT)

    def _check(self, effects: list[Effect]) -> None:
        restarted = [effect for effect in effects if isinstance(effect, RestartElsewhere)]
        self._check_notes([effect for effect in effects if isinstance(effect, NoteStateLost)])
        late = self.pressed_at is not None and self.now - self.pressed_at >= PATIENCE
        stopping = self.driver.is_asked_for(Procedure.SUSPEND, Procedure.DRAIN)
        for effect in effects:
            if isinstance(effect, AskToMove):
                assert self._must_leave(), "only a driver that must leave is asked"
                assert self.driver.request is None, "one request at a time"
                assert self.asked_at is None or self.now - self.asked_at >= ASK_AGAIN, "it is not asked all the time"
                self.asked_at = self.now
        if restarted:
            assert restarted == [RestartElsewhere(self.driver.attempt)]
            assert self.places.is_evacuated(HOME), "no driver is restarted because its task manager drains"
            assert not stopping, "a stop is not disturbed"
            assert late or self.places.restarts_drivers(HOME), "a driver that may stay is not restarted"
            assert late or self.pressed_at is None, "a streaming driver has its whole time"
            self.next_attempt()
        elif late and not stopping:
            raise AssertionError("a driver that cannot move is restarted in the end")

    def _check_notes(self, effects: list[Any]) -> None:
        for effect in effects:
            assert isinstance(effect, NoteStateLost)
            assert effect.attempt == self.driver.attempt
            assert self.driver.functions, "there is state to lose"
            assert effect.attempt not in self.noted, "a loss is noted once"
            self.noted.add(effect.attempt)


SETTINGS = settings(max_examples=examples(50), stateful_step_count=40, deadline=None, report_multiple_bugs=False)
TestDriverLife = DriverLife.TestCase
TestDriverLife.settings = SETTINGS
TestDriverLife.pytestmark = [pytest.mark.req(req) for req in ("BLK-18", "SAFE-19")]  # type: ignore[attr-defined]


# --- bugs that the property catches -----------------------------------------------------------------------------------

Original = Callable[..., Any]


def impatient(original: Original) -> Original:
    def press(self: MoveMachine, known: DriverFacts, now: float, *, patiently: bool) -> list[Effect]:
        effects: list[Effect] = original(self, known, now, patiently=False)
        return effects

    return press


def patient_for_ever(original: Original) -> Original:
    def press(self: MoveMachine, known: DriverFacts, now: float, *, patiently: bool) -> list[Effect]:
        effects: list[Effect] = original(self, known, now, patiently=True)
        return effects

    return press


def noted_each_time(original: Original) -> Original:
    def note(self: MoveMachine, known: DriverFacts) -> list[Effect]:
        self._noted = 0
        effects: list[Effect] = original(self, known)
        return effects

    return note


def asks_whatever_runs(original: Original) -> Original:
    def press(self: MoveMachine, known: DriverFacts, now: float, *, patiently: bool) -> list[Effect]:
        free = msgspec.structs.replace(known, request=None)
        effects: list[Effect] = original(self, free, now, patiently=patiently)
        return effects

    return press


def disturbs_a_stop(original: Original) -> Original:
    def review(self: MoveMachine, known: DriverFacts, leave: PlacesToLeave, now: float) -> list[Effect]:
        stopping = known.is_asked_for(Procedure.SUSPEND, Procedure.DRAIN)
        other = msgspec.structs.replace(known, request=asked(Procedure.MOVE)) if stopping else known
        effects: list[Effect] = original(self, other, leave, now)
        return effects

    return review


def asks_that_change(original: Original) -> Original:
    def outcome(self: MoveMachine, *facts: Any) -> AttemptOutcome:
        self._leaving = None
        judged: AttemptOutcome = original(self, *facts)
        return judged

    return outcome


PLANTS: dict[str, tuple[str, Callable[[Original], Original]]] = {
    "a savepoint and a drain of a task manager cost patience": ("_press", impatient),
    "a driver that cannot move is never restarted": ("_press", patient_for_ever),
    "a driver is asked to move whatever it does": ("_press", asks_whatever_runs),
    "a stop is disturbed": ("_review", disturbs_a_stop),
    "lost state is noted again and again": ("_note_state_lost", noted_each_time),
    "a question about the outcome changes the move": ("outcome", asks_that_change),
}


# The search ends at the first failure.
TRIED = settings(SETTINGS, max_examples=5000, database=None, derandomize=True, phases=[Phase.generate])


@pytest.mark.long
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method, replacement = PLANTS[name]
    monkeypatch.setattr(MoveMachine, method, replacement(getattr(MoveMachine, method)))
    with pytest.raises(AssertionError) as caught:
        run_state_machine_as_test(DriverLife, settings=TRIED)
    print(f"{name}: {caught.value}")


def test_a_driver_that_is_asked_all_the_time_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_move, "ASK_AGAIN", 0.0)
    with pytest.raises(AssertionError, match="all the time"):
        run_state_machine_as_test(DriverLife, settings=TRIED)
