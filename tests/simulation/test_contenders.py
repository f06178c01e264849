"""Two JobManagers that contend: one does not know yet that the other leads, and no property is violated by that."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.campaign import keep, seeds, seldom
from tests.support.fakes import MemoryJobStore
from tests.support.simulator.contenders import simulate_contended

SEEDS = seeds(8, theme="contend", times=2)

# What a batch must have met; otherwise it has shown nothing about it.
SOMETIMES = {
    "election: granted to another": 15,
    "election: deposed leader refused by the store": 2,
    "election: revoked": 10,
    "election: suspended": 1,
    "running job kept through a new JobManager": 5,
    "driver lost and restarted": 2,
    "result FINISHED": 4,
}


@pytest.mark.campaign
@pytest.mark.req("HA-5")
@pytest.mark.req("HA-6")
@pytest.mark.req("HA-7")
@pytest.mark.req("HA-12")
def test_no_property_is_violated_while_two_believe_that_they_lead() -> None:
    counts: Counter[str] = Counter()
    for number in SEEDS:
        report = simulate_contended(f"contend-{number}")
        if report.violations:
            keep(number, theme="contend")
        assert not report.violations, report.failure()
        counts.update(report.counts)
    assert not seldom(counts, SOMETIMES)


def test_a_seed_is_a_seed() -> None:
    assert simulate_contended("contend-3").digest == simulate_contended("contend-3").digest


@pytest.mark.req("HA-6")
def test_a_store_that_takes_writes_of_any_epoch_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def unfenced(store: MemoryJobStore) -> None:
        store._check_open()

    monkeypatch.setattr(MemoryJobStore, "_begin", unfenced)
    assert any(simulate_contended(f"contend-{number}").violations for number in range(1, 21))
