"""Amounts of resources."""

from __future__ import annotations

import pytest

from emberkeep.slots.model import ResourceProfile

FOUR = ResourceProfile(cores=4, memory_mb=4000)
ONE = ResourceProfile(cores=1, memory_mb=1500)


def test_resources_are_added_and_subtracted_by_kind() -> None:
    assert FOUR.plus(ONE) == ResourceProfile(cores=5, memory_mb=5500)
    assert FOUR.minus(ONE) == ResourceProfile(cores=3, memory_mb=2500)


@pytest.mark.parametrize(
    ("needed", "fits"),
    [(ONE, True), (FOUR, True), (FOUR.plus(ONE), False), (ResourceProfile(cores=5, memory_mb=1), False)],
)
def test_an_amount_fits_if_each_kind_of_it_does(needed: ResourceProfile, fits: bool) -> None:
    assert needed.fits_in(FOUR) == fits
    assert not ResourceProfile(cores=1, memory_mb=4001).fits_in(FOUR)
