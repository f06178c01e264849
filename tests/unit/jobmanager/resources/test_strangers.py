"""How a JobManager answers processes that follow another job store, or a later leader of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import JobId
from emberkeep.jobmanager.resources.strangers import Strangers
from emberkeep.jobs.model import AttemptOutcome
from emberkeep.protocol.messages.job_masters import JobMasterHeartbeat, JobMasterReply, ReportOutcome
from emberkeep.protocol.messages.root import Ack, Message
from emberkeep.protocol.messages.task_manager_reports import TaskManagerReport
from emberkeep.protocol.messages.task_managers import (
    RegisterTaskManager,
    TaskManagerHeartbeat,
    TaskManagerHeartbeatReply,
    TaskManagerRegistered,
)
from tests.unit.jobmanager.fakes import status
from tests.unit.slots.test_slot_manager import info

pytestmark = pytest.mark.req("SAFE-6")

OWN, OTHER, EPOCH = "own-store", "other-store", 5
TASK_MANAGER = info("tm-1")
REPORT = TaskManagerReport(sequence=1, allocations=(), drivers=())


def registration(lineage: str, known_epoch: int = 1, name: str = "tm-1") -> Message:
    return RegisterTaskManager(info=info(name), report=REPORT, lineage=lineage, known_epoch=known_epoch)


def heartbeat(lineage: str, known_epoch: int = 1) -> Message:
    return TaskManagerHeartbeat(
        id=TASK_MANAGER.id, instance=TASK_MANAGER.instance, report=REPORT, lineage=lineage, known_epoch=known_epoch
    )


def driver(lineage: str, known_epoch: int = 1) -> Message:
    return JobMasterHeartbeat(
        job_id=JobId("1" * 32), attempt=1, status=status(), lineage=lineage, known_epoch=known_epoch
    )


def outcome(lineage: str, known_epoch: int = 1) -> Message:
    return ReportOutcome(
        job_id=JobId("1" * 32),
        attempt=1,
        outcome=AttemptOutcome(exit_code=0),
        lineage=lineage,
        known_epoch=known_epoch,
    )


Speaks = Callable[..., Message]


@pytest.fixture
def strangers() -> Strangers:
    return Strangers()


def named(strangers: Strangers) -> list[tuple[str, str]]:
    return [(stranger.id, stranger.lineage) for stranger in strangers.named()]


@pytest.mark.parametrize("speaks", [registration, heartbeat, driver, outcome])
@pytest.mark.parametrize(("lineage", "known_epoch"), [(OWN, EPOCH), (OWN, 1), ("", 0), ("", EPOCH + 1)])
def test_a_follower_of_this_job_store_or_of_any_gets_no_special_answer(
    strangers: Strangers, speaks: Speaks, lineage: str, known_epoch: int
) -> None:
    assert strangers.answer(speaks(lineage, known_epoch), OWN, EPOCH) is None
    assert strangers.named() == ()


def test_a_message_that_names_no_job_store_gets_no_special_answer(strangers: Strangers) -> None:
    assert strangers.answer(Ack(), OWN, EPOCH) is None


@pytest.mark.parametrize("speaks", [registration, driver, outcome])
def test_a_follower_of_another_job_store_must_try_again(strangers: Strangers, speaks: Speaks) -> None:
    with pytest.raises(RetryLater, match="works for another job store"):
        strangers.answer(speaks(OTHER, EPOCH + 1), OWN, EPOCH)
    assert named(strangers) == ([("tm-1", OTHER)] if speaks is registration else [])


def test_a_task_manager_of_another_job_store_is_listed_until_it_follows_this_one(strangers: Strangers) -> None:
    answer = strangers.answer(heartbeat(OTHER), OWN, EPOCH)
    assert answer == TaskManagerHeartbeatReply(epoch=EPOCH, known=False, lineage=OWN), "so it registers"
    for speaks in (registration, heartbeat):
        with pytest.raises(RetryLater):
            strangers.answer(speaks(OTHER), OWN, EPOCH)
    with pytest.raises(RetryLater):
        strangers.answer(registration(OTHER, name="tm-0"), OWN, EPOCH)
    assert named(strangers) == [("tm-0", OTHER), ("tm-1", OTHER)]
    assert strangers.answer(driver(OWN), OWN, EPOCH) is None
    assert strangers.answer(heartbeat(OWN), OWN, EPOCH) is None
    assert named(strangers) == [("tm-0", OTHER)]


def test_processes_that_know_a_later_leader_continue_and_are_not_managed(strangers: Strangers) -> None:
    later = EPOCH + 1
    assert strangers.answer(heartbeat(OWN, later), OWN, EPOCH) == TaskManagerHeartbeatReply(
        epoch=EPOCH, known=False, lineage=OWN
    )
    assert strangers.answer(driver(OWN, later), OWN, EPOCH) == JobMasterReply(
        epoch=EPOCH, known=False, heartbeat_interval=0.0, lineage=OWN
    )
    assert named(strangers) == []
    assert strangers.answer(registration(OWN, later), OWN, EPOCH) == TaskManagerRegistered(
        epoch=EPOCH, heartbeat_interval=0.0, lineage=OWN
    )
    assert named(strangers) == [("tm-1", f"{OWN}, epoch {later} (the JobManager: {EPOCH})")]
    with pytest.raises(RetryLater, match="put back from an older copy"):
        strangers.answer(outcome(OWN, later), OWN, EPOCH)


def test_people_are_warned_once_of_a_job_store_that_was_put_back_and_once_of_each_stranger(
    strangers: Strangers,
) -> None:
    def warnings(*messages: Any) -> list[str]:
        with capture_logs() as said:
            for message in messages:
                strangers.answer(message, OWN, EPOCH)
        return [line["event"] for line in said]

    older = "what runs continues, but this JobManager does not manage it"
    work = "the work of this task manager continues, and this JobManager does not use it"
    assert warnings(heartbeat(OWN, 6), registration(OWN, 6), registration(OWN, 7), driver(OWN, 6)) == [older, work]
