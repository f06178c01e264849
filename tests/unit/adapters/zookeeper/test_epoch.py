"""What a new leader publishes and knows about the one before it, when its claim has to be repeated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
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
    own: set[str] = field(default_factory=set)  # ephemeral nodes of this session

    @property
    def settings(self) -> SimpleNamespace:
        return SimpleNamespace(signer=self.signer, creator_only=False)

    async def exists(self, path: str) -> bool:
        return path != LAYOUT.restoring

    async def find(self, path: str, *, watch: Callable[[], None] | None = None) -> Znode | None:
        node = await super().find(path, watch=watch)
        return node if node is None or path not in self.own else replace(node, owner=self.id)

    async def get(self, path: str) -> Znode:
        node = await self.find(path)
        assert node is not None
        return node

    def create(self, path: str, stored: bytes, *, ephemeral: bool) -> None:
        assert path not in self.nodes
        self.write(path, stored)
        if ephemeral:
            self.own.add(path)

    def delete(self, path: str, version: int) -> None:
        del self.nodes[path]
        self.own.discard(path)

    async def commit(self, what: str, build: Callable[[Transaction], None]) -> list[Any]:
        request = SimpleNamespace(
            create=self.create,
            set_data=lambda path, stored, version: self.write(path, stored),
            delete=self.delete,
            check=lambda path, version: None,
        )
        build(Transaction(cast(Any, request), self.signer))
        if self.lost:
            self.lost -= 1
            raise UnknownOutcome(what)
        return [SimpleNamespace(version=self.nodes[LAYOUT.epoch][1])] * 3


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


@pytest.mark.anyio
async def test_a_claim_that_is_repeated_after_it_was_given_up_publishes_the_leader_again() -> None:
    """Its storage could not be settled, for instance. The next leader has to see whose session may live."""
    tree = LosingTree()
    tree.lead("jm-1:1", 0)
    tree.write(LAYOUT.leader, OURS.signed(LAYOUT.leader, b"jm-1"))
    epoch = LeaderEpoch(tree.session, LAYOUT, LeaderRecord(address="jm-2:1", life="b"), elected=True)
    first = await epoch.take()
    await epoch.give_up()
    assert LAYOUT.leader not in tree.nodes
    assert await epoch.take() > first
    assert LAYOUT.leader in tree.nodes
    assert epoch.overtook
