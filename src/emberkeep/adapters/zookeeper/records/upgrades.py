"""The records of upgrades in ZooKeeper: one node each."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import structlog

from emberkeep.adapters.zookeeper.access.signatures import NotAuthentic
from emberkeep.adapters.zookeeper.errors import TransactionRefused
from emberkeep.adapters.zookeeper.layout import decode_node, encode_node
from emberkeep.adapters.zookeeper.nodes import StoreNodes
from emberkeep.adapters.zookeeper.session import Transaction, Znode
from emberkeep.base.errors import Fatal, NewerFormat, RetryLater
from emberkeep.jobs.upgrades.model import Upgrade

log = structlog.get_logger(__name__)


class UpgradeNodes:
    """Nodes of upgrades. Its methods are those of UpgradeStore."""

    def __init__(self, nodes: StoreNodes) -> None:
        self._nodes = nodes

    async def record(self, upgrade: Upgrade) -> None:
        path = self._nodes.layout.upgrade(upgrade.upgrade_id)
        node = await self._nodes.session.find(path)
        data = encode_node(upgrade, None if node is None else node.data)

        def build(transaction: Transaction) -> None:
            if node is None:
                transaction.create(path, data)
            else:
                transaction.set_data(path, data, node.version)

        try:
            await self._nodes.epoch.commit(f"record upgrade {upgrade.upgrade_id}", build)
        except TransactionRefused:
            raise RetryLater(f"the record of upgrade {upgrade.upgrade_id} has changed", hint="try again") from None

    async def read(self) -> list[Upgrade]:
        self._nodes.epoch.check_taken()
        names = await self._nodes.session.children(self._nodes.layout.upgrades)
        nodes = await self._nodes.read_all(map(self._nodes.layout.upgrade, names))
        found = [each for each in map(_readable, filter(None, nodes)) if each is not None]
        return sorted(found, key=lambda each: (each.began_ms, each.upgrade_id))

    async def remove(self, upgrade_ids: Iterable[str]) -> None:
        for path in map(self._nodes.layout.upgrade, upgrade_ids):
            if await self._nodes.session.find(path) is not None:
                try:
                    await self._nodes.epoch.commit(f"remove {path}", partial(_delete, path))
                except TransactionRefused:
                    continue  # removed in the meantime


def _delete(path: str, transaction: Transaction) -> None:
    transaction.delete(path)


def _readable(node: Znode) -> Upgrade | None:
    try:
        return decode_node(node.data, Upgrade, where=f"ZooKeeper, {node.path}")
    except NewerFormat:
        raise
    except (Fatal, NotAuthentic) as error:
        log.error("upgrade_unreadable", path=node.path, reason=str(error))
        return None
