"""The blocklist in ZooKeeper: one node, which always exists."""

from __future__ import annotations

from emberkeep.adapters.zookeeper.access.signatures import NotAuthentic
from emberkeep.adapters.zookeeper.layout import decode_node, encode_node
from emberkeep.adapters.zookeeper.nodes import StoreNodes
from emberkeep.adapters.zookeeper.session import Transaction, Znode
from emberkeep.base.errors import Damaged, Fatal, NewerFormat
from emberkeep.blocklist.model import Blocklist


class BlocklistNode:
    """Node of the blocklist. ``read`` and ``record`` are ``blocklist`` and ``record_blocklist`` of JobStore."""

    def __init__(self, nodes: StoreNodes) -> None:
        self._nodes = nodes

    async def read(self) -> Blocklist:
        self._nodes.epoch.check_taken()
        path = self._nodes.layout.blocklist
        node = await self._nodes.session.get(path)
        try:
            return decode_node(node.data, Blocklist, where=f"ZooKeeper, {path}") if node.data else Blocklist()
        except NotAuthentic as error:  # like a damaged one: task managers have copies
            raise Damaged(error.message, hint=error.hint) from error

    async def record(self, blocklist: Blocklist) -> None:
        """Replace the blocklist. If the stored one cannot be read, keep a copy of it for inspection."""
        session, layout = self._nodes.session, self._nodes.layout
        node = await session.get(layout.blocklist)
        is_sound = _is_blocklist(node)
        data = encode_node(blocklist, node.data if is_sound else None)
        kept = layout.damaged_blocklist
        keeps = bool(node.stored) and not is_sound and not await session.exists(kept)

        def build(transaction: Transaction) -> None:
            transaction.set_data(layout.blocklist, data)
            if keeps:
                transaction.create(kept, node.unchecked)

        await self._nodes.epoch.commit("record the blocklist", build)


def _is_blocklist(node: Znode) -> bool:
    try:
        decode_node(node.data, Blocklist, where="the blocklist")
    except NewerFormat:
        return True
    except (Fatal, NotAuthentic):
        return False
    return True
