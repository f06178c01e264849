"""What a new leader knows about the one before it, when ZooKeeper's reply to its claim is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from emberkeep.adapters.zookeeper.epoch import LeaderEpoch
from emberkeep.adapters.zookeeper.layout import LeaderRecord
from emberkeep.adapters.zookeeper.session import Transaction, Znode
from emberkeep.base.errors import UnknownOutcome
from tests.unit.security.test_forged_records import LAYOUT, OURS, Tree


@dataclass
class LosingTree(Tree):
    """Writes also; the replies to its first ``lost`` transactions are lost."""

    lost: int = 0
    id: int = 7

    @property
    def settings(self) -> SimpleNamespace:
        return SimpleNamespace(signer=self.signer, creator_only=False)

    async def exists(self, path: str) -> bool:
        return path != LAYOUT.restoring

    async def get(self, path: str) -> Znode:
        node = await self.find(path)
        assert node is not None
        return node

    async def commit(self, what: str, build: Callable[[Transaction], None]) -> list[Any]:
        request = SimpleNamespace(
            create=lambda path, stored, ephemeral: self.write(path, stored),
            set_data=lambda path, stored, version: self.write(path, stored),
            delete=lambda path, version: self.nodes.pop(path),
        )
        build(Transaction(cast(Any, request), self.signer))
        if self.lost:
            self.lost -= 1
            raise UnknownOutcome(what)
        return [SimpleNamespace(version=self.nodes[LAYOUT.epoch][1])]


@pytest.mark.anyio
@pytest.mark.parametrize("lost", [0, 1])
async def test_that_the_previous_leader_is_overtaken_is_known_after_a_lost_reply_too(lost: int) -> None:
    """Its session, 0, has not ended. It may still delete BLOBs, so the new leader waits before it relies on any."""
    tree = LosingTree(lost=lost)
    tree.lead("jm-1:1", 0)
    tree.write(LAYOUT.leader, OURS.signed(LAYOUT.leader, b"jm-1"))
    epoch = LeaderEpoch(tree.session, LAYOUT, LeaderRecord(address="jm-2:1", life="b"), elected=True)
    for _ in range(lost):
        with pytest.raises(UnknownOutcome):
            await epoch.take()
    assert await epoch.take() == 1
    assert epoch.overtook
