"""Reads the nodes of a job store in ZooKeeper while a leader writes to them.

ZooKeeper has no snapshot of several nodes, so the order of reading makes the copy consistent:

1. Upgrades come before jobs. An upgrade's phase is written before its jobs are, so the copy never has an upgrade that
   relies on a job which the copy lacks. It may have an earlier phase: the leader repeats that phase's step.
2. Handles come before attempts and pointers. A job without an attempt has ended in the meantime.
3. Results come after handles. The end of a job writes its result and deletes its handle in one transaction, so a job
   that ended while the nodes were read has both in the copy, and the result counts. No job is in neither.
4. What is left of damaged jobs, and idempotency keys, come last. Keys of jobs that the copy lacks are left out.

So the copy of each job is what its records were at one moment between the first and the last read; attempt and pointers
may be newer than the handle, which never changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from emberkeep.adapters.backups.node_records import (
    ATTEMPTS,
    CHECKPOINTS,
    JOBS,
    KEYS,
    RESULTS,
    UPGRADES,
    Node,
    NodesRecord,
    owner_of_key,
)
from emberkeep.adapters.zookeeper.layout import ZooKeeperLayout
from emberkeep.adapters.zookeeper.session import Znode, ZooKeeperSession
from emberkeep.base.errors import Absent, RetryLater

_DAMAGED = "damaged"
_SINGLE = ("blocklist", "tokens")


class NodesCopy:
    """Reads the nodes of one cluster. Raises RetryLater, NotAuthentic, Fatal."""

    def __init__(self, session: ZooKeeperSession, layout: ZooKeeperLayout) -> None:
        self._session = session
        self._layout = layout

    async def read(self) -> NodesRecord:
        """Return all records. Raises Absent if no leader has ever used this root."""
        owner = await self._session.find(self._layout.owner)
        epoch = await self._session.find(self._layout.epoch)
        if owner is None or epoch is None:
            raise Absent(
                f"ZooKeeper has no job store at {self._layout.base}",
                hint="check high-availability.zookeeper.* and high-availability.cluster-id",
            )
        single = [await self._session.find(f"{self._layout.base}/{name}") for name in _SINGLE]
        upgrades = await self._below(UPGRADES)
        handles = await self._below(JOBS)
        attempts = await self._below(ATTEMPTS)
        checkpoints = await self._below(CHECKPOINTS)
        results = await self._below(RESULTS)
        damaged = await self._damaged()
        keys = await self._below(KEYS)
        lasting = await self._session.find(self._layout.epoch)
        live = _names(handles) - _names(results)
        if live - _names(attempts):
            raise RetryLater("a job's records have changed while they were read", hint="try again")
        nodes = [
            *_nodes(self._layout, [owner, *(node for node in single if node is not None), *upgrades]),
            *_nodes(self._layout, (node for node in handles if _name(node) in live)),
            *_nodes(self._layout, (node for node in attempts if _name(node) in live)),
            *_nodes(self._layout, (node for node in checkpoints if _name(node) in live | self._kept(handles, node))),
            *_nodes(self._layout, [*results, *damaged]),
        ]
        known = live | _names(results)
        nodes += [node for node in _nodes(self._layout, keys) if owner_of_key(node) in known]
        return NodesRecord(epoch=(lasting or epoch).version, nodes=tuple(nodes))

    @staticmethod
    def _kept(handles: list[Znode], pointers: Znode) -> set[str]:
        """Return the job of pointers that were kept because they could not be read when their job ended."""
        return set() if _name(pointers) in _names(handles) else {_name(pointers)}

    async def addresses(self) -> tuple[str, ...]:
        """Return where JobManagers listen now."""
        return tuple(sorted({name.partition("~")[0] for name in await self._children(self._layout.addresses)}))

    async def _below(self, folder: str) -> list[Znode]:
        """Return the nodes of a folder in the order of their creation."""
        place = f"{self._layout.base}/{folder}"
        return await self._all(f"{place}/{name}" for name in await self._children(place))

    async def _damaged(self) -> list[Znode]:
        """Return what is left of damaged jobs: nodes, each before those below it."""
        top = await self._below(_DAMAGED)
        below = []
        for node in top:
            below += await self._all(f"{node.path}/{name}" for name in await self._children(node.path))
        return [*top, *below]

    async def _all(self, paths: Iterable[str]) -> list[Znode]:
        found = await asyncio.gather(*map(self._session.find, paths))
        return sorted((node for node in found if node is not None), key=lambda node: (node.created, node.path))

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._session.children(path)
        except Absent:
            return []


def _names(nodes: Iterable[Znode]) -> set[str]:
    return {_name(node) for node in nodes}


def _name(node: Znode) -> str:
    return node.path.rpartition("/")[2]


def _nodes(layout: ZooKeeperLayout, found: Iterable[Znode]) -> list[Node]:
    """Return the contents. Those of damaged jobs are kept for inspection, whoever wrote them."""
    return [
        Node(
            path=node.path.removeprefix(f"{layout.base}/"),
            data=node.unchecked if node.path.startswith(f"{layout.damaged}/") else node.data,
        )
        for node in found
    ]
