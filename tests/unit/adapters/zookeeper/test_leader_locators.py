"""What a process learns about the JobManagers from the queue in ZooKeeper."""

from __future__ import annotations

import asyncio

import pytest

from emberkeep.adapters.zookeeper.layout import LatchRecord, encode_node
from emberkeep.adapters.zookeeper.leader_locators import ZooKeeperLocator
from tests.unit.security.test_forged_records import LAYOUT, OURS, Tree, rounds


@pytest.mark.anyio
async def test_who_has_left_the_queue_is_still_known_but_stands_by_no_more() -> None:
    tree = Tree()
    latch = f"{LAYOUT.election}/latch-"
    for number in (1, 2):
        tree.write(f"{latch}000000000{number}", OURS.signed(latch, encode_node(LatchRecord(address=f"jm-{number}:1"))))
    locator = ZooKeeperLocator(tree.session, LAYOUT)
    running = asyncio.create_task(locator.run())
    await rounds()
    assert set(locator.queue) == {"jm-1:1", "jm-2:1"}
    del tree.nodes[f"{latch}0000000001"]
    tree.write(f"{latch}0000000002", tree.nodes[f"{latch}0000000002"][0])  # a change, which wakes who watches
    await rounds()
    assert list(locator.queue) == ["jm-2:1"]
    assert set(locator.news().job_managers) == {"jm-1:1", "jm-2:1"}
    running.cancel()
