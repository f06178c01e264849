"""Which nodes are checked before a cluster trusts them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from emberkeep.adapters.zookeeper.access.settings import ZooKeeperLogin
from emberkeep.adapters.zookeeper.access.signatures import UnsignedRecords
from emberkeep.adapters.zookeeper.layout import ZooKeeperLayout
from emberkeep.adapters.zookeeper.paths import check_access
from emberkeep.adapters.zookeeper.session import ZooKeeperSession
from emberkeep.base.errors import Fatal

LAYOUT = ZooKeeperLayout("emberkeep", "main")


class OneOpenNode:
    """A session in which one node is open to anyone."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.settings = SimpleNamespace(
            creator_only=True,
            login=ZooKeeperLogin("sasl:emberkeep:secret"),
            signer=SimpleNamespace(unsigned=UnsignedRecords.REFUSE),
        )

    async def children(self, folder: str) -> list[str]:
        return [self._path.removeprefix(f"{folder}/")] if self._path.startswith(f"{folder}/") else []

    async def acls(self, path: str) -> Any:
        return OPEN_ACL_UNSAFE if path == self._path else CREATOR_ALL_ACL


@pytest.mark.parametrize(
    "folder",
    [LAYOUT.jobs, LAYOUT.attempts, LAYOUT.checkpoints, LAYOUT.results, LAYOUT.keys, LAYOUT.damaged, LAYOUT.upgrades],
)
async def test_an_open_node_is_found_in_each_folder_of_records(folder: str) -> None:
    open_node = f"{folder}/{'a' * 32}"
    with pytest.raises(Fatal, match=f"{open_node} is open to world:anyone"):
        await check_access(cast("ZooKeeperSession", OneOpenNode(open_node)), LAYOUT)
