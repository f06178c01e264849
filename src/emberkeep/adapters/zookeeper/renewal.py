"""Brings the records of another release, or of another token, under this process's rule for signatures.

A leader that was told to trust unsigned records signs them once, and trusts none from then on. One that was told to
keep records unsigned removes the signatures, so that processes of release 0.1.0 can read them.
"""

from __future__ import annotations

import asyncio

import structlog

from emberkeep.adapters.zookeeper.access.signatures import NotAuthentic, UnsignedRecords
from emberkeep.adapters.zookeeper.errors import TransactionRefused
from emberkeep.adapters.zookeeper.nodes import BATCH, StoreNodes
from emberkeep.adapters.zookeeper.session import Znode

log = structlog.get_logger(__name__)


async def renew_records(nodes: StoreNodes) -> None:
    """Rewrite the records that do not follow the configured rule. Raises what the job store's methods raise.

    The epoch and the nodes of living processes are left out: their owners write them.
    """
    signer = nodes.session.settings.signer
    if signer.unsigned is UnsignedRecords.REFUSE:
        return
    paths = await _paths(nodes)
    renewed = 0
    for start in range(0, len(paths), BATCH):
        found = await nodes.read_all(paths[start : start + BATCH])
        stale = [node for node in found if node is not None and _is_stale(node)]
        await asyncio.gather(*(_rewrite(nodes, node) for node in stale))
        renewed += len(stale)
    log.warning("trusted the records in ZooKeeper, whoever wrote them", rule=signer.unsigned.value, rewritten=renewed)
    if signer.unsigned is UnsignedRecords.SIGN:
        signer.refuse_unsigned()


async def _paths(nodes: StoreNodes) -> list[str]:
    layout = nodes.layout
    folders = (layout.jobs, layout.attempts, layout.checkpoints, layout.results, layout.keys, layout.upgrades)
    names = await asyncio.gather(*map(nodes.session.children, folders))
    below = [f"{folder}/{name}" for folder, each in zip(folders, names, strict=True) for name in each]
    return [layout.owner, layout.blocklist, layout.tokens, *below]


def _is_stale(node: Znode) -> bool:
    try:
        return node.signer.signed(node.path, node.data) != node.stored
    except NotAuthentic as error:
        log.error("a forged record stays as it is", reason=str(error))
        return False


async def _rewrite(nodes: StoreNodes, node: Znode) -> None:
    try:
        await nodes.epoch.commit(f"sign {node.path}", lambda each: each.set_data(node.path, node.data, node.version))
    except TransactionRefused:
        return  # deleted in the meantime
