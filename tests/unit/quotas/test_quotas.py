"""What one identity may use, and how many logins of one address may fail."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emberkeep.base.identity import CLUSTER, Identity, Role
from emberkeep.quotas.buckets import MOST_NAMES, Buckets
from emberkeep.quotas.quotas import BURST_SECONDS, FAILED_LOGINS, REQUESTS_KEY, UPLOADS_KEY, CallerLimits, Quotas

pytestmark = pytest.mark.req("SEC-16")

ALICE, BOB = Identity("alice", Role.SUBMITTER), Identity("bob", Role.SUBMITTER)


def passed(quotas: Quotas, identity: Identity, count: int, now: float = 0.0) -> int:
    return sum(quotas.request(identity, now, uploads=False) is None for _ in range(count))


def test_an_identity_has_its_rate_and_a_burst_and_takes_nothing_from_others() -> None:
    quotas = Quotas(CallerLimits(requests_per_second=5))
    assert passed(quotas, ALICE, 1000) == 5 * BURST_SECONDS
    assert passed(quotas, BOB, 10) == 10
    assert passed(quotas, ALICE, 1000, now=1.0) == 5
    excess = quotas.request(ALICE, 1.0, uploads=False)
    assert excess is not None
    assert (excess.key, 0 < excess.seconds <= 1) == (REQUESTS_KEY, True)
    assert passed(quotas, ALICE, 1, now=1.0 + excess.seconds + 1e-6) == 1


def test_the_tokens_of_the_cluster_and_limits_of_zero_have_no_quota() -> None:
    assert passed(Quotas(CallerLimits(requests_per_second=1)), CLUSTER, 1000) == 1000
    assert passed(Quotas(CallerLimits()), ALICE, 1000) == 1000


def test_after_a_large_upload_further_ones_wait_and_reading_does_not() -> None:
    quotas = Quotas(CallerLimits(upload_bytes_per_second=1000))
    assert quotas.request(ALICE, 0.0, uploads=True) is None
    quotas.received(ALICE, 30_000, 0.0)
    excess = quotas.request(ALICE, 0.0, uploads=True)
    assert excess is not None
    assert (excess.key, round(excess.seconds)) == (UPLOADS_KEY, 20)
    assert quotas.request(ALICE, 0.0, uploads=False) is None
    assert quotas.request(BOB, 0.0, uploads=True) is None
    assert quotas.request(ALICE, 20.1, uploads=True) is None


def test_failed_logins_are_counted_by_network() -> None:
    quotas = Quotas(CallerLimits())
    waits = [quotas.failed_login(f"2001:db8::{n:x}", 0.0) for n in range(FAILED_LOGINS + 5)]
    assert [bool(wait) for wait in waits] == [False] * FAILED_LOGINS + [True] * 5
    assert quotas.failed_login("10.0.0.1", 0.0) == 0
    assert quotas.failed_login("2001:db8::1", 3.1) == 0


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 50)), max_size=50))
def test_nobody_gets_more_than_the_rate_and_one_burst(uses: list[tuple[float, float]]) -> None:
    buckets, now, used, largest = Buckets(rate=3.0, burst=20.0), 0.0, 0.0, 0.0
    for pause, amount in uses:
        now += pause
        if not buckets.wait("a", now):
            buckets.use("a", amount, now)
            used, largest = used + amount, max(largest, amount)
    assert used <= 20.0 + 3.0 * now + largest + 1e-6


@given(st.floats(0.1, 1000), st.floats(1, 1000), st.floats(0, 1e6))
def test_whoever_waits_as_told_may_use_it(rate: float, burst: float, amount: float) -> None:
    buckets = Buckets(rate, burst)
    buckets.use("a", amount, 0.0)
    wait = buckets.wait("a", 0.0)
    assert buckets.wait("a", wait * (1 + 1e-9) + 1e-6) == 0


def test_names_that_are_remembered_are_bounded() -> None:
    buckets = Buckets(1.0, 1.0)
    for number in range(MOST_NAMES + 10):
        buckets.use(str(number), 5, 0.0)
    assert buckets.wait("0", 0.0) == 0
    assert buckets.wait(str(MOST_NAMES + 9), 0.0) > 0
    assert len(buckets._levels) == MOST_NAMES
