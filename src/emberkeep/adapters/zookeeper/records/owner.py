"""The ownership record of a cluster's root in ZooKeeper. It also names the storage that belongs to the root.

The first start writes it, before the epoch. A root without a record is new if no epoch was taken there. Otherwise an
older release made it, which kept no such records.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time

import msgspec
import structlog

from emberkeep.adapters.shared_storage.cluster import ClusterStorage
from emberkeep.adapters.shared_storage.store_origin import StoreOrigin, kept_after, kept_first, origin_of
from emberkeep.adapters.zookeeper.errors import TransactionRefused
from emberkeep.adapters.zookeeper.nodes import StoreNodes
from emberkeep.base.errors import Conflict, Damaged, RetryLater
from emberkeep.base.files.ownership import OwnedPlaceKind, Owner, decode_owner, encode_owner

_LOST = "lost"

log = structlog.get_logger(__name__)


class RootOwner:
    """The ownership record of a ZooKeeperJobStore's root, changed by the leader only.

    Methods raise RetryLater, UnknownOutcome, Conflict (this JobManager is no longer the leader), NewerFormat.
    """

    def __init__(self, nodes: StoreNodes) -> None:
        self._session = nodes.session
        self._layout = nodes.layout
        self._epoch = nodes.epoch

    async def prepare(self, epoch_before: int) -> None:
        """Write the record if it does not exist. Call this before this JobManager takes its epoch.

        ``epoch_before``: the previous epoch. If it is above 0, an older release was leader here.
        """
        if not await self._session.exists(self._layout.owner):
            with contextlib.suppress(Conflict):  # another JobManager of this release was faster
                await self._session.create(
                    self._layout.owner, encode_owner(self._drawn(kept_first(was_led=epoch_before > 0)))
                )

    def _drawn(self, kept: str) -> Owner:
        return Owner(
            cluster_id=self._layout.base.rpartition("/")[2],
            kind=OwnedPlaceKind.ZOOKEEPER,
            created_at_ms=time.time_ns() // 1_000_000,
            place_id=secrets.token_hex(8),
            belongs_to=kept,
        )

    async def settle(self, storage: ClusterStorage) -> None:
        """Settle the storage for this root, and record which one belongs to it. Raises what ``settle`` raises, too."""
        origin = await self.origin()
        await self._bind(kept_after(origin, await asyncio.to_thread(storage.settle, origin)))

    async def adopt(self, storage: ClusterStorage) -> None:
        """Adopt the storage for this root. Raises what ``ClusterStorage.adopt`` raises, too."""
        await self._bind(await asyncio.to_thread(storage.adopt))

    async def origin(self) -> StoreOrigin:
        """Return the root's identity and the storage that it was used with. Replace a damaged record."""
        try:
            owner = await self._find()
        except Damaged as error:
            log.error("replacing the ownership record in ZooKeeper", reason=str(error))
            owner = self._drawn(_LOST)  # an operator must decide which storage belonged to it
            await self._write("write the ownership record", owner)
        return origin_of(owner.place_id, owner.belongs_to)

    async def _bind(self, kept: str) -> None:
        """Record which storage belongs to the root."""
        owner = await self._find()
        if owner.belongs_to != kept:
            await self._write("bind the storage", msgspec.structs.replace(owner, belongs_to=kept))

    async def _find(self) -> Owner:
        path = self._layout.owner
        node = await self._session.find(path)
        if node is None:
            raise RetryLater(f"{path} no longer exists in ZooKeeper", hint="restart the JobManager")
        return decode_owner(node.data, where=f"ZooKeeper, {path}")

    async def _write(self, what: str, owner: Owner) -> None:
        path = self._layout.owner
        node = await self._session.get(path)
        data = encode_owner(owner, node.data)
        try:
            await self._epoch.commit(what, lambda each: each.set_data(path, data, node.version))
        except TransactionRefused as refused:
            raise RetryLater(f"{path} has changed in the meantime: {refused}", hint="try again") from None
