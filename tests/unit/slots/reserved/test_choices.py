"""On which task manager a job's reserved standby is, and that the job's next driver goes there."""

from __future__ import annotations

from typing import Any

import pytest

from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.blocklist.model import BlockAction, BlockedNode
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.slots.ledger import DriverNeed, DriverUse
from emberkeep.slots.model import ResourceProfile, TaskManagerInfo
from emberkeep.slots.reserved.choices import RESERVED_STANDBYS, StandbyView
from tests.unit.slots.test_slot_manager import LOST_AFTER, Rig

NEED = DriverNeed(1408, "3.11")


def memory(memory_mb: int) -> dict[str, Any]:
    return {"total": ResourceProfile(cores=4, memory_mb=memory_mb), "driver_places": 100}


class Cluster(Rig):
    """Task managers that keep standby drivers, each on a node of its own, and streams that want reserved ones."""

    def keeper(self, name: str, **changes: Any) -> TaskManagerInfo:
        registered = self.add(name, **{**memory(8192), **changes})
        self.tell(registered)
        return registered

    def tell(self, registered: TaskManagerInfo, *drivers: JobId, attempt: int = 1, **reserved: str) -> None:
        """Report drivers of jobs, and reserved standbys: why they are not ready, by "job" and the job's number."""
        uses = tuple(DriverUse(job_id, attempt, NEED.memory_mb, True) for job_id in drivers)
        kept = {JobId(f"{int(name.removeprefix('job')):032x}"): why for name, why in reserved.items()}
        self.report(registered, drivers=uses, keeps_standby_drivers=True, reserved_standbys=kept)

    def stream(self, *, on: TaskManagerInfo | None = None) -> JobId:
        """A job whose first attempt runs a streaming query."""
        job_id = self.job()
        self.slots.standbys.want(job_id, NEED)
        if on is not None:
            self.tell(on, job_id)
            self.slots.standbys.streams(job_id, 1, ())
        return job_id

    def home(self, job_id: JobId) -> str | None:
        self.slots.standbys.review()
        self.slots.check_invariants()
        view = self.slots.standbys.view(job_id)
        if view is not None and view.task_manager is not None:
            assert job_id in self.slots.standbys.wanted_at(view.task_manager)
        return None if view is None else view.task_manager

    def lose_driver(self, job_id: JobId) -> None:
        """The first attempt is over, and the second asks for a place."""
        self.slots.jobs.end_attempt(job_id, 1, 0.0)
        self.slots.jobs.request_place(job_id, NEED, 2, 0.0)


@pytest.fixture
def rig() -> Cluster:
    return Cluster()


# --- which task manager -----------------------------------------------------------------------------------------------


def test_it_is_on_another_node_than_the_driver(rig: Cluster) -> None:
    first = rig.keeper("tm-1")
    rig.keeper("tm-2", node_id="tm-1")
    job_id = rig.stream(on=first)
    assert rig.home(job_id) is None
    rig.keeper("tm-3")
    assert rig.home(job_id) == "tm-3"


@pytest.mark.parametrize(
    "changes",
    [{"runtime": None}, memory(1407), {"driver_places": 0}],
    ids=["another Python", "too little memory", "no driver place"],
)
def test_a_task_manager_that_could_not_run_the_driver_keeps_none(rig: Cluster, changes: dict[str, Any]) -> None:
    first = rig.keeper("tm-1")
    if "runtime" in changes:
        changes = {"runtime": type(first.runtime)(python="3.12", spark=first.runtime.spark)}
    rig.keeper("tm-2", **changes)
    job_id = rig.stream(on=first)
    assert rig.home(job_id) is None
    view = rig.slots.standbys.view(job_id)
    assert view == StandbyView(
        None,
        "no open task manager on another node keeps standby drivers and has a driver place and 1408 MiB of memory free",
    )


def test_a_task_manager_without_standby_drivers_keeps_none(rig: Cluster) -> None:
    first = rig.keeper("tm-1")
    rig.add("tm-2")
    assert rig.home(rig.stream(on=first)) is None


def test_a_task_manager_that_keeps_one_is_not_idle(rig: Cluster) -> None:
    def idle() -> set[str]:
        return {each.id for each in rig.slots.supply().standing if each.idle}

    first = rig.keeper("tm-1")
    rig.keeper("tm-2")
    job_id = rig.stream(on=first)
    assert rig.home(job_id) == "tm-2"
    assert idle() == set(), "task managers on demand end when they are idle"
    rig.slots.jobs.remove(job_id)
    rig.tell(first)
    assert idle() == {"tm-1", "tm-2"}


