"""Tests of the tests: bugs in leadership, leases, restarts, placement, fences, stopping and detection must be caught.

The rules of the actors are in ``test_planted_bugs``, those of standby processes in ``test_planted_standbys``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from campaign.coverage import RULES
from emberkeep.blocklist.detection import DetectionLimits, FaultDetector
from emberkeep.jobmanager.authority import Authority
from emberkeep.jobmanager.store_writes import StoreWrites
from emberkeep.jobmaster.lease import AttemptLease
from emberkeep.jobmaster.standing import AttemptStanding
from emberkeep.jobs.driver import Driver
from emberkeep.jobs.hearing import Hearing
from emberkeep.jobs.restart import ExponentialDelay, Restart
from emberkeep.leadership import model
from emberkeep.leadership.machine import LeadershipMachine
from emberkeep.lifecycle.machine import ProcedureMachine, StepFailed
from emberkeep.slots.ledger import JobAccount, Member
from emberkeep.slots.matching import PlaceRound, SlotRound, _Wish
from emberkeep.slots.place_queue import PlaceQueue
from emberkeep.taskmanager.state_gateway.fences import GatewayFences
from tests.simulation import planted_worlds as worlds
from tests.simulation import test_planted_bugs, test_planted_standbys
from tests.simulation.elastic import test_dynamic_allocation
from tests.simulation.plants import Method, Plant, Spoil, answering, check, returning
from tests.simulation.swarm import test_mixed_versions, test_quotas, test_storage
from tests.support.fakes import MemoryJobStore


def unfenced(_: Method) -> Method:
    def begin(self: MemoryJobStore) -> None:
        self._check_open()

    return begin


def resumes_unconfirmed(original: Method) -> Method:
    def connected(self: LeadershipMachine, event: model.Connected) -> Any:
        effects = original(self, event)
        if self.standing is not model.Standing.CONFIRMING:
            return effects
        return self._confirmed(model.Confirmed(self.epoch))

    return connected


def silence_counts_always(_: Method) -> Method:
    return lambda self, now: self._began


def half_a_lease(original: Method) -> Method:
    def gone_at(self: Driver, policy: Any, hears_since: float | None) -> float | None:
        at: float | None = original(self, policy, hears_since)
        return None if at is None else at - policy.lease / 2

    return gone_at


def at_once(original: Method) -> Method:
    def failed(self: ExponentialDelay, now: float, chance: float) -> Any:
        decision = original(self, now, chance)
        return Restart(0.0) if isinstance(decision, Restart) else decision

    return failed


def setting(name: str, value: Callable[[Any], Any]) -> Spoil:
    """Set an attribute before each call."""

    def spoil(original: Method) -> Method:
        def method(self: Any, *arguments: Any) -> Any:
            setattr(self, name, value(self))
            return original(self, *arguments)

        return method

    return spoil


def packed(_: Method) -> Method:
    def find(self: _Wish) -> Member | None:
        self.touched = None
        profile = self.want.requirement.profile
        return self._least_touched(profile) or self._untouched(profile)

    return find


def first_with_room(_: Method) -> Method:
    def freest(self: PlaceRound, need: Any) -> Member | None:
        members = [member for heap in self._heaps.values() for _, _, member in heap]
        able = [member for member in members if member.free_places > 0 and member.free_memory >= need.memory_mb]
        return min(able, key=lambda member: member.ordinal, default=None)

    return freest


def one_job_after_the_other(_: Method) -> Method:
    def run(self: SlotRound, jobs: Any, *_: Any) -> None:
        for job in sorted(jobs, key=lambda each: each.order):
            wishes = self._wishes(job)
            while self._serve(wishes):
                pass

    return run


def never_unreserved(_: Method) -> Method:
    def unreserve(self: PlaceQueue, job: JobAccount) -> None:
        job.reserved_on = None

    return unreserve


def known_marks_are_enough(original: Method) -> Method:
    def listed(self: GatewayFences, caller: Any) -> int:
        newest: int = self._job(caller.job_id).newest
        return newest if newest > 0 else original(self, caller)

    return listed


def own_mark_is_cleared(_: Method) -> Method:
    def clear(self: GatewayFences, caller: Any) -> None:
        for attempt in self._marks(caller):
            self._own_state(caller).delete(f".attempts/{attempt}", recursive=False)

    return clear


def without_failures(original: Method) -> Method:
    def handle(self: ProcedureMachine, event: Any, now_ms: int) -> Any:
        return [] if isinstance(event, StepFailed) else original(self, event, now_ms)

    return handle


def every_job_is_a_witness(_: Method) -> Method:
    def testimony(self: FaultDetector, suspects: Any) -> Any:
        return {node: [job_id for job_id, job in self._jobs.items() if job.accuses(node)] for node in suspects}

    return testimony


def with_limits(**limits: Any) -> Spoil:
    def spoil(original: Method) -> Method:
        def init(self: FaultDetector, given: DetectionLimits) -> None:
            original(self, replace(given, **limits))

        return init

    return spoil


PLANTS = {
    # leadership
    "the job store takes writes of any epoch": Plant(
        MemoryJobStore, "_begin", unfenced, ("a", "d", "e", "g"), worlds.contended
    ),
    "a leader decides without asking its store": Plant(Authority, "confirmed", answering(True), ("n",), "storeless"),
    "a suspended leader decides": Plant(
        LeadershipMachine, "_suspended", returning([]), ("election",), worlds.elections
    ),
    "a leader without a session leads on": Plant(
        LeadershipMachine, "_lost", returning([]), ("election",), worlds.elections
    ),
    "a leader that was suspended decides before its epoch is confirmed": Plant(
        LeadershipMachine, "_connected", resumes_unconfirmed, ("election",), worlds.elections
    ),
    # leases
    "a lease lasts half as long": Plant(Driver, "gone_at", half_a_lease, ("d",), "split"),
    "a leader that nobody reaches takes the silence for the drivers'": Plant(
        Hearing, "since", silence_counts_always, ("lease",), worlds.cut_off_leader
    ),
    "heartbeats of drivers do not count": Plant(Driver, "hear", returning(None), ("p",), "agents"),
    "a driver that is alone commits as if a leader had confirmed its attempt": Plant(
        AttemptStanding, "is_alone", returning(False), ("v",), worlds.cut_off_drivers
    ),
    "a look at the marks before the batch ended is enough": Plant(
        AttemptLease, "ask_to_commit", returning(-1), ("v",), worlds.cut_off_drivers
    ),
    "a driver goes by its own lease alone": Plant(
        AttemptLease, "shorten", returning(None), ("v",), worlds.cut_off_drivers_of_long_leases
    ),
    "a driver that cannot read the marks takes that for a good sign": Plant(
        AttemptLease, "may_commit", returning(True), ("v",), worlds.cut_off_drivers
    ),
    # restarts
    "a lost driver is restarted without delay": Plant(
        ExponentialDelay, "failed", at_once, ("back-off",), worlds.failing_forever
    ),
    "the delay before a restart does not grow": Plant(
        ExponentialDelay,
        "failed",
        setting("_backoff", lambda self: self._initial),
        ("back-off",),
        worlds.failing_forever,
    ),
    "restarts are not counted": Plant(
        ExponentialDelay, "failed", setting("_restarts", lambda _: 0), ("back-off",), worlds.failing_forever
    ),
    # placement
    "a job's executors are packed": Plant(_Wish, "find", packed, ("placement",), worlds.room_for_all),
    "drivers are placed where there is room first": Plant(
        PlaceRound, "_freest", first_with_room, ("placement",), worlds.room_for_all
    ),
    "the earliest job takes all slots": Plant(
        SlotRound, "run", one_job_after_the_other, ("placement",), worlds.room_for_all
    ),
    "a reserved driver place stays reserved": Plant(PlaceQueue, "unreserve", never_unreserved, ("f",), "calm"),
    # fences of the state gateway
    "a gateway does not ask which attempts have begun": Plant(
        GatewayFences, "check", returning(None), ("fence",), worlds.gateways
    ),
    "a gateway trusts what it has listed before": Plant(
        GatewayFences, "_listed", known_marks_are_enough, ("fence",), worlds.gateways
    ),
    "a new attempt writes no mark": Plant(GatewayFences, "_mark", returning(None), ("fence",), worlds.gateways),
    "a new attempt removes its own mark": Plant(
        GatewayFences, "_clear_older", own_mark_is_cleared, ("fence",), worlds.gateways
    ),
    # stopping
    "a step that takes too long is waited for": Plant(
        ProcedureMachine, "handle", without_failures, ("scenario",), worlds.out_of_time
    ),
    "an attempt is not told that its stop is durable": Plant(
        ProcedureMachine, "_recorded", returning([]), ("scenario",), worlds.asked_to_stop
    ),
    "a stop is acknowledged before it is durable": Plant(
        StoreWrites, "record_procedure", answering(True), ("scenario",), worlds.asked_to_stop
    ),
    # detection
    "jobs that fail everywhere are witnesses": Plant(
        FaultDetector, "_works_elsewhere", returning(True), ("detection",), worlds.sick_nodes
    ),
    "every job that fails is a witness": Plant(
        FaultDetector, "_testimony", every_job_is_a_witness, ("detection",), worlds.sick_nodes
    ),
    "one witness is enough": Plant(
        FaultDetector, "__init__", with_limits(witnesses=1), ("detection",), worlds.sick_nodes
    ),
    "any share of the nodes may be blocked": Plant(
        FaultDetector, "__init__", with_limits(max_share=1.0), ("detection",), worlds.many_sick_nodes
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(name, PLANTS[name], monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("world", dict.fromkeys(plant.world for plant in PLANTS.values() if callable(plant.world)))
def test_without_a_planted_bug_a_world_is_sound(world: worlds.World) -> None:
    assert [world(number) for number in range(1, 4)] == [()] * 3


def test_every_rule_of_the_checker_has_a_planted_bug() -> None:
    """A rule counts only where the bug can break no other rule first."""
    rules = set(RULES)
    assert len(rules) == 26
    others = (
        test_planted_bugs,
        test_planted_standbys,
        test_dynamic_allocation,
        test_quotas,
        test_storage,
        test_mixed_versions,
    )
    planted = [*PLANTS.values(), *(plant for module in others for plant in module.PLANTS.values())]
    assert rules - {plant.rules[0] for plant in planted if len(plant.rules) == 1} == set()
    assert len(planted) >= 40
