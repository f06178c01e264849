"""What the JobManager concludes about one driver, case by case."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from emberkeep.base.ids import InstanceId, TaskManagerId
from emberkeep.jobs.driver import Driver, DriverEnd, JobMasterContact, StartState
from emberkeep.jobs.events import DriverPlace
from tests.property.job_world import POLICY


def place(task_manager: str = "tm-1", instance: str = "1", node: str = "node-1") -> DriverPlace:
    return DriverPlace(TaskManagerId(task_manager), InstanceId(f"{task_manager}/{instance}"), "host:1", node)


def driver(**changes: Any) -> Driver:
    return dataclasses.replace(Driver(attempt=1, since=10.0, heard_at=10.0, place=place()), **changes)


@pytest.mark.parametrize(
    ("known", "listed_at", "pid", "is_twin"),
    [
        (driver(start=StartState.LISTED, pid=7), place("tm-2", node="node-2"), 8, True),
        (driver(start=StartState.LISTED, pid=7), place("tm-2", node="node-2"), 7, True),
        (driver(start=StartState.LISTED, pid=7), place("tm-2"), 8, True),
        (
            driver(start=StartState.LISTED, pid=7),
            place("tm-2"),
            7,
            False,
        ),  # one process, which two task managers of a node list
        (driver(start=StartState.LISTED, pid=7), place(instance="2"), 8, False),
        (driver(pid=7), place("tm-2", node="node-2"), 8, False),  # nobody has listed it before
        (driver(start=StartState.LISTED, pid=7, place=None), place("tm-2", node="node-2"), 8, False),
    ],
)
def test_which_process_is_a_second_driver(known: Driver, listed_at: DriverPlace, pid: int, is_twin: bool) -> None:
    assert known.is_twin_of(listed_at, pid) is is_twin


HOME = place().home


@pytest.mark.parametrize(
    ("known", "reports", "continues", "is_missing"),
    [
        (driver(place=None, home=HOME), place(), False, True),
        (driver(place=None, home=HOME), place(instance="2"), True, True),
        (driver(place=None, home=HOME), place(instance="2"), False, False),
        (driver(place=None, home=HOME), place(node="node-2"), True, False),
        (driver(place=None, home=HOME), place("tm-2"), True, False),
        (driver(place=None), place(), True, False),
        (driver(place=None, home=HOME, contact=JobMasterContact.HEARD), place(), True, False),
        (driver(place=None, home=HOME, contact=JobMasterContact.REGISTERED), place(), True, False),
        (driver(home=HOME), place(), True, False),  # a task manager has listed it since
        (driver(ordered=True), place(instance="2"), False, True),
        (driver(ordered=True), place(), True, False),
        (driver(ordered=True), place("tm-2", "2"), True, False),
        (driver(ordered=True, contact=JobMasterContact.REGISTERED), place(instance="2"), True, False),
    ],
)
def test_which_report_proves_that_a_driver_is_gone(
    known: Driver, reports: DriverPlace, continues: bool, is_missing: bool
) -> None:
    assert known.is_missing_at(reports, continues=continues) is is_missing


STOPPING = driver(ordered=True, stop_at=40.0)


@pytest.mark.parametrize(
    ("known", "at", "was_never_there"),
    [
        (STOPPING, place(), True),
        (STOPPING, place(instance="2"), False),
        (STOPPING, place("tm-2"), False),
        (dataclasses.replace(STOPPING, start=StartState.ACCEPTED), place(), True),
        (dataclasses.replace(STOPPING, start=StartState.LISTED), place(), False),
        (dataclasses.replace(STOPPING, contact=JobMasterContact.HEARD), place(), False),
        (dataclasses.replace(STOPPING, contact=JobMasterContact.REGISTERED), place(), False),
        (dataclasses.replace(STOPPING, ordered=False), place(), False),  # an earlier leader ordered its start
        (dataclasses.replace(STOPPING, place=None), place(), False),
        (driver(ordered=True), place(), False),  # nobody has ordered its end
    ],
)
def test_which_refusal_proves_that_a_driver_was_never_started(
    known: Driver, at: DriverPlace, was_never_there: bool
) -> None:
    assert known.was_never_at(at.instance) is was_never_there


LEASE = POLICY.lease


@pytest.mark.parametrize(
    ("known", "hears_since", "gone_at"),
    [
        (driver(lost_at=20.0), None, None),
        (driver(), 0.0, None),
        (driver(lost_at=20.0), 0.0, 20.0 + LEASE),
        (driver(lost_at=20.0, heard_at=25.0), 0.0, 25.0 + LEASE),
        (driver(lost_at=20.0, contact=JobMasterContact.REGISTERED), 0.0, 10.0 + LEASE),
        (driver(lost_at=20.0, contact=JobMasterContact.REGISTERED), 30.0, 30.0 + LEASE),
        (driver(place=None), 0.0, 10.0 + LEASE),
        (driver(stop_at=40.0), 0.0, 40.0 + LEASE),
        (driver(stop_at=40.0, heard_at=45.0), 0.0, 45.0 + LEASE),
        (driver(stop_at=40.0), 50.0, 50.0 + LEASE),
        (driver(stop_at=40.0, start=StartState.LISTED), 0.0, None),
    ],
)
def test_when_a_driver_without_contact_counts_as_gone(
    known: Driver, hears_since: float | None, gone_at: float | None
) -> None:
    assert known.gone_at(POLICY, hears_since) == gone_at


@pytest.mark.parametrize(
    ("known", "hears_since", "silent_at"),
    [
        (driver(), 0.0, 10.0 + POLICY.start_timeout),
        (driver(), 30.0, 30.0 + POLICY.start_timeout),
        (driver(contact=JobMasterContact.REGISTERED, heard_at=20.0), 0.0, 20.0 + POLICY.heartbeat_timeout),
        (driver(contact=JobMasterContact.REGISTERED, heard_at=20.0), 30.0, 30.0 + POLICY.heartbeat_timeout),
        (driver(contact=JobMasterContact.REGISTERED), None, None),
        (driver(contact=JobMasterContact.REGISTERED, lost_at=20.0), 0.0, None),
        (driver(contact=JobMasterContact.REGISTERED, stop_at=20.0), 0.0, None),
    ],
)
def test_when_a_driver_that_can_be_ended_counts_as_silent(
    known: Driver, hears_since: float | None, silent_at: float | None
) -> None:
    assert known.silent_at(POLICY, hears_since) == silent_at


@pytest.mark.parametrize(
    ("known", "due_at"),
    [
        (driver(order_again_at=15.0), 15.0),
        (driver(order_again_at=15.0, start=StartState.ACCEPTED), None),
        (driver(order_again_at=15.0, contact=JobMasterContact.REGISTERED), None),
        (driver(order_again_at=15.0, start=StartState.ACCEPTED, stop_at=12.0), 15.0),
        (driver(order_again_at=15.0, end=DriverEnd.GONE), None),
        (driver(order_again_at=15.0, lost_at=11.0), None),
        (driver(order_again_at=15.0, place=None), None),
    ],
)
def test_when_an_order_is_repeated(known: Driver, due_at: float | None) -> None:
    assert known.order_due_at() == due_at


def test_a_task_manager_that_lists_it_knows_its_process() -> None:
    found = driver(place=None, pid=7, lost_at=12.0)
    found.seen_at(place("tm-2"), 0)
    assert (found.place, found.pid, found.start, found.lost_at) == (place("tm-2"), 7, StartState.LISTED, None)


@pytest.mark.parametrize(("instance", "lost_at"), [("tm-1/1", 30.0), ("tm-1/2", None)])
def test_a_task_manager_that_is_lost_lists_it_no_more(instance: str, lost_at: float | None) -> None:
    found = driver(start=StartState.LISTED)
    found.task_manager_lost(InstanceId(instance), 30.0)
    found.task_manager_lost(InstanceId(instance), 40.0)
    assert (found.lost_at, found.start is StartState.LISTED, found.reachable) == (
        lost_at,
        lost_at is None,
        lost_at is None,
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (StartState.ORDERED, StartState.ACCEPTED),
        (StartState.ACCEPTED, StartState.ACCEPTED),
        (StartState.LISTED, StartState.LISTED),
    ],
)
def test_an_accepted_order_is_no_step_back(before: StartState, after: StartState) -> None:
    found = driver(start=before)
    found.start_accepted()
    assert found.start is after


def test_a_task_manager_that_is_lost_before_it_accepted_has_accepted_nothing() -> None:
    found = driver()
    found.task_manager_lost(place().instance, 30.0)
    assert found.start is StartState.ORDERED