def test_a_job_that_wants_none_has_none(rig: Cluster) -> None:
    first = rig.keeper("tm-1")
    rig.keeper("tm-2")
    job_id = rig.job()
    rig.tell(first, job_id)
    rig.slots.standbys.streams(job_id, 1, ())
    assert rig.home(job_id) is None
    assert rig.slots.standbys.view(job_id) is None


def test_a_job_without_a_streaming_query_has_none_yet(rig: Cluster) -> None:
    first = rig.keeper("tm-1")
    rig.keeper("tm-2")
    job_id = rig.stream()
    rig.tell(first, job_id)
    assert rig.home(job_id) is None
    assert rig.slots.standbys.view(job_id) == StandbyView(None, "the job's current attempt runs no streaming query yet")


def test_local_state_then_few_others_then_room_decide(rig: Cluster) -> None:
    first = rig.keeper("tm-1")
    rig.keeper("tm-2", **memory(9000))
    rig.keeper("tm-3", **memory(10_000))
    one, two, three = rig.stream(), rig.stream(), rig.stream()
    rig.tell(first, one, two, three)
    for job_id in (one, two, three):
        rig.slots.standbys.streams(job_id, 1, ())
    rig.state("tm-2", size=10)
    assert [rig.home(job_id) for job_id in (one, two, three)] == ["tm-2", "tm-3", "tm-3"]


def test_memory_is_promised_once(rig: Cluster) -> None:
    first = rig.keeper("tm-1")
    rig.keeper("tm-2", **memory(2 * NEED.memory_mb))
    jobs = [rig.stream() for _ in range(3)]
    rig.tell(first, *jobs)
    for job_id in jobs:
        rig.slots.standbys.streams(job_id, 1, ())
    assert [rig.home(job_id) for job_id in jobs] == ["tm-2", "tm-2", None]


def test_the_number_on_one_task_manager_is_bounded(rig: Cluster) -> None:
    first = rig.keeper("tm-1", **memory(10**6))
    rig.keeper("tm-2", **memory(10**6))
    jobs = [rig.stream() for _ in range(RESERVED_STANDBYS + 1)]
    rig.tell(first, *jobs)
    for job_id in jobs:
        rig.slots.standbys.streams(job_id, 1, ())
    rig.slots.standbys.review()
    assert rig.slots.standbys.wanted_at(TaskManagerId("tm-2")) == jobs[:-1]


# --- how long ---------------------------------------------------------------------------------------------------------


def test_it_stays_where_it_is_when_a_better_place_comes(rig: Cluster) -> None:
    first = rig.keeper("tm-1")
    rig.keeper("tm-2")
    job_id = rig.stream(on=first)
    assert rig.home(job_id) == "tm-2"
    rig.keeper("tm-3", **memory(100_000))
    rig.state("tm-3", size=10**9)
    assert rig.home(job_id) == "tm-2"


@pytest.mark.parametrize("how", ["blocked", "about to stop", "silent", "without memory", "without standby drivers"])
def test_it_leaves_a_task_manager_that_cannot_keep_it(rig: Cluster, how: str) -> None:
    first = rig.keeper("tm-1")
    second = rig.keeper("tm-2")
    job_id = rig.stream(on=first)
    assert rig.home(job_id) == "tm-2"
    rig.keeper("tm-3", **memory(2000))
    match how:
        case "blocked":
            entry = BlockedNode(id="tm-2", action=BlockAction.MARK_BLOCKED, start_ms=0, causes=("a test",))
            rig.slots.restrictions.block(BlockedPlaces([entry]))
        case "about to stop":
            rig.slots.restrictions.take_leaving(second.id, drains=True)
        case "silent":
            for name in ("tm-1", "tm-3"):
                known = rig.slots.task_managers.get(TaskManagerId(name))
                assert known is not None
                assert rig.slots.task_managers.take_heartbeat(known.info.id, known.info.instance, 9, LOST_AFTER)
            rig.slots.expire(LOST_AFTER)
        case "without memory":
            rig.tell(second, *[rig.job() for _ in range(5)])
        case "without standby drivers":
            rig.report(second)
    assert rig.home(job_id) == "tm-3"


