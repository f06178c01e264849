"""Refusals in the audit log: the first of a minute, then numbers, whatever a stranger sends."""

from __future__ import annotations

import pytest

from emberkeep.audit.entry import Entry, Outcome
from emberkeep.audit.refusals import FIRST, INTERVAL, MOST_KINDS, SEVERAL, Refusals
from emberkeep.base.request_context import Login

pytestmark = pytest.mark.req("SEC-15")


def refusal(address: str = "10.0.0.1", identity: str = "", action: str = "GET /v1/jobs", status: int = 401) -> Entry:
    return Entry(
        identity=identity,
        role="",
        login=Login.NONE,
        address=address,
        action=action,
        status=status,
        outcome=Outcome.REFUSED,
    )


def admitted(refusals: Refusals, *entries: Entry, now: float = 0.0) -> int:
    return sum(refusals.admit(entry, now) is not None for entry in entries)


def test_the_first_ones_are_entries_and_the_others_are_counted() -> None:
    refusals = Refusals()
    assert admitted(refusals, *[refusal()] * 1000) == FIRST
    assert refusals.due(INTERVAL - 0.1) == []
    (counted,) = refusals.due(INTERVAL)
    assert (counted.count, counted.address, counted.action) == (1000 - FIRST, "10.0.0.1", "GET /v1/jobs")
    assert refusals.due(INTERVAL * 9) == []
    assert admitted(refusals, refusal(), now=INTERVAL * 9) == 1


def test_each_address_has_its_own_and_a_network_of_ipv6_has_one() -> None:
    refusals = Refusals()
    assert admitted(refusals, *[refusal(f"10.0.0.{n}") for n in range(20)]) == 20
    assert admitted(refusals, *[refusal(f"2001:db8::{n:x}") for n in range(20)]) == FIRST


def test_paths_that_a_stranger_makes_up_are_one_kind() -> None:
    refusals = Refusals()
    assert admitted(refusals, *[refusal(action=f"GET /{n}") for n in range(20)]) == FIRST
    (counted,) = refusals.due(INTERVAL)
    assert counted.action == SEVERAL


def test_what_an_identity_may_not_do_is_told_apart_by_action() -> None:
    refusals = Refusals()
    assert admitted(refusals, *[refusal(identity="eve", action=f"DELETE /{n}", status=403) for n in range(20)]) == 20


def test_a_flood_from_many_addresses_stays_bounded() -> None:
    refusals = Refusals()
    flood = [refusal(f"10.{n // 250}.{n % 250}.1") for n in range(5000)]
    assert admitted(refusals, *flood) == MOST_KINDS
    (counted,) = refusals.due(INTERVAL)
    assert (counted.count, counted.address) == (5000 - MOST_KINDS, SEVERAL)


def test_what_was_counted_is_told_when_the_log_closes() -> None:
    refusals = Refusals()
    admitted(refusals, *[refusal()] * 10)
    assert [entry.count for entry in refusals.due(1.0, closing=True)] == [10 - FIRST]
