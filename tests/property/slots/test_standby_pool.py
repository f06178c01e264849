"""What a standby pool must never do, whatever the order of events, and that this test notices it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from emberkeep.base.errors import IllegalTransition
from emberkeep.base.ids import JobId
from emberkeep.slots.standbys import machine
from emberkeep.slots.standbys.back_off import FIRST_PAUSE, LONGEST_PAUSE, BackOff, Cause
from emberkeep.slots.standbys.events import (
    Asked,
    EndStandby,
    Look,
    Prepared,
    PrepareStandby,
    Reserve,
    StandbyEffect,
    StandbyEnded,
    StandbyEvent,
    StandbyKind,
    StandbyProfile,
    StandbyTaken,
    StartStandby,
    TakeEnded,
    Warmed,
)
from emberkeep.slots.standbys.machine import PRESSURE_SECONDS, REMEMBERED, StandbyPool
from emberkeep.slots.standbys.members import StandbyMembers, StandbyState
from tests.campaign import examples

PROFILES = [
    StandbyProfile(kind, heap_mb, options)
    for kind in StandbyKind
    for heap_mb, options in [(512, ()), (1024, ()), (1024, ("-Xss4m",)), (4096, ())]
]
SIZES = {StandbyKind.DRIVER: 2, StandbyKind.EXECUTOR: 1}
SLOTS = 2
DEFAULTS = {kind: StandbyProfile(kind, 1024) for kind in StandbyKind}
WARMING, PREPARING, READY, ENDING = StandbyState
JOBS = [JobId(digit * 32) for digit in "123"]
DRIVERS = [profile for profile in PROFILES if profile.kind is StandbyKind.DRIVER]


@dataclass
class Process:
    """What the test knows of a process that the pool has started. ``job_id``: the job that it is reserved for."""

    profile: StandbyProfile
    job_id: JobId | None = None
    state: StandbyState = WARMING


class PoolLife(RuleBasedStateMachine):
    """Jobs ask for processes and take them, processes become ready, fail and end, memory comes and goes."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = StandbyPool(SIZES, DEFAULTS, SLOTS)
        self.now = 0.0
        self.processes: dict[str, Process] = {}
        self.asked = {kind: deque([profile], maxlen=REMEMBERED) for kind, profile in DEFAULTS.items()}
        self.failures: dict[Cause, tuple[int, float]] = {}  # number, and when the last one was
        self.reserved: dict[JobId, StandbyProfile] = {}
        self.look = Look(free_mb=0, is_busy=True)
        self.short_since: float | None = None

    # --- the world ----------------------------------------------------------------------------------------------------

    @rule(free_mb=st.sampled_from([-500, 0, 1500, 3000, 4600, 6000, 20_000, 20_000]), busy=st.sampled_from([0, 0, 1]))
    def looks(self, free_mb: int, busy: int) -> None:
        self.look = Look(free_mb=free_mb, is_busy=bool(busy))
        self.send(self.look)

    @rule(seconds=st.sampled_from([1.0, PRESSURE_SECONDS, FIRST_PAUSE, 60.0, LONGEST_PAUSE]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.send(self.look)

    @rule(free_mb=st.sampled_from([-500, 0, 1500, 3000, 4600]))
    def memory_is_short_for_long(self, free_mb: int) -> None:
        self.looks(free_mb, busy=0)
        for _ in range(3):  # a process a time
            self.time_passes(PRESSURE_SECONDS)

    @rule(profile=st.sampled_from(PROFILES), fits=st.sampled_from([True, True, False]))
    def job_asks(self, profile: StandbyProfile, fits: bool) -> None:
        if fits:
            self.asked[profile.kind].append(profile)
        self.send(Asked(profile, fits))

    @rule(profiles=st.dictionaries(st.sampled_from(JOBS), st.sampled_from(DRIVERS)))
    def jobs_have_reserved_standbys(self, profiles: dict[JobId, StandbyProfile]) -> None:
        self.reserved = profiles
        self.send(Reserve(profiles))

    @rule(data=st.data(), job_id=st.sampled_from([None, *JOBS]), failed=st.booleans())
    def job_takes(self, data: st.DataObject, job_id: JobId | None, failed: bool) -> None:
        # Mostly one of those that are there: else most takes find nothing.
        there = [each.profile for each in self.processes.values()]
        profile = data.draw(st.sampled_from([*(there * len(PROFILES)), *PROFILES]))
        standby_id = self.pool.ready(profile, job_id)
        fitting = {n: e for n, e in self.processes.items() if e.state is READY and e.profile == profile}
        own = {name for name, each in fitting.items() if job_id is not None and each.job_id == job_id}
        if standby_id is None:
            assert not own, "a job gets its reserved standby"
            assert not any(each.job_id is None for each in fitting.values()), "a job gets a process that is ready"
            assert self.pool.why_none(profile, job_id)
            return
        assert standby_id in fitting, "a job gets only what is ready and fits"
        assert standby_id in own or not own, "a job gets its reserved standby first"
        taken_of = fitting[standby_id].job_id
        assert taken_of in {None, job_id}, "a job gets no reserved standby of another job"
        del self.processes[standby_id]
        self.send(StandbyTaken(standby_id))
        self.refused(StandbyTaken(standby_id))
        if failed:
            self.count_failure((profile, taken_of))
        else:
            self.failures.pop((profile, taken_of), None)
        self.send(TakeEnded(profile, failed=failed, job_id=taken_of))

    @rule()
    def events_of_unknown_processes_come(self) -> None:
        self.send(Warmed("unknown"))
        self.send(Prepared("unknown"))
        self.send(StandbyEnded("unknown", "killed"))
        self.refused(StandbyTaken("unknown"))

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def one_becomes_ready(self, data: st.DataObject) -> None:
        self.becomes_warm(data.draw(st.sampled_from(sorted(self.processes))))

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def one_is_prepared(self, data: st.DataObject) -> None:
        self.becomes_prepared(data.draw(st.sampled_from(sorted(self.processes))))

    @rule()
    def all_become_ready(self) -> None:
        for standby_id in sorted(self.processes):
            self.becomes_warm(standby_id)
        for standby_id in sorted(self.processes):
            self.becomes_prepared(standby_id)

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def one_ends(self, data: st.DataObject) -> None:
        standby_id = data.draw(st.sampled_from(sorted(self.processes)))
        process = self.processes.pop(standby_id)
        if process.state is not ENDING:
            self.count_failure((process.profile, process.job_id))
        self.send(StandbyEnded(standby_id, "killed"))
        self.send(StandbyEnded(standby_id, "killed"))

    def becomes_warm(self, standby_id: str) -> None:
        process = self.processes[standby_id]
        if process.state is WARMING:
            process.state = READY if process.job_id is None else PREPARING
        self.send(Warmed(standby_id))  # even late, or twice

    def becomes_prepared(self, standby_id: str) -> None:
        process = self.processes[standby_id]
        if process.state is PREPARING:
            process.state = READY
        self.send(Prepared(standby_id))

    def count_failure(self, failing: Cause) -> None:
        known: set[Cause] = {(profile, None) for asked in self.asked.values() for profile in asked}
        known |= {(profile, job_id) for job_id, profile in self.reserved.items()}
        self.failures = {cause: failed for cause, failed in self.failures.items() if cause in known}
        number, _ = self.failures.get(failing, (0, 0.0))
        self.failures[failing] = number + 1, self.now

    # --- what must hold -----------------------------------------------------------------------------------------------

    def refused(self, event: StandbyEvent) -> None:
        before = self.pool.standbys()
        with pytest.raises(IllegalTransition):
            self.pool.handle(event, self.now)
        assert self.pool.standbys() == before, "a refusal changes nothing"

    def send(self, event: StandbyEvent) -> None:
        if self.excess() <= 0:
            self.short_since = None
        elif self.short_since is None:
            self.short_since = self.now
        effects = self.pool.handle(event, self.now)
        for effect in effects:
            match effect:
                case StartStandby():
                    self.check_start(effect)
                case PrepareStandby():
                    self.check_preparation(effect)
                case EndStandby():
                    self.check_end(effect)
        self.check_progress(effects)
        known = {each.standby_id: (each.profile, each.state, each.job_id) for each in self.pool.standbys()}
        assert known == {name: (each.profile, each.state, each.job_id) for name, each in self.processes.items()}
        assert self.pool.memory_mb == sum(each.profile.memory_mb for each in self.processes.values())
        self.pool.check_invariants()

    def check_start(self, effect: StartStandby) -> None:
        kind, job_id = effect.profile.kind, self.started_for(effect)
        assert effect.standby_id not in self.processes, "each process has an id of its own"
        assert self.count(state=WARMING) == 0, "one warm-up at a time"
        assert not self.look.is_busy, "nothing starts while processes of jobs start"
        assert self.used() + effect.profile.memory_mb <= self.look.free_mb, "reserved memory is not used"
        assert self.now >= self.resume_at(effect.profile, job_id), "failures back off"
        if job_id is None:
            assert self.count(kind=kind) < self.size(kind), "no more processes than the size"
            assert self.wanted(kind)[effect.profile] > self.count(profile=effect.profile), "nobody asked for it"
        else:
            assert self.reserved.get(job_id) == effect.profile, "no job has it reserved"
            assert not self.of(job_id), "a job has one reserved standby"
        self.processes[effect.standby_id] = Process(effect.profile, job_id)

    def started_for(self, effect: StartStandby) -> JobId | None:
        """Return the job that a new process is reserved for: only the pool knows, and tells when it is warm."""
        return next(each.job_id for each in self.pool.standbys() if each.standby_id == effect.standby_id)

    def check_preparation(self, effect: PrepareStandby) -> None:
        process = self.processes[effect.standby_id]
        assert effect.job_id in self.reserved, "no job needs it"
        assert self.reserved[effect.job_id] == process.profile, "it has what the job needs"
        assert effect.imports is ((process.profile, effect.job_id) not in self.failures), "an import that may fail"
        if process.state is READY:
            assert not self.look.is_busy, "nothing is imported while processes of jobs start"
            assert process.job_id is None, "a process is reserved once"
            assert not self.of(effect.job_id), "a job has one reserved standby"
            assert self.now >= self.resume_at(process.profile, effect.job_id), "failures back off"
            process.job_id, process.state = effect.job_id, PREPARING
        assert (process.job_id, process.state) == (effect.job_id, PREPARING)

    def check_end(self, effect: EndStandby) -> None:
        process = self.processes[effect.standby_id]
        assert process.state is not ENDING, "a process is ended once"
        kind = process.profile.kind
        if self.is_needless(process):
            process.state = ENDING
            return
        if process.job_id is None and len(self.living(kind)) > self.size(kind):
            least = [each for each in self.living(kind) if each.profile not in self.wanted(kind)]
            assert process in (least or self.living(kind)), "what jobs ask for is ended last"
            process.state = ENDING
            return
        if self.short_since is not None:
            assert self.now - self.short_since >= PRESSURE_SECONDS, "a short shortage costs nothing"
            assert self.excess() > 0, "no more is given back than what is needed"
            assert process.state is WARMING or self.count(state=WARMING) == 0, "the warming process is ended first"
            if process.job_id is not None and process.state is not WARMING:
                others = [each for each in self.processes.values() if each.job_id is None and each.state is READY]
                assert not others, "what is reserved is given back last"
        else:
            assert process.state is READY, "a warm-up is not wasted"
            assert process.job_id is None, "what is reserved stays"
            surplus = self.count(profile=process.profile) > self.wanted(kind)[process.profile]
            assert surplus or self.makes_room(process), "a wanted process stays"
        process.state = ENDING

    def makes_room(self, process: Process) -> bool:
        """True if a job's reserved standby gets the memory of this process, or of several, and had too little."""
        assert process in self.free_ready(), "what is reserved stays"
        givable = sum(each.profile.memory_mb for each in self.free_ready())
        return any(0 < self.missing(profile) <= givable for _, profile in self.lacking())

    def missing(self, profile: StandbyProfile) -> int:
        """Return the MiB that such a process lacks once those that are ending have gone; 0 or less if it has enough."""
        stays = sum(each.profile.memory_mb for each in self.processes.values() if each.state is not ENDING)
        return stays + profile.memory_mb - self.look.free_mb

    def lacking(self) -> list[tuple[JobId, StandbyProfile]]:
        """Return the jobs without a reserved standby whose last one has not failed a moment ago."""
        return [
            (job_id, profile)
            for job_id, profile in self.reserved.items()
            if not self.of(job_id) and self.now >= self.resume_at(profile, job_id)
        ]

    def check_progress(self, effects: list[StandbyEffect]) -> None:
        needless = [each for each in self.processes.values() if self.is_needless(each)]
        assert all(each.state is ENDING for each in needless), "what its job needs no longer is ended"
        assert all(len(self.living(kind)) <= self.size(kind) for kind in StandbyKind), "executors are given back"
        free = {each.profile for each in self.processes.values() if each.state is READY and each.job_id is None}
        if not self.look.is_busy:
            assert not free & {profile for _, profile in self.lacking()}, "a job gets a ready process as its own"
        if self.short_since is not None:
            late = self.now - self.short_since >= PRESSURE_SECONDS
            assert not late or self.excess() <= 0, "reserved memory is given back"
            return
        if effects or self.look.is_busy or self.count(state=WARMING):
            return
        givable = sum(each.profile.memory_mb for each in self.free_ready())
        for _, profile in self.lacking():
            assert self.used() + profile.memory_mb > self.look.free_mb, "a job's reserved standby is started"
            if self.missing(profile) <= 0:
                return  # it has the memory once those that are ending have gone
            assert self.missing(profile) > givable, "a job's reserved standby gets a place"
        for kind in StandbyKind:
            wanted = self.wanted(kind)
            unwanted = [
                each.profile.memory_mb
                for each in self.free_ready()
                if each.profile.kind is kind and self.count(profile=each.profile) > wanted[each.profile]
            ]
            for profile in wanted:
                if self.count(profile=profile) < wanted[profile] and self.now >= self.resume_at(profile, None):
                    room = self.look.free_mb - self.used() - profile.memory_mb
                    assert room < 0 or self.count(kind=kind) >= self.size(kind), "what jobs ask for most is started"
                    assert room + max(unwanted, default=-(10**6)) < 0, "what jobs ask for most gets a place"

    def free_ready(self) -> list[Process]:
        return [each for each in self.processes.values() if each.state is READY and each.job_id is None]

    def is_needless(self, process: Process) -> bool:
        """True if a process is reserved for a job that needs it no longer."""
        return process.job_id is not None and self.reserved.get(process.job_id) != process.profile

    def of(self, job_id: JobId) -> list[Process]:
        return [each for each in self.processes.values() if each.job_id == job_id]

    def wanted(self, kind: StandbyKind) -> Counter[StandbyProfile]:
        """Return the profiles that have the places: asked for most often, and lately."""
        asked = self.asked[kind]
        counts = Counter(asked)
        last = {profile: number for number, profile in enumerate(asked)}
        ranked = sorted(counts, key=lambda profile: (counts[profile], last[profile]), reverse=True)
        return Counter(ranked[place % len(ranked)] for place in range(self.size(kind)))

    def size(self, kind: StandbyKind) -> int:
        """Return how many processes the pool keeps for any job: an executor more for each reserved standby."""
        return min(SIZES[kind] + len(self.reserved), SLOTS) if kind is StandbyKind.EXECUTOR else SIZES[kind]

    def living(self, kind: StandbyKind) -> list[Process]:
        """Return the processes for any job that the pool does not end."""
        return [
            each
            for each in self.processes.values()
            if each.profile.kind is kind and each.job_id is None and each.state is not ENDING
        ]

    def resume_at(self, profile: StandbyProfile, job_id: JobId | None) -> float:
        number, failed_at = self.failures.get((profile, job_id), (0, 0.0))
        return failed_at + min(FIRST_PAUSE * 2.0 ** (number - 1), LONGEST_PAUSE) if number else 0.0

    def count(
        self,
        *,
        kind: StandbyKind | None = None,
        state: StandbyState | None = None,
        profile: StandbyProfile | None = None,
    ) -> int:
        """Count processes: those for any job, or with a state all of them."""
        return sum(
            kind in {None, each.profile.kind} and state in {None, each.state} and profile in {None, each.profile}
            for each in self.processes.values()
            if state is not None or each.job_id is None
        )

    def used(self) -> int:
        return sum(each.profile.memory_mb for each in self.processes.values())

    def excess(self) -> int:
        living = [e for e in self.processes.values() if e.state is not ENDING and not self.is_needless(e)]
        return sum(each.profile.memory_mb for each in living) - self.look.free_mb if living else 0


SETTINGS = settings(max_examples=examples(75), stateful_step_count=40, deadline=None, report_multiple_bugs=False)
TestPoolLife = PoolLife.TestCase
TestPoolLife.settings = SETTINGS


# --- bugs that the property catches -----------------------------------------------------------------------------------

Original = Callable[..., Any]


def during(original: Original, **values: Any) -> Original:
    """Return the method, run with other values of some fields of the pool, which get their own values back."""

    def changed(self: StandbyPool, *arguments: Any) -> Any:
        before = {name: getattr(self, name) for name in values}
        vars(self).update(values)
        try:
            result = original(self, *arguments)
            return list(result) if isinstance(result, Iterator) else result
        finally:
            vars(self).update(before)

    return changed


def nothing(original: Original) -> Original:
    del original
    return lambda *_: iter(())


def back_at_once(original: Original) -> Original:
    def give_back(self: StandbyPool, now: float) -> list[StandbyEffect]:
        self._over_since = now - PRESSURE_SECONDS
        return list(original(self, now))

    return give_back


def ready_ones_first(original: Original) -> Original:
    def give_back(self: StandbyPool, now: float) -> list[StandbyEffect]:
        for standby in self.standbys():
            if standby.state is READY and self._over_since is not None and now - self._over_since >= PRESSURE_SECONDS:
                return [self._end(standby, "")] if self._excess() > 0 else []
        return list(original(self, now))

    return give_back


def two_warm_ups(original: Original) -> Original:
    def find(self: StandbyMembers, state: StandbyState) -> list[Any]:
        return [] if state is WARMING else list(original(self, state))

    return find


def no_back_off(original: Original) -> Original:
    def ended(self: StandbyPool, *arguments: Any) -> None:
        self._back_off._failures.clear()
        original(self, *arguments)

    return ended


def first_come(original: Original) -> Original:
    del original

    def wanted(self: StandbyPool, kind: StandbyKind) -> Counter[StandbyProfile]:
        return Counter({self._asked[kind][0]: SIZES[kind]})

    return wanted


def stays(original: Original) -> Original:
    def taken(self: StandbyPool, standby_id: str) -> None:
        kept = self._members.get(standby_id)
        original(self, standby_id)
        if kept is not None:
            self._members._by_id[standby_id] = kept

    return taken


def for_others_as_well(original: Original) -> Original:
    def ready(self: StandbyPool, profile: StandbyProfile, job_id: JobId | None = None) -> str | None:
        found: str | None = original(self, profile, job_id)
        return found or next((s.standby_id for s in self._members.in_state(READY) if s.profile == profile), None)

    return ready


def reserved_ones_first(original: Original) -> Original:
    def give_back(self: StandbyPool, now: float) -> list[StandbyEffect]:
        for standby in self.standbys():
            long = self._over_since is not None and now - self._over_since >= PRESSURE_SECONDS
            if long and standby.job_id is not None and standby.state is READY and self._excess() > 0:
                return [self._end(standby, "")]
        return list(original(self, now))

    return give_back


def twice(original: Original) -> Original:
    def of(self: StandbyMembers, job_id: JobId) -> Any:
        found = original(self, job_id)
        return None if found is not None and found.state is READY else found

    return of


def one_failure_stops_all(original: Original) -> Original:
    def refill(self: StandbyPool, now: float) -> list[StandbyEffect]:
        paused = any(now < failed.resume_at for failed in self._back_off._failures.values())
        return [] if paused else list(original(self, now))

    return refill


def forgets_that_it_ends(original: Original) -> Original:
    def warmed(self: StandbyPool, standby_id: str) -> list[StandbyEffect]:
        effects = list(original(self, standby_id))
        standby = self._members.get(standby_id)
        if standby is not None and not effects:
            standby.state = READY
        return effects

    return warmed


PLANTS: dict[str, tuple[str, Callable[[Original], Original]]] = {
    "processes start while jobs start theirs": ("_refill", lambda original: during(original, _is_busy=False)),
    "processes start in reserved memory": ("_refill", lambda original: during(original, _free_mb=10**6)),
    "more processes than the size": ("_refill", lambda original: during(original, sizes=dict.fromkeys(SIZES, 4))),
    "no executors for reserved standbys": ("_refill", lambda original: during(original, _reserved={})),
    "more executors than slots": ("_refill", lambda original: during(original, _slots=9)),
    "failures cause no pause": ("_refill", lambda original: during(original, _back_off=BackOff())),
    "pauses do not grow": ("_ended", no_back_off),
    "a profile that fails keeps all others waiting": ("_refill", one_failure_stops_all),
    "two warm-ups at a time": ("in_state", two_warm_ups),
    "memory is never given back": ("_give_back", nothing),
    "memory is given back at once": ("_give_back", back_at_once),
    "ready processes are given back first": ("_give_back", ready_ones_first),
    "the first profile keeps its place": ("_wanted", first_come),
    "nothing is ended for what jobs ask for": ("_large_enough", lambda _: lambda *_: None),
    "a process can be taken twice": ("_taken", stays),
    "a process that is ended becomes ready": ("_warmed", forgets_that_it_ends),
    "other jobs take what is reserved": ("ready", for_others_as_well),
    "what is reserved is given back first": ("_give_back", reserved_ones_first),
    "what is reserved stays when its job has gone": ("_withdraw", nothing),
    "no ready process becomes a job's own": ("_reserve", nothing),
    "a job has several": ("of", twice),
}

# The search ends at the first failure.
TRIED = settings(SETTINGS, max_examples=3000, database=None, derandomize=True, phases=[Phase.generate])


@pytest.mark.long
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method, replacement = PLANTS[name]
    owner = next(each for each in (StandbyPool, StandbyMembers, machine) if hasattr(each, method))
    monkeypatch.setattr(owner, method, replacement(getattr(owner, method)))
    with pytest.raises((AssertionError, pytest.fail.Exception)) as caught:
        run_state_machine_as_test(PoolLife, settings=TRIED)
    print(f"{name}: {caught.value}")
