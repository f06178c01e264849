"""The epoch in ZooKeeper: a JobManager takes it to lead, and writes only for as long as nobody has taken the next one.

The epoch's number is the version of one node, so that a check of that version can begin every transaction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from kazoo.client import TransactionRequest

from emberkeep.adapters.zookeeper.errors import TransactionRefused
from emberkeep.adapters.zookeeper.layout import LeaderRecord, ZooKeeperLayout, decode_node, encode_node
from emberkeep.adapters.zookeeper.paths import make_paths
from emberkeep.adapters.zookeeper.session import Node, ZooKeeperSession
from emberkeep.base.errors import Conflict, EmberkeepError, Fatal, NewerFormat, RetryLater

log = structlog.get_logger(__name__)


class LeaderEpoch:
    """Belongs to a ZooKeeperJobStore. ``record`` is published as the leader's.

    Every operation raises, beside what it says itself, RetryLater (ZooKeeper cannot be reached), UnknownOutcome (it did
    not answer), Fatal (it denies).
    """

    def __init__(
        self, session: ZooKeeperSession, layout: ZooKeeperLayout, record: LeaderRecord, *, elected: bool
    ) -> None:
        self._session = session
        self._layout = layout
        self._record = record
        self._elected = elected
        self._number: int | None = None
        self.lineage = ""  # when the node of the epoch was made, once it is taken
        self._taking = False
        self.overtook = False  # a leader whose session was not over

    @property
    def number(self) -> int:
        """Raises Conflict before it is taken, and once it is given up."""
        if self._number is None:
            raise Conflict("this store is not open")
        return self._number

    def check_taken(self) -> None:
        """Raises Conflict."""
        _ = self.number

    async def take(self, prepare: Callable[[int], Awaitable[None]] | None = None) -> int:
        """``prepare``: called with the epoch before, as long as it is not taken. Raises what that does, and Conflict:
        another session is published and the election has not decided against it, another JobManager was faster, or it
        is taken already."""
        if self._number is not None or self._taking:
            raise Conflict("this store is open already: it leads")
        self._taking = True
        try:
            await make_paths(self._session, self._layout)
            self._number = await self._write(prepare)
            return self._number
        finally:
            self._taking = False

    async def _write(self, prepare: Callable[[int], Awaitable[None]] | None) -> int:
        layout, own = self._layout, self._record
        epoch = await self._session.get(layout.epoch)
        self.lineage = f"{epoch.created:x}-{epoch.created_ms:x}"
        if _leader(epoch, layout.epoch) == own:
            return epoch.version  # a write whose answer got lost
        leader = await self._session.find(layout.leader)
        if leader is not None and not self._elected and leader.owner != self._session.id:
            other = _leader(leader, layout.leader)
            raise Conflict(f"another JobManager leads: {other.address if other else 'its address cannot be read'}")
        if prepare is not None:
            await prepare(epoch.version)
        data = encode_node(own)

        def build(transaction: TransactionRequest) -> None:
            transaction.set_data(layout.epoch, data, epoch.version)
            if leader is not None:
                transaction.delete(layout.leader)
            transaction.create(layout.leader, data, ephemeral=True)

        try:
            stat, *_ = await self._session.commit("write the epoch", build)
        except TransactionRefused as refused:
            if refused.index == 0:
                raise Conflict("another JobManager leads: it was first to write the epoch") from None
            raise RetryLater("the leader has changed meanwhile", hint="try again") from None  # the leader node went
        self.overtook = leader is not None and leader.owner != self._session.id
        return int(stat.version)

    async def confirm(self) -> None:
        """Raises Conflict when it is over."""
        await self.commit("confirm the epoch", lambda _: None)

    async def give_up(self) -> None:
        """Raises nothing: what cannot be taken back goes with the session."""
        if self._number is None:
            return
        try:
            await self.commit("give up leadership", lambda transaction: transaction.delete(self._layout.leader))
        except EmberkeepError as error:
            log.info("the leader's address goes with its session", reason=str(error))
        self._number = None

    async def commit(self, what: str, build: Callable[[TransactionRequest], object]) -> list[Any]:
        """A transaction that is refused (Conflict) when a newer leader has written the epoch.

        Raises TransactionRefused when another operation of it was not possible; its index counts from 0 without the
        check.
        """
        number = self.number

        def checked(transaction: TransactionRequest) -> None:
            transaction.check(self._layout.epoch, number)
            build(transaction)

        try:
            results = await self._session.commit(what, checked)
        except TransactionRefused as refused:
            if refused.index == 0:
                raise Conflict(f"epoch {number} is over: a newer JobManager leads") from None
            raise TransactionRefused(refused.index - 1, refused.cause) from None
        return results[1:]


def _leader(node: Node, where: str) -> LeaderRecord | None:
    """None: there is none, or its record cannot be read; the epoch is the node's version, and that can. Raises
    NewerFormat."""
    if not node.data:
        return None
    try:
        return decode_node(node.data, LeaderRecord, where=f"ZooKeeper, {where}")
    except NewerFormat:
        raise
    except Fatal as error:
        log.error("who led last cannot be read", reason=str(error))
        return None
