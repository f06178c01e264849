"""Jobs whose number of executors follows their load, in whole clusters on virtual time. Bugs must be noticed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emberkeep.slots.pool.elastic import Elastic
from emberkeep.slots.pool.events import ExecutorsDemanded
from emberkeep.slots.pool.slot_end import SlotEnd
from tests.campaign import keep, seeds, seldom
from tests.simulation.plants import Method, Plant, check
from tests.support.simulator.simulation import Report, simulate_many

# In the world shared-12, jobs of a namespace with guaranteed slots want all there are, until the end. So another job
# gets none for longer than the rules allow for a world in which it ends.
USUAL = {"elastic": 12, "steady": 10, "shared": 11}
SEEDS = {theme: seeds(usual, theme=theme, times=2) for theme, usual in USUAL.items()}

# What a batch must have met; otherwise it has shown nothing about it.
SOMETIMES = {
    "elastic": {
        "load changed": 40,
        "executor killed by Spark": 3,
        "executor decommissioned by Spark": 3,
        "driver lost and restarted": 5,
        "running job kept through a new JobManager": 5,
        "fault: block node": 2,
        "fault: kill executor": 2,
    },
    "shared": {
        "load changed": 40,
        "executor decommissioned": 5,
        "driver lost and restarted": 5,
        "running job kept through a new JobManager": 5,
    },
    "steady": {
        "load changed": 40,
        "executor killed by Spark": 3,
        "executor decommissioned by Spark": 3,
        "executor adopted": 20,
        "running job kept through a new JobManager": 10,
    },
}


def keeping(theme: str) -> Callable[[Report], None]:
    def keep_failing(report: Report) -> None:
        if report.violations:
            keep(int(report.seed.rpartition("-")[2]), theme=theme)

    return keep_failing


@pytest.mark.campaign
@pytest.mark.req("ELASTIC-4")
@pytest.mark.parametrize("theme", SEEDS)
def test_all_properties_hold_while_the_number_of_executors_changes(theme: str) -> None:
    names = [f"{theme}-{number}" for number in SEEDS[theme]]
    batch = simulate_many(names, stop_after=3, on_report=keeping(theme))
    assert not batch.failures, "\n\n".join(report.failure() for report in batch.failures)
    assert not seldom(batch.counts, SOMETIMES[theme])


def nobody_ends_them(original: Method) -> Method:
    def demanded(self: Elastic, event: ExecutorsDemanded, now: float) -> object:
        return original(self, ExecutorsDemanded(event.count, event.decommissioned), now)

    return demanded


def every_end_is_a_loss(original: Method) -> Method:
    def remove(self: SlotEnd, slot: object, reason: str, *, orderly: bool) -> object:
        return original(self, slot, reason, orderly=False)

    return remove


PLANTS = {
    "executors that Spark has killed are not ended": Plant(Elastic, "demanded", nobody_ends_them, ("o",), "steady"),
    "an executor that Spark has removed is reported as lost": Plant(
        SlotEnd, "remove", every_end_is_a_loss, ("o",), "steady"
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(name, PLANTS[name], monkeypatch)
