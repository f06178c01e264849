"""Blocking nodes of a simulated cluster, from the client's machine: an acknowledged block must hold (P7)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from emberkeep.base.errors import EmberkeepError, RetryLater, UnknownOutcome
from emberkeep.blocklist.model import (
    PERMANENT,
    BlockAction,
    BlockedNode,
    EvacuatedDrivers,
    Place,
    PlaceKind,
)
from emberkeep.jobmanager.views.blocklist import Blocking
from emberkeep.protocol.messages.root import Message
from emberkeep.protocol.messages.task_managers import AllocateSlot, StartDriver
from emberkeep.protocol.transport import RpcClient
from tests.support.simulator.history import History
from tests.support.simulator.machines import Machine, Process
from tests.support.simulator.network import SimNetwork

ReplyT = TypeVar("ReplyT", bound=Message)

CLIENT_TIMEOUT = 10.0
CLIENT_PAUSE = 1.0
LATE = 30.0  # seconds after which no message is in transit any more


class BlockCall(msgspec.Struct, frozen=True):
    entry: BlockedNode
    merge: bool = True


@dataclass
class SimBlocklist:
    """The client's blocks, and the check of property (i). ``machine`` runs the JobManager, whose clock counts."""

    network: SimNetwork
    history: History
    client: Process
    address: str
    machine: Machine
    promises: dict[str, int] = field(default_factory=dict)  # by node: until when the acknowledged block lasts
    _wanted: dict[str, int] = field(default_factory=dict)  # number of the client's newest request for each node
    _may_unblock: dict[str, float] = field(default_factory=dict)  # until when a sent request may unblock a node

    # --- the client ---------------------------------------------------------------------------------------------------

    def block(
        self,
        node: str,
        action: BlockAction,
        seconds: float | None = None,
        drivers: EvacuatedDrivers = EvacuatedDrivers.WAIT,
    ) -> None:
        """Request a block until it is acknowledged; a later request for the node replaces this one."""
        wish = self._wish(node)
        self.client.party.scope.spawn(self._block(node, action, seconds, drivers, wish), f"block {node}")

    def unblock(self, node: str) -> None:
        """Request an unblock until it is acknowledged."""
        self.promises.pop(node, None)
        wish = self._wish(node)
        self.client.party.scope.spawn(self._unblock(node, wish), f"unblock {node}")

    @property
    def asked(self) -> Set[str]:
        """The nodes about which the client has ever sent a request."""
        return self._wanted.keys()

    def _wish(self, node: str) -> int:
        self._wanted[node] = self._wanted.get(node, 0) + 1
        return self._wanted[node]

    async def _block(
        self, node: str, action: BlockAction, seconds: float | None, drivers: EvacuatedDrivers, wish: int
    ) -> None:
        while self._wanted[node] == wish:
            now = self.machine.clock.now_ms()
            end = PERMANENT if seconds is None else now + round(seconds * 1000)
            entry = BlockedNode(
                id=node, action=action, start_ms=now, end_ms=end, causes=("the simulation",), drivers=drivers
            )
            try:
                data = await self._exchange("block", msgspec.msgpack.encode(BlockCall(entry)))
            except EmberkeepError as error:
                self.history.add("client", f"block of {node}: {type(error).__name__}")
                await asyncio.sleep(CLIENT_PAUSE)
                continue
            if self._wanted[node] == wish:
                made = msgspec.msgpack.decode(data, type=Blocking)
                if self._may_unblock.get(node, 0.0) <= asyncio.get_running_loop().time():
                    self.promises[node] = made.entry.end_ms
                self.history.add("client", f"{node} is blocked: {action.value}")
                self.history.count("node blocked")
            return

    async def _unblock(self, node: str, wish: int) -> None:
        place = Place(PlaceKind.NODE, node)
        while self._wanted[node] == wish:
            # Without a reply it may take effect at any time; an answered request may still be delivered again.
            self._may_unblock[node] = float("inf")
            try:
                await self._exchange("unblock", msgspec.msgpack.encode(place))
            except UnknownOutcome:
                await asyncio.sleep(CLIENT_PAUSE)
            except RetryLater:
                self._may_unblock[node] = asyncio.get_running_loop().time() + LATE
                await asyncio.sleep(CLIENT_PAUSE)
            else:
                self._may_unblock[node] = asyncio.get_running_loop().time() + LATE
                self.history.add("client", f"{node} is not blocked any more")
                return

    async def _exchange(self, operation: str, data: bytes) -> bytes:
        return await self.network.exchange(self.client.party, self.address, operation, data, CLIENT_TIMEOUT)

    # --- what must hold -----------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Forget blocks that have timed out by the clock of the JobManager's machine."""
        now = self.machine.clock.now_ms()
        for node, end_ms in list(self.promises.items()):
            if end_ms <= now:
                del self.promises[node]

    def ordered(self, node: str, request: Message) -> None:
        """Check a request that the JobManager sends to a task manager on a node.

        A start that was requested before the block must not be repeated either: the JobManager abandons it.
        """
        self.tick()
        if self.promises and isinstance(request, AllocateSlot | StartDriver):
            self.history.judged("i")
        if node not in self.promises:
            return
        if isinstance(request, AllocateSlot):
            self.history.violate("i", f"a slot for {request.job_id[:8]} is allocated on {node}, which is blocked")
        elif isinstance(request, StartDriver):
            self.history.violate("i", f"a driver of {request.graph.job_id[:8]} is started on {node}, which is blocked")

    def left(self) -> list[str]:
        """Describe the nodes that are still blocked."""
        return [f"{node} is blocked" for node in self.promises]


@dataclass(frozen=True)
class WatchedRpc:
    """The RpcClient of a JobManager. It calls ``told`` with the address and each request before sending it."""

    inner: RpcClient
    told: Callable[[str, Message], None]

    async def call(self, address: str, request: Message, reply: type[ReplyT], *, timeout: float) -> ReplyT:  # noqa: ASYNC109
        """Report the request, then send it, as RpcClient defines."""
        self.told(address, request)
        return await self.inner.call(address, request, reply, timeout=timeout)
