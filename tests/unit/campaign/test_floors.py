"""The search for a floor, and the page that its figures are on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from campaign.floors import __main__ as command
from campaign.floors.figures import (
    DAEMONS,
    FIGURES,
    Floor,
    Floors,
    Resource,
    read_floors,
    render,
    with_section,
    write_floors,
)
from campaign.floors.search import smallest
from campaign.floors.trial import JOBS, Trial, Tried

PLACE = "before\n<!-- floors: written -->\nold\n<!-- floors end -->\nafter\n"


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


# --- what is published ------------------------------------------------------------------------------------------------


def _floors(*left_out: str) -> Floors:
    amounts = {Resource.DESCRIPTORS: 96, Resource.MEMORY: 40, Resource.DISK: 10_240}
    found = [
        Floor(daemon, resource, amount, is_enough=resource is not Resource.DISK)
        for daemon in DAEMONS
        for resource, amount in amounts.items()
        if resource not in left_out
    ]
    return Floors(system="Linux 7.1", python="3.14", jobs=2, minutes=9, floors=tuple(found))


def test_the_page_has_what_the_search_has_found_and_keeps_the_rest() -> None:
    made = with_section(PLACE, _floors())
    assert made == (
        "before\n<!-- floors: written -->\n\n"
        "One run on Linux 7.1 with Python 3.14, which took 9 minutes. Each daemon served 2 jobs at a time, "
        "without Spark, with:\n\n"
        "| daemon | descriptors | memory | disk |\n|---|---|---|---|\n"
        "| JobManager | 96 | 40 MiB | more than 10,240 KiB |\n| task manager | 96 | 40 MiB | more than 10,240 KiB |\n\n"
        "<!-- floors end -->\nafter\n"
    )
    assert with_section(made, _floors()) == made


@pytest.mark.parametrize("page", ["no place", PLACE + PLACE])
def test_a_page_without_one_place_is_an_error(page: str) -> None:
    with pytest.raises(ValueError, match="places for floors"):
        with_section(page, _floors())


def test_a_figure_of_its_own_is_no_table(tmp_path: Path) -> None:
    write_floors(tmp_path / "floors.json", _floors("disk"))
    with pytest.raises(ValueError, match="lacks a daemon or a resource"):
        read_floors(tmp_path / "floors.json")
    (tmp_path / "floors.json").write_bytes(b"{")
    with pytest.raises(ValueError, match="cannot be read"):
        read_floors(tmp_path / "floors.json")


def test_the_published_floors_are_on_the_page() -> None:
    for floor in read_floors(FIGURES).floors:
        assert f" {floor} |" in render()


def _works_from(amounts: dict[str, int]) -> object:
    async def attempt(trial: Trial) -> Tried:
        return Tried(trial, "" if trial.amount >= amounts[trial.resource] else "too little")

    return attempt


def test_a_whole_search_is_published_and_a_part_of_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "attempt", _works_from({"descriptors": 60, "memory": 50, "disk": 100_000}))
    target = tmp_path / "floors.json"
    asyncio.run(command.search(["jobmanager"], [*Resource], target))
    assert "| jobmanager | descriptors | 64 | too little |" in capsys.readouterr().out
    assert not target.exists()
    asyncio.run(command.search([*DAEMONS], [*Resource], target))
    found = read_floors(target)
    assert [str(floor) for floor in found.floors] == ["64", "52 MiB", "more than 10,240 KiB"] * 2
    assert found.jobs == JOBS
