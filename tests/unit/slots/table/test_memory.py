"""Which process has to end for want of memory: one that exceeds what it was given, and nobody else."""

from __future__ import annotations

import pytest

from emberkeep.slots.table.memory import MemoryLimit, MemoryUse, MemoryWatch

PLENTY, SHORT, RESERVE = 5000, 100, 256
USES = {"modest": MemoryUse(900, 1000), "exact": MemoryUse(1000, 1000), "big": MemoryUse(1500, 1000)}
WORSE = {**USES, "worst": MemoryUse(2100, 1500)}


def ended(watch: MemoryWatch[str], uses: dict[str, MemoryUse], *available: int) -> list[set[str]]:
    """Who has to end at each look."""
    return [set(watch.look(uses, each)) for each in available]


def test_always_means_all_that_exceed_their_memory_at_two_looks_in_a_row() -> None:
    watch: MemoryWatch[str] = MemoryWatch(MemoryLimit.ALWAYS, RESERVE)
    assert ended(watch, WORSE, PLENTY, PLENTY) == [set(), {"big", "worst"}]


def test_a_peak_between_two_looks_is_forgiven() -> None:
    watch: MemoryWatch[str] = MemoryWatch(MemoryLimit.ALWAYS, RESERVE)
    calm = {**USES, "big": MemoryUse(800, 1000)}
    assert [set(watch.look(uses, PLENTY)) for uses in (USES, calm, USES, USES)] == [set(), set(), set(), {"big"}]


def test_a_machine_with_memory_left_ends_nobody() -> None:
    watch: MemoryWatch[str] = MemoryWatch(MemoryLimit.WHEN_SHORT, RESERVE)
    assert not watch.wants(RESERVE)
    assert ended(watch, WORSE, *[RESERVE] * 5) == [set()] * 5


def test_a_machine_that_is_short_ends_the_worst_first_and_looks_again() -> None:
    watch: MemoryWatch[str] = MemoryWatch(MemoryLimit.WHEN_SHORT, RESERVE)
    assert watch.wants(RESERVE - 1)
    assert ended(watch, WORSE, SHORT, SHORT) == [set(), {"worst"}]
    assert ended(watch, USES, SHORT) == [{"big"}]
    assert ended(watch, USES, PLENTY, SHORT, SHORT) == [set(), set(), {"big"}]


def test_nobody_is_ended_who_keeps_to_what_it_was_given_however_short_the_machine_is() -> None:
    watch: MemoryWatch[str] = MemoryWatch(MemoryLimit.WHEN_SHORT, RESERVE)
    kept = {name: USES[name] for name in ("modest", "exact")}
    assert ended(watch, kept, 0, 0, 0) == [set()] * 3


def test_none_looks_at_nobody() -> None:
    watch: MemoryWatch[str] = MemoryWatch(MemoryLimit.NONE, RESERVE)
    assert not watch.wants(0)
    assert ended(watch, WORSE, 0, 0, 0) == [set()] * 3


@pytest.mark.parametrize("limit", [MemoryLimit.ALWAYS, MemoryLimit.WHEN_SHORT])
def test_the_reason_says_what_was_used_and_given(limit: MemoryLimit) -> None:
    watch: MemoryWatch[str] = MemoryWatch(limit, RESERVE)
    watch.look(USES, SHORT)
    (reason,) = watch.look(USES, SHORT).values()
    assert "used 1500 MiB" in reason
    assert "was given 1000 MiB" in reason
    assert ("100 MiB left" in reason) is (limit is MemoryLimit.WHEN_SHORT)