def test_it_moves_when_the_driver_has_moved_to_its_node_and_streams(rig: Cluster) -> None:
    first, second = rig.keeper("tm-1"), rig.keeper("tm-2")
    job_id = rig.stream(on=first)
    assert rig.home(job_id) == "tm-2"
    rig.lose_driver(job_id)
    assert rig.home(job_id) == "tm-2"
    rig.slots.jobs.begin_attempt(job_id, 2, 0.0)
    rig.tell(first)
    rig.tell(second, job_id, attempt=2)
    assert rig.home(job_id) == "tm-2", "the driver is about to take it"
    rig.slots.standbys.streams(job_id, 2, ())
    assert rig.home(job_id) == "tm-1"


def test_a_job_that_has_ended_has_none(rig: Cluster) -> None:
    first = rig.keeper("tm-1")
    rig.keeper("tm-2")
    job_id = rig.stream(on=first)
    assert rig.home(job_id) == "tm-2"
    rig.slots.jobs.remove(job_id)
    assert rig.slots.standbys.wanted_at(TaskManagerId("tm-2")) == []
    assert rig.home(job_id) is None
    rig.slots.standbys.streams(job_id, 2, ())


def test_a_new_leader_leaves_it_where_it_is(rig: Cluster) -> None:
    """Nothing is known of the job's queries yet, and its driver is lost at the same moment."""
    rig.keeper("tm-1", **memory(100_000))
    second, third = rig.keeper("tm-2"), rig.keeper("tm-3")
    job_id = rig.stream()
    rig.tell(second, job1="it is still warming up")
    rig.tell(third, job1="")
    assert rig.home(job_id) == "tm-3"
    assert rig.slots.standbys.view(job_id) == StandbyView(third.id, "")
    assert rig.slots.standbys.wanted_at(second.id) == []
    rig.lose_driver(job_id)
    assert rig.places() == {job_id: "tm-3"}


# --- where the next driver goes ---------------------------------------------------------------------------------------


def placed(rig: Cluster, why_not: str | None, *, state: int = 0) -> str:
    """Where the next driver goes if the reserved standby on tm-2 is ready, or not, and tm-1 has state and room."""
    first, second = rig.keeper("tm-1", **memory(100_000)), rig.keeper("tm-2")
    job_id = rig.stream(on=first)
    assert rig.home(job_id) == "tm-2"
    if why_not is not None:
        rig.tell(second, job1=why_not)
    if state:
        rig.state("tm-1", size=state)
    rig.lose_driver(job_id)
    return rig.places()[job_id]


@pytest.mark.parametrize("state", [0, 10**9])
def test_the_next_driver_goes_to_the_reserved_standby_that_is_ready(rig: Cluster, state: int) -> None:
    assert placed(rig, "", state=state) == "tm-2"


@pytest.mark.parametrize("why_not", ["it is still warming up", None], ids=["not ready", "not reported"])
def test_a_reserved_standby_that_is_not_ready_decides_nothing(rig: Cluster, why_not: str | None) -> None:
    assert placed(rig, why_not) == "tm-1"


def test_another_job_does_not_go_there(rig: Cluster) -> None:
    first, second = rig.keeper("tm-1", **memory(100_000)), rig.keeper("tm-2")
    job_id = rig.stream(on=first)
    assert rig.home(job_id) == "tm-2"
    rig.tell(second, job1="")
    other = rig.job()
    rig.slots.jobs.request_place(other, NEED, 2, 0.0)
    assert rig.places() == {other: "tm-1"}


def test_after_a_failed_start_another_node_comes_first(rig: Cluster) -> None:
    first, second = rig.keeper("tm-1"), rig.keeper("tm-2")
    job_id = rig.stream(on=first)
    assert rig.home(job_id) == "tm-2"
    rig.tell(second, job1="")
    rig.slots.jobs.end_attempt(job_id, 1, 0.0)
    rig.slots.jobs.request_place(job_id, DriverNeed(1408, "3.11", frozenset({"tm-2"})), 2, 0.0)
    assert rig.places() == {job_id: "tm-1"}


def test_a_task_manager_that_has_gone_gets_no_driver(rig: Cluster) -> None:
    first, second = rig.keeper("tm-1"), rig.keeper("tm-2")
    job_id = rig.stream(on=first)
    assert rig.home(job_id) == "tm-2"
    rig.tell(second, job1="")
    rig.slots.task_managers.remove(second.id)
    rig.lose_driver(job_id)
    assert rig.places() == {job_id: "tm-1"}
