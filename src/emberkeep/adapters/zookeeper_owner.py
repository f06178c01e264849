"""The ownership record of a cluster's root in ZooKeeper, and which storage it belongs with.

It is written at the first start. A root without it is new, or was made by a release that kept no such records.
"""

from __future__ import annotations

import secrets
import time

import msgspec
import structlog

from emberkeep.adapters.cluster_storage import StoreOrigin
from emberkeep.adapters.zookeeper_epoch import LeaderEpoch
from emberkeep.adapters.zookeeper_errors import TransactionRefused
from emberkeep.adapters.zookeeper_layout import ZooKeeperLayout
from emberkeep.adapters.zookeeper_session import ZooKeeperSession
from emberkeep.base.errors import Damaged, RetryLater
from emberkeep.base.ownership import Owner, PlaceKind, decode_owner, encode_owner

_LOST = "lost"

log = structlog.get_logger(__name__)


class RootOwner:
    """Belongs to a ZooKeeperJobStore that leads. Raises, beside what it says, RetryLater, UnknownOutcome, Conflict (it
    leads no more), NewerFormat."""

    def __init__(self, session: ZooKeeperSession, layout: ZooKeeperLayout, epoch: LeaderEpoch) -> None:
        self._session = session
        self._layout = layout
        self._epoch = epoch

    async def origin(self) -> StoreOrigin:
        """What the root knows of itself; the record is written where there is none."""
        try:
            owner, is_damaged = await self._find(), False
        except Damaged as error:
            log.error("the ownership record in ZooKeeper is replaced", reason=str(error))
            owner, is_damaged = None, True
        if owner is None:
            owner = Owner(
                cluster_id=self._layout.base.rpartition("/")[2],
                kind=PlaceKind.ZOOKEEPER,
                created_at_ms=time.time_ns() // 1_000_000,
                place_id=secrets.token_hex(8),
                # Which storage belonged to it is lost: a person has to say it.
                belongs_to=_LOST if is_damaged else "",
            )
            await self._write("write the ownership record", owner, is_new=not is_damaged)
        return StoreOrigin(
            identity=owner.place_id,
            storage=owner.belongs_to,
            was_led=self._epoch.number > 1,
        )

    async def bind(self, place_id: str) -> None:
        """Keep which storage belongs with the root."""
        owner = await self._find()
        if owner is None:
            raise RetryLater(f"{self._layout.owner} is gone from ZooKeeper", hint="restart the JobManager")
        if owner.belongs_to != place_id:
            bound = msgspec.structs.replace(owner, belongs_to=place_id)
            await self._write("bind the storage", bound, is_new=False)

    async def _find(self) -> Owner | None:
        path = self._layout.owner
        node = await self._session.find(path)
        return None if node is None else decode_owner(node.data, where=f"ZooKeeper, {path}")

    async def _write(self, what: str, owner: Owner, *, is_new: bool) -> None:
        path, data = self._layout.owner, encode_owner(owner)
        try:
            await self._epoch.commit(
                what, lambda each: each.create(path, data) if is_new else each.set_data(path, data)
            )
        except TransactionRefused as refused:
            raise RetryLater(f"{path} has changed meanwhile: {refused}", hint="try again") from None
