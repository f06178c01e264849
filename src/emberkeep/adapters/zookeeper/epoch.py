"""The leader's epoch in ZooKeeper: a JobManager takes it to become leader, and can write until another takes the next.

The epoch number is the version of one node, so every transaction can begin with a check of that version.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import structlog

from emberkeep.adapters.job_store.unfinished_restore import unfinished
from emberkeep.adapters.zookeeper.access.signatures import NotAuthentic
from emberkeep.adapters.zookeeper.errors import TransactionRefused
from emberkeep.adapters.zookeeper.layout import LeaderRecord, ZooKeeperLayout, decode_node, encode_node
from emberkeep.adapters.zookeeper.paths import make_paths
from emberkeep.adapters.zookeeper.session import Transaction, Znode, ZooKeeperSession
from emberkeep.base.errors import Conflict, EmberkeepError, Fatal, NewerFormat, RetryLater

log = structlog.get_logger(__name__)


class LeaderEpoch:
    """The epoch of a ZooKeeperJobStore. ``record`` is published as the leader's address.

    ``elected`` says that the election has decided in favour of this process, so it may replace another leader. Besides
    the errors that they name, operations raise RetryLater (ZooKeeper cannot be reached), UnknownOutcome (no reply) and
    Fatal (access denied).
    """

    def __init__(
        self, session: ZooKeeperSession, layout: ZooKeeperLayout, record: LeaderRecord, *, elected: bool
    ) -> None:
        self._session = session
        self._layout = layout
        self._record = record
        self._elected = elected
        self._number: int | None = None
        self.lineage = ""  # identifies the epoch node by its creation; empty before the first ``take``
        self._taking = False
        self.overtook = False  # True if the previous leader's session had not ended when this one took the epoch

    @property
    def number(self) -> int:
        """The number of the epoch. Raises Conflict before this store has taken one and after it has released it."""
        if self._number is None:
            raise Conflict("this store is not open")
        return self._number

    def check_taken(self) -> None:
        """Raise Conflict unless the epoch is taken."""
        _ = self.number

    async def take(self, prepare: Callable[[int], Awaitable[None]] | None = None) -> int:
        """Take the next epoch and return its number.

        Call ``prepare`` with the previous epoch's number before writing, and raise what it raises. Raises Conflict if
        another session is published as leader and ``elected`` is false, if another JobManager wrote the epoch first, or
        if this object holds the epoch already. Raises RetryLater while a restore from a backup has not ended.
        """
        if self._number is not None or self._taking:
            raise Conflict("this store is open already")
        self._taking = True
        try:
            await make_paths(self._session, self._layout)
            if await self._session.exists(self._layout.restoring):
                raise unfinished(f"the node {self._layout.restoring} in ZooKeeper")
            self._number = await self._write(prepare)
            return self._number
        finally:
            self._taking = False

    async def _write(self, prepare: Callable[[int], Awaitable[None]] | None) -> int:
        layout, own = self._layout, self._record
        epoch = await self._session.get(layout.epoch)
        self.lineage = f"{epoch.created:x}-{epoch.created_ms:x}"
        before = await self._last_leader(epoch)
        leader = await self._session.find(layout.leader)
        is_published = leader is not None and leader.owner == self._session.id
        if before is not None and before.life == own.life and is_published:
            return epoch.version  # written by us earlier; only the reply was lost
        if leader is not None and not self._elected and leader.owner != self._session.id:
            other = _leader(leader, layout.leader)
            raise Conflict(
                f"another JobManager is the leader: {other.address if other else 'its address cannot be read'}"
            )
        if prepare is not None:
            await prepare(epoch.version)
        if self._session.settings.signer.signs:
            own = msgspec.structs.replace(own, epoch=epoch.version + 1)
        data = encode_node(own)

        def build(transaction: Transaction) -> None:
            transaction.set_data(layout.epoch, data, epoch.version)
            if leader is not None:
                transaction.delete(layout.leader)
            transaction.create(layout.leader, data, ephemeral=True)

        # Before the reply, which may be lost. What this object has overtaken once may live although it gave up since.
        self.overtook = self.overtook or (leader is not None and not is_published)
        try:
            stat, *_ = await self._session.commit("write the epoch", build)
        except TransactionRefused as refused:
            if refused.index == 0:
                raise Conflict("another JobManager is the leader: it wrote the epoch first") from None
            raise RetryLater(
                "the leader has changed in the meantime", hint="try again"
            ) from None  # the leader node changed
        return int(stat.version)

    async def _last_leader(self, epoch: Znode) -> LeaderRecord | None:
        """Return the leader's record in the epoch node; None if the node is empty, or its record is forged.

        The next epoch replaces a forged record. Raises Fatal if the owner's record below the same root node is not
        signed with this cluster's key either.
        """
        try:
            return _leader(epoch, self._layout.epoch)
        except NotAuthentic as error:
            owner = await self._session.find(self._layout.owner)
            if owner is None or not owner.stored or not owner.is_authentic:
                raise Fatal(error.message, hint=error.hint) from error
            log.error("another program has written the epoch; taking the next one", reason=str(error))
            return None

    async def confirm(self) -> None:
        """Check in ZooKeeper that the epoch is the newest. Raises Conflict if a newer leader has taken the next one."""
        await self.commit("confirm the epoch", lambda _: None)

    async def give_up(self) -> None:
        """Release the epoch and delete the leader's address. Raises no EmberkeepError.

        If the address cannot be deleted now, ZooKeeper deletes it when the session ends.
        """
        if self._number is None:
            return
        try:
            await self.commit("give up leadership", lambda transaction: transaction.delete(self._layout.leader))
        except EmberkeepError as error:
            log.info("the leader's address ends with its session", reason=str(error))
        self._number = None

    async def commit(self, what: str, build: Callable[[Transaction], object]) -> list[Any]:
        """Run a transaction that succeeds only while this epoch is the newest; return the results of its operations.

        Raises Conflict if a newer leader has written the epoch, TransactionRefused if another operation was impossible.
        The index of TransactionRefused counts the operations of ``build`` from 0, without the epoch check.
        """
        number = self.number

        def checked(transaction: Transaction) -> None:
            transaction.check(self._layout.epoch, number)
            build(transaction)

        try:
            results = await self._session.commit(what, checked)
        except TransactionRefused as refused:
            if refused.index == 0:
                raise Conflict(f"epoch {number} is over: a newer JobManager is the leader") from None
            raise TransactionRefused(refused.index - 1, refused.cause) from None
        return results[1:]


def _leader(node: Znode, where: str) -> LeaderRecord | None:
    """Return the leader record of a node; None if the node is empty or damaged. Raises NewerFormat, NotAuthentic.

    A damaged record does no harm: the epoch is the node's version, which is known in any case.
    """
    if not node.data:
        return None
    try:
        return decode_node(node.data, LeaderRecord, where=f"ZooKeeper, {where}")
    except NewerFormat:
        raise
    except Fatal as error:
        log.error("cannot read who was the last leader", reason=str(error))
        return None
