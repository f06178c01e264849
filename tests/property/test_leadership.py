"""Two JobManagers under every order of grants, losses, submissions, ends and restarts."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberkeep.leadership import model
from emberkeep.leadership.machine import LeadershipMachine
from emberkeep.leadership.model import Standing
from tests.campaign import examples
from tests.property.leadership_world import Budget, Step, World

pytestmark = pytest.mark.req("HA-12")


def explore(world: World, most: int = 200_000) -> int:
    """Take every step in every state that can be reached; returns how many there are. Raises AssertionError."""
    seen = {world.key()}
    waiting = deque([world])
    while waiting:
        here = waiting.popleft()
        for step in list(here.steps()):
            there = here.copy()
            there.take(step)
            key = there.key()
            if key not in seen:
                assert len(seen) < most, "the search does not end"
                seen.add(key)
                waiting.append(there)
    return len(seen)


def play(world: World, *steps: Step) -> World:
    for step in steps:
        assert step in list(world.steps()), f"{step} is not possible: {list(world.steps())}"
        world.take(step)
    return world


def settle(world: World, *names: str) -> World:
    """Deliver and carry out everything of these JobManagers."""
    while True:
        steps = [step for step in world.steps() if step.what in ("deliver", "carry out") and step.who in names]
        if not steps:
            return world
        world.take(steps[0])


def to_the_race(*, fenced: bool) -> World:
    """A leads and runs a job; B leads as well and has recovered it, before A hears of it; the job finishes."""
    world = settle(World(Budget(expirations=1), fenced=fenced), "A")
    settle(world, "B")
    play(world, Step("submit", "A"))
    settle(world, "A")
    assert world.drivers == {"job 1": 1}
    play(world, Step("expire", "A"))
    settle(world, "B")
    assert [contender.machine.standing for contender in world.contenders.values()] == [Standing.LEADING] * 2
    return world


def test_the_race_of_two_leaders_and_a_finishing_job() -> None:
    world = to_the_race(fenced=True)
    play(world, Step("finish", job="job 1"))
    # A's news that it is deposed are older than the job's end; in the race it acts before it hears them.
    told = world.contenders["A"].notes
    told.insert(0, told.pop())
    play(world, Step("deliver", "A"), Step("carry out", "A"))
    assert (world.handles, world.results) == ({"job 1": 1}, set()), "A may not remove the handle"
    settle(world, "B")
    assert (world.handles, world.results, world.drivers) == ({}, {"job 1"}, {}), "B ends the job, once"
    settle(world, "A", "B")
    assert world.contenders["A"].machine.standing is Standing.WAITING
    assert world.contenders["B"].machine.may_decide


def test_without_the_epoch_check_the_race_is_lost() -> None:
    """The search finds what the check is there for: it could fail."""
    with pytest.raises(AssertionError):
        explore(World(Budget(expirations=1), fenced=False))


@pytest.mark.req("SAFE-9")
@pytest.mark.req("SAFE-10")
def test_a_leader_that_acknowledges_an_end_before_it_is_stored_has_a_job_run_again() -> None:
    """Likewise: the search finds what the patience is there for."""
    with pytest.raises(AssertionError, match="run again"):
        explore(settle(settle(World(Budget(expirations=1, suspensions=1), patient=False), "A"), "B"))


@pytest.mark.parametrize(
    "budget",
    [
        pytest.param(Budget(expirations=2), marks=pytest.mark.long),
        Budget(expirations=1, deaths=1),
        Budget(expirations=1, suspensions=1),
    ],
    ids=["expirations", "restart", "suspension"],
)
@pytest.mark.req("HA-9")
@pytest.mark.req("SAFE-9")
def test_no_interleaving_loses_or_repeats_a_job(budget: Budget) -> None:
    """From A leading and B standing by, which is as good as the other way round."""
    assert explore(settle(settle(World(budget), "A"), "B")) > 500


def test_a_leader_that_was_followed_before_it_knew_that_it_leads_finds_that_out() -> None:
    world = World(Budget(expirations=2))
    play(world, Step("deliver", "A"), Step("deliver", "B"), Step("expire", "B"), Step("deliver", "B"))
    play(world, Step("expire", "A"), Step("deliver", "B"), Step("deliver", "B"), Step("carry out", "B"))
    play(world, Step("deliver", "A"), Step("carry out", "A"))
    assert (world.epoch, world.contenders["B"].machine.epoch) == (2, 0)
    settle(world, "A", "B")
    assert world.contenders["B"].machine.epoch in (0, world.epoch)
    assert any(contender.machine.may_decide for contender in world.contenders.values())


@settings(max_examples=examples(75), deadline=None)
@given(data=st.data())
def test_long_runs_of_trouble_lose_nothing_and_end_with_one_leader(data: st.DataObject) -> None:
    world = World(Budget(submissions=3, expirations=6, suspensions=4, deaths=3))
    for _ in range(data.draw(st.integers(1, 80))):
        steps = list(world.steps())
        if not steps:
            break
        world.take(data.draw(st.sampled_from(steps)))
    settle(world, "A", "B")
    leaders = [name for name, contender in world.contenders.items() if contender.machine.may_decide]
    assert len(leaders) == 1
    assert world.contenders[leaders[0]].machine.epoch == world.epoch
    assert world.handles.keys() == world.contenders[leaders[0]].jobs.keys() == world.drivers.keys()


@pytest.mark.req("HA-9")
@given(events=st.lists(st.integers(0, 10), max_size=60))
def test_the_machine_takes_any_event_at_any_time(events: list[int]) -> None:
    """Late, repeated and foreign answers are ignored; only the end of a service that does not run is a bug."""
    machine = LeadershipMachine()
    for number in events:
        latch = claim = number // 4
        choices: list[model.Event] = [
            model.Connected(),
            model.Suspended(),
            model.Lost(),
            model.Granted(latch),
            model.Revoked(latch),
            model.EpochWritten(claim, 7),
            model.ClaimRefused(claim),
            model.Confirmed(machine.epoch),
            model.Deposed(machine.epoch),
        ]
        if machine.standing is Standing.STOPPING:
            choices.append(model.ServiceEnded(machine.epoch))
        machine.handle(choices[number % len(choices)])
        machine.check_invariants()
