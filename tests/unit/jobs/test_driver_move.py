"""A streaming driver that must leave: when it is asked, when it is restarted, and what is noted about its state."""

from __future__ import annotations

from typing import Any

import msgspec

from emberkeep.base.ids import InstanceId, JobId, TaskManagerId
from emberkeep.blocklist.model import BlockAction, BlockedNode
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.jobs.driver_move import (
    ASK_AGAIN,
    AskToMove,
    DriverFacts,
    LostOnTheWay,
    MoveMachine,
    NoteStateLost,
    PlacesToLeave,
    RestartElsewhere,
    Reviewed,
)
from emberkeep.jobs.model import DriverHome

PATIENCE = 100.0
HERE = TaskManagerId("tm-1")
DRIVER = DriverFacts(
    job_id=JobId("a" * 32),
    attempt=1,
    home=DriverHome(task_manager=HERE, node_id="node-1", instance=InstanceId("tm-1/1")),
    runs=True,
    has_query=True,
)
STATEFUL = msgspec.structs.replace(DRIVER, functions=("alerts.Alerts",))
EVACUATED = PlacesToLeave(
    BlockedPlaces(
        [
            BlockedNode(
                id="node-1", action=BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS, start_ms=0, causes=("power failure",)
            )
        ]
    )
)
ASKED, RESTARTED = [AskToMove()], [RestartElsewhere(1)]


def reviews(driver: DriverFacts, *times: float) -> list[Any]:
    machine = MoveMachine(PATIENCE)
    return [machine.handle(Reviewed(driver, EVACUATED), now) for now in times]


def test_a_driver_is_asked_again_after_a_while_and_restarted_when_its_time_is_over() -> None:
    start = 1000.0
    times = (0.0, ASK_AGAIN - 0.1, ASK_AGAIN, PATIENCE - 0.1, PATIENCE)
    assert reviews(DRIVER, *(start + time for time in times)) == [ASKED, [], ASKED, ASKED, RESTARTED]


def test_the_next_attempt_is_asked_at_once() -> None:
    machine = MoveMachine(PATIENCE)
    for attempt in (1, 2):
        driver = msgspec.structs.replace(DRIVER, attempt=attempt)
        assert machine.handle(Reviewed(driver, EVACUATED), 0.0) == ASKED


def test_a_restart_that_loses_the_state_of_functions_is_noted_once() -> None:
    machine = MoveMachine(PATIENCE)
    machine.handle(Reviewed(STATEFUL, EVACUATED), 0.0)
    note, restart = machine.handle(Reviewed(STATEFUL, EVACUATED), PATIENCE)
    assert isinstance(note, NoteStateLost)
    assert (note.attempt, note.task_manager) == (1, HERE)
    assert note.message.startswith("the driver must leave node node-1 and is restarted without the current state")
    assert "alerts.Alerts" in note.message
    assert restart == RestartElsewhere(1)
    assert machine.handle(LostOnTheWay(STATEFUL), PATIENCE) == []


def test_a_driver_without_state_is_lost_without_a_note() -> None:
    for changes in ({"functions": ()}, {"has_query": False}, {"runs": False}, {"home": None}):
        driver = msgspec.structs.replace(STATEFUL, **changes)
        assert MoveMachine(PATIENCE).handle(LostOnTheWay(driver), 0.0) == [], changes
    (note,) = MoveMachine(PATIENCE).handle(LostOnTheWay(STATEFUL), 0.0)
    assert isinstance(note, NoteStateLost)
