"""The named tokens in ZooKeeper: one node, which always exists."""

from __future__ import annotations

from emberkeep.adapters.zookeeper.access.signatures import NotAuthentic
from emberkeep.adapters.zookeeper.layout import decode_node, encode_node
from emberkeep.adapters.zookeeper.nodes import StoreNodes
from emberkeep.adapters.zookeeper.session import Znode
from emberkeep.base.errors import Fatal
from emberkeep.identities.model import NamedTokens


class TokensNode:
    """Node of the tokens. Implements TokenStore."""

    def __init__(self, nodes: StoreNodes) -> None:
        self._nodes = nodes

    async def read(self) -> NamedTokens:
        self._nodes.epoch.check_taken()
        return self._decode(await self._nodes.session.get(self._nodes.layout.tokens))

    async def record(self, tokens: NamedTokens) -> None:
        node = await self._nodes.session.get(self._nodes.layout.tokens)
        self._decode(node)
        data = encode_node(tokens, node.data)
        await self._nodes.epoch.commit("record the tokens", lambda each: each.set_data(node.path, data))

    def _decode(self, node: Znode) -> NamedTokens:
        """Raise Fatal if the record is damaged, forged or of a newer release."""
        try:
            data = node.data
        except NotAuthentic as error:
            raise Fatal(error.message, hint=error.hint) from error
        return decode_node(data, NamedTokens, where=f"ZooKeeper, {node.path}") if data else NamedTokens()
