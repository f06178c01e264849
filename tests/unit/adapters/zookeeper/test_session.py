"""What the session makes of answers that ZooKeeper may give."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from emberkeep.adapters.zookeeper.access.settings import SessionSettings
from emberkeep.adapters.zookeeper.access.signatures import RecordSigner, signing_key
from emberkeep.adapters.zookeeper.session import SessionState, ZooKeeperSession


@pytest.mark.anyio
async def test_a_node_without_data_is_empty() -> None:
    """ZooKeeper tells null from empty, and `create PATH` in its shell makes such a node."""
    session = ZooKeeperSession(SessionSettings("zoo-1:2181", 1.0, 1.0, RecordSigner(signing_key("token"))))
    session.state = SessionState.CONNECTED

    async def answer(*_: object, **__: object) -> Any:
        return None, SimpleNamespace(version=0, czxid=1, ephemeralOwner=0, ctime=1)

    session._ask = answer  # type: ignore[method-assign]
    node = await session.get("/emberkeep/one/election/latch-1")
    assert (node.data, node.is_authentic, node.unchecked) == (b"", True, b"")
