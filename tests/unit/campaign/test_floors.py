"""The search for a floor."""

from __future__ import annotations

import pytest

from campaign.floors.search import smallest


@pytest.mark.parametrize("floor", [9, 16, 17, 128, 500, 512])
async def test_the_smallest_multiple_that_works_is_found_in_few_tries(floor: int) -> None:
    tried: list[int] = []

    async def works(amount: int) -> bool:
        tried.append(amount)
        return amount >= floor

    found = await smallest(works, 8, 512, 8)

    assert found == -(-floor // 8) * 8
    assert len(tried) <= 8


async def test_nothing_is_found_if_nothing_works() -> None:
    async def works(amount: int) -> bool:
        return False

    assert await smallest(works, 8, 512, 8) is None
