"""What the browser's tab says of a node, a task manager and the leaders."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from emberkeep.blocklist.model import BlockAction, BlockedNode
from emberkeep.jobmanager.views.election import ElectionView, ZooKeeperConnection
from emberkeep.web.cluster.tabs import leaders_tab, node_tab
from emberkeep.web.node_filter import Standing
from emberkeep.web.tab import Tab
from tests.unit.rest.fake_gateway import FakeGateway
from tests.unit.rest.server import Site, running_site
from tests.unit.web.test_health import FULL, HERE, head

CONNECTED, SUSPENDED, LOST = ZooKeeperConnection


def test_a_full_disk_is_more_urgent_than_what_a_person_has_done() -> None:
    assert node_tab(Standing.AVAILABLE, [HERE]) == Tab(tone="running", word="")
    assert node_tab(Standing.EVACUATED, [HERE]) == Tab(tone="waiting", word="EVACUATED")
    assert node_tab(Standing.EVACUATED, [HERE, FULL]) == Tab(tone="failed", word="DISK NEARLY FULL")


@pytest.mark.parametrize(
    ("election", "tab"),
    [
        (None, Tab()),
        (ElectionView(servers="zk", connection=CONNECTED, queue=("a:1", "b:1")), Tab()),
        (ElectionView(servers="zk", connection=CONNECTED, queue=("a:1",)), Tab(tone="waiting", word="NO STANDBY")),
        (
            ElectionView(servers="zk", connection=SUSPENDED, queue=("a:1",)),
            Tab(tone="waiting", word="ZOOKEEPER SUSPENDED"),
        ),
        (ElectionView(servers="zk", connection=LOST, queue=("a:1",)), Tab(tone="failed", word="ZOOKEEPER LOST")),
    ],
)
def test_the_tab_of_the_leaders_says_whether_one_can_be_replaced(election: ElectionView | None, tab: Tab) -> None:
    assert leaders_tab(election, "a:1") == tab


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    gateway = FakeGateway()
    gateway.add_task_managers(HERE)
    async with running_site(tmp_path, gateway) as running:
        yield running


async def test_the_pages_say_it_in_the_title_and_as_an_icon(site: Site) -> None:
    node, task_manager = f"/nodes/{HERE.info.node_id}", f"/taskmanagers/{HERE.info.id}"
    assert await head(site, node) == ("Node node-2 · Emberkeep", "/static/icon-running.svg")
    assert await head(site, task_manager) == (f"{HERE.info.id} · Emberkeep", "/static/icon-running.svg")
    entry = BlockedNode(id="node-2", action=BlockAction.MARK_BLOCKED, start_ms=1, end_ms=2**50, causes=("noise",))
    await site.gateway.block(entry, merge=False)
    site.gateway.add_task_managers(msgspec.structs.replace(HERE, away=True))
    assert await head(site, node) == ("BLOCKED · Node node-2 · Emberkeep", "/static/icon-waiting.svg")
    assert await head(site, task_manager) == (f"AWAY · {HERE.info.id} · Emberkeep", "/static/icon-waiting.svg")
    site.gateway.election = ElectionView(servers="zk", connection=CONNECTED, queue=(site.gateway.address(),))
    assert await head(site, "/leadership") == ("NO STANDBY · Leadership · Emberkeep", "/static/icon-waiting.svg")
