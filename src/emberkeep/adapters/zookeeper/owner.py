"""The ownership record of a cluster's root in ZooKeeper, and which storage it belongs with.

It is written at the first start, before the epoch. A root without it is new if nobody has taken an epoch there; else it
was made by a release that kept no such records.
"""

from __future__ import annotations

import contextlib
import secrets
import time

import msgspec
import structlog

from emberkeep.adapters.shared_storage.store_origin import StoreOrigin, kept_first, origin_of
from emberkeep.adapters.zookeeper.epoch import LeaderEpoch
from emberkeep.adapters.zookeeper.errors import TransactionRefused
from emberkeep.adapters.zookeeper.layout import ZooKeeperLayout
from emberkeep.adapters.zookeeper.session import ZooKeeperSession
from emberkeep.base.errors import Conflict, Damaged, RetryLater
from emberkeep.base.files.ownership import Owner, PlaceKind, decode_owner, encode_owner

_LOST = "lost"

log = structlog.get_logger(__name__)


class RootOwner:
    """Belongs to a ZooKeeperJobStore that leads. Raises, beside what it says, RetryLater, UnknownOutcome, Conflict (it
    leads no more), NewerFormat."""

    def __init__(self, session: ZooKeeperSession, layout: ZooKeeperLayout, epoch: LeaderEpoch) -> None:
        self._session = session
        self._layout = layout
        self._epoch = epoch

    async def prepare(self, epoch_before: int) -> None:
        """Write the record where there is none, before this JobManager takes an epoch and is one that has led."""
        if not await self._session.exists(self._layout.owner):
            with contextlib.suppress(Conflict):  # another JobManager of this release was faster
                await self._session.create(
                    self._layout.owner, encode_owner(self._drawn(kept_first(was_led=epoch_before > 0)))
                )

    def _drawn(self, kept: str) -> Owner:
        return Owner(
            cluster_id=self._layout.base.rpartition("/")[2],
            kind=PlaceKind.ZOOKEEPER,
            created_at_ms=time.time_ns() // 1_000_000,
            place_id=secrets.token_hex(8),
            belongs_to=kept,
        )

    async def origin(self) -> StoreOrigin:
        """What the root knows of itself; a damaged record is replaced."""
        try:
            owner = await self._find()
        except Damaged as error:
            log.error("the ownership record in ZooKeeper is replaced", reason=str(error))
            owner = self._drawn(_LOST)  # which storage belonged to it: a person has to say it
            await self._write("write the ownership record", owner)
        return origin_of(owner.place_id, owner.belongs_to)

    async def bind(self, kept: str) -> None:
        """Keep which storage belongs with the root."""
        owner = await self._find()
        if owner.belongs_to != kept:
            await self._write("bind the storage", msgspec.structs.replace(owner, belongs_to=kept))

    async def _find(self) -> Owner:
        path = self._layout.owner
        node = await self._session.find(path)
        if node is None:
            raise RetryLater(f"{path} is gone from ZooKeeper", hint="restart the JobManager")
        return decode_owner(node.data, where=f"ZooKeeper, {path}")

    async def _write(self, what: str, owner: Owner) -> None:
        path = self._layout.owner
        node = await self._session.get(path)
        data = encode_owner(owner, node.data)
        try:
            await self._epoch.commit(what, lambda each: each.set_data(path, data, node.version))
        except TransactionRefused as refused:
            raise RetryLater(f"{path} has changed meanwhile: {refused}", hint="try again") from None
