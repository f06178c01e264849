"""Drivers that no JobManager reaches, in clusters of real actors on virtual time: they end, or go on, by the marks."""

import pytest

from tests.simulation.planted_worlds import cut_off_drivers, cut_off_drivers_of_long_leases, leaderless_drivers


@pytest.mark.req("HA-7")
@pytest.mark.parametrize("number", range(1, 21))
def test_a_driver_that_is_cut_off_commits_nothing_after_a_newer_attempt_has_begun_and_ends(number: int) -> None:
    assert cut_off_drivers(number) == ()


@pytest.mark.req("HA-7")
@pytest.mark.parametrize("number", range(1, 11))
def test_a_driver_goes_by_the_lease_of_the_leader_if_that_is_shorter(number: int) -> None:
    assert cut_off_drivers_of_long_leases(number) == ()


@pytest.mark.req("HA-9")
@pytest.mark.parametrize("number", range(1, 6))
def test_drivers_without_any_job_manager_go_on(number: int) -> None:
    assert leaderless_drivers(number) == ()
