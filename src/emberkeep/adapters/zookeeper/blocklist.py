"""The blocklist in ZooKeeper: one node, which always exists."""

from __future__ import annotations

from kazoo.client import TransactionRequest

from emberkeep.adapters.zookeeper.layout import decode_node, encode_node
from emberkeep.adapters.zookeeper.nodes import StoreNodes
from emberkeep.base.errors import Fatal
from emberkeep.blocklist.model import Blocklist


class BlocklistNode:
    """Node of the blocklist. ``read`` and ``record`` are ``blocklist`` and ``record_blocklist`` of JobStore."""

    def __init__(self, nodes: StoreNodes) -> None:
        self._nodes = nodes

    async def read(self) -> Blocklist:
        self._nodes.epoch.check_taken()
        path = self._nodes.layout.blocklist
        node = await self._nodes.session.get(path)
        return decode_node(node.data, Blocklist, where=f"ZooKeeper, {path}") if node.data else Blocklist()

    async def record(self, blocklist: Blocklist) -> None:
        """Replace the blocklist. If the stored one cannot be read, keep a copy of it for inspection."""
        session, layout = self._nodes.session, self._nodes.layout
        node = await session.get(layout.blocklist)
        data = encode_node(blocklist, node.data)
        kept = layout.damaged_blocklist
        keeps = bool(node.data) and not _is_blocklist(node.data) and not await session.exists(kept)

        def build(transaction: TransactionRequest) -> None:
            transaction.set_data(layout.blocklist, data)
            if keeps:
                transaction.create(kept, node.data)

        await self._nodes.epoch.commit("record the blocklist", build)


def _is_blocklist(data: bytes) -> bool:
    try:
        decode_node(data, Blocklist, where="the blocklist")
    except Fatal:
        return False
    return True
