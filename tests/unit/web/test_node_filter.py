"""The lists of nodes and task managers are narrowed by state and text, have pages, and their addresses say which."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from emberkeep.web.node_filter import NodeFilter, Standing
from tests.unit.rest.fake_gateway import FakeGateway, task_manager_view
from tests.unit.rest.server import Site, running_site

COUNT = 120


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    gateway = FakeGateway()
    gateway.add_task_managers(*(task_manager_view(number) for number in range(1, COUNT + 1)))
    away = gateway.managers[task_manager_view(7).info.id]
    gateway.add_task_managers(msgspec.structs.replace(away, away=True))
    async with running_site(tmp_path, gateway) as running:
        yield running


async def rows(site: Site, path: str) -> list[str]:
    """Return the task managers that a page lists."""
    answer = await site.get(path)
    assert answer.status == 200
    table = answer.body.decode().partition("<tbody>")[2].partition("</tbody>")[0]
    return [part.partition('"')[0] for part in table.split('href="/taskmanagers/')[1:]]


@pytest.mark.parametrize("path", ["/nodes", "/taskmanagers"])
async def test_every_entry_is_on_one_of_the_pages(site: Site, path: str) -> None:
    found = [*await rows(site, path), *await rows(site, f"{path}?page=2")]
    assert (len(found), len(set(found))) == (COUNT, COUNT)


@pytest.mark.parametrize("path", ["/nodes", "/taskmanagers"])
async def test_state_and_text_narrow_the_list(site: Site, path: str) -> None:
    assert await rows(site, f"{path}?state=away") == ["tm-127.0.0.7-1"]
    assert await rows(site, f"{path}?text=NODE-119") == ["tm-127.0.0.119-1"]
    assert await rows(site, f"{path}?text=tm-127.0.0.11&state=available&page=1") == [
        f"tm-127.0.0.{number}-1" for number in (11, *range(110, 120))
    ]
    assert "No such" in (await site.get(f"{path}?text=nothing")).body.decode()


@pytest.mark.parametrize("query", ["state=gone", "page=0", "page=x"])
async def test_what_makes_no_sense_is_refused(site: Site, query: str) -> None:
    assert (await site.get(f"/nodes?{query}")).status == 400


def test_an_address_keeps_what_it_does_not_change() -> None:
    wanted = NodeFilter("/nodes", Standing.AWAY, "a&b")
    assert NodeFilter("/nodes").address() == "/nodes"
    assert wanted.address(2) == "/nodes?state=away&text=a%26b&page=2"
    assert wanted.with_state(None).address() == "/nodes?text=a%26b"
