"""Leader election in ZooKeeper: a queue of ephemeral sequential nodes ("latches"); the owner of the first may lead.

The node of a process that died remains until its session expires. The next contender need not wait that long: it takes
over once the ports of all contenders before it refuse connections, if they accepted some earlier (see
``leadership.takeover``). If that conclusion is wrong, the epoch prevents any harm. A process that has registered its
address deletes the latches that earlier processes left under that address.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from emberkeep.adapters.zookeeper.access.signatures import NotAuthentic
from emberkeep.adapters.zookeeper.layout import LatchRecord, ZooKeeperLayout, decode_node, encode_node
from emberkeep.adapters.zookeeper.leader_locators import RETRY_PAUSE, read_leader
from emberkeep.adapters.zookeeper.paths import check_access, make_paths
from emberkeep.adapters.zookeeper.registration import AddressRegistration, AddressTaken
from emberkeep.adapters.zookeeper.session import SessionState, Znode, ZooKeeperSession
from emberkeep.base.errors import Absent, EmberkeepError, Fatal, UnknownOutcome
from emberkeep.leadership.model import Connected, Event, Granted, LeaderAddress, Lost, Revoked, Suspended
from emberkeep.leadership.takeover import PortProbe, TakeoverRule

PROBE_INTERVAL = 0.25  # seconds
_PROBE_TIMEOUT = 1.0
_PREFIX = "latch-"

log = structlog.get_logger(__name__)
_EVENTS: dict[SessionState, Event] = {
    SessionState.CONNECTED: Connected(),
    SessionState.SUSPENDED: Suspended(),
    SessionState.LOST: Lost(),
}

Prober = Callable[[str], Awaitable[PortProbe]]


async def probe(address: str) -> PortProbe:
    """Connect to ``address`` ("host:port") and return how the port answers within one second."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except ConnectionRefusedError:
        return PortProbe.REFUSED
    except (OSError, ValueError):  # TimeoutError is an OSError
        return PortProbe.SILENT
    writer.close()
    return PortProbe.ACCEPTED


@dataclass(frozen=True)
class _Contender:
    """A JobManager in the queue of candidates. ``life``: the id of its ZooKeeper session."""

    life: int
    address: str


class ZooKeeperElection:
    """Implements Election for the process at ``address`` ("host:port"), registered by ``registration``.

    ``settled`` is set once this process has a place in the queue, or could not get one for a reason that may last. An
    address that another process may still hold is not such a reason.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        layout: ZooKeeperLayout,
        address: str,
        *,
        registration: AddressRegistration | None = None,
        prober: Prober = probe,
    ) -> None:
        self.settled = asyncio.Event()
        self._session = session
        self._layout = layout
        self._address = address
        self._registration = registration
        self._prober = prober
        self._rule = TakeoverRule()
        self._tell: Callable[[Event], None] = lambda _: None
        self._holding: asyncio.Task[None] | None = None
        self._path = ""  # of the current latch
        self._leaving: set[asyncio.Task[None]] = set()
        self._failure: asyncio.Future[None] | None = None

    async def run(self, tell: Callable[[Event], None]) -> None:
        """Report session and latch events to ``tell`` until cancelled.

        Raises Fatal if this process cannot take part, for example because ZooKeeper denies access or another live
        process has its address.
        """
        self._tell = tell
        self._failure = asyncio.get_running_loop().create_future()
        forget = self._session.listen(lambda state: tell(_EVENTS[state]))
        try:
            await self._failure
        finally:
            forget()
            for task in (self._holding, *self._leaving):
                if task is not None:
                    task.cancel()

    def take(self, latch: int) -> None:
        if self._holding is not None:
            self._holding.cancel()
        self._path = ""
        self._holding = asyncio.create_task(self._hold(latch), name=f"latch {latch}")
        self._holding.add_done_callback(self._held)

    def give_up(self, latch: int) -> None:
        if self._holding is not None:
            self._holding.cancel()
            self._holding = None
        if self._path:
            task = asyncio.create_task(self._leave(self._path), name=f"leave latch {latch}")
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)
            self._path = ""

    async def newer(self, epoch: int) -> LeaderAddress:
        while True:
            change = asyncio.Event()
            try:
                leader = await read_leader(self._session, self._layout, change)
            except EmberkeepError:
                await asyncio.sleep(RETRY_PAUSE)
                continue
            if leader is not None and leader.epoch > epoch:
                return leader
            await change.wait()

    # --- one latch --------------------------------------------------------------------------------------------------

    def _held(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or self._failure is None or self._failure.done():
            return
        error = task.exception()
        if error is not None:
            self._failure.set_exception(error)

    async def _hold(self, latch: int) -> None:
        """Create the latch; report when it is this process's turn, and when the latch is gone.

        Retry while ZooKeeper is unavailable.
        """
        while True:
            try:
                self._path = await self._create()
                break
            except Fatal:
                raise
            except AddressTaken as error:
                log.info("cannot join the queue of leaders yet", reason=str(error))
                await asyncio.sleep(RETRY_PAUSE)
            except EmberkeepError as error:
                self.settled.set()
                log.info("cannot join the queue of leaders yet", reason=str(error))
                await asyncio.sleep(RETRY_PAUSE)
        self.settled.set()
        granted = False
        while True:
            change = asyncio.Event()
            try:
                before = await self._before(change)
            except Absent:
                self._tell(Revoked(latch))
                return
            except EmberkeepError:
                await asyncio.sleep(RETRY_PAUSE)
                continue
            if not granted and await self._is_turn(before, change):
                granted = True
                self._tell(Granted(latch))
            else:
                await change.wait()

    async def _create(self) -> str:
        """Create this process's latch and return its path.

        First delete latches left by an attempt of ours whose reply was lost, or by an earlier process at this address.
        """
        await make_paths(self._session, self._layout)
        await check_access(self._session, self._layout)
        if self._registration is not None:
            await self._registration.claim()
        for path, node in await self._latches():
            if node.owner == self._session.id or self._address_of(path, node) == self._address:
                with contextlib.suppress(Absent):
                    await self._session.delete(path)
        data = encode_node(LatchRecord(address=self._address))
        return await self._session.create(f"{self._layout.election}/{_PREFIX}", data, ephemeral=True, sequence=True)

    async def _latches(self, change: asyncio.Event | None = None) -> list[tuple[str, Znode]]:
        """Return path and node of all latches in order of arrival."""
        names = await self._session.children(self._layout.election, watch=change.set if change else None)
        found = []
        for name in names:
            path = f"{self._layout.election}/{name}"
            with contextlib.suppress(Absent):
                found.append((path, await self._session.get(path)))
        return found

    async def _before(self, change: asyncio.Event) -> list[_Contender]:
        """Return the contenders before this one. Raises Absent if its own latch is gone, RetryLater."""
        latches = await self._latches(change)
        paths = [path for path, _ in latches]
        if self._path not in paths:
            raise Absent(f"{self._path} is gone")
        before = latches[: paths.index(self._path)]
        return [_Contender(node.owner, self._address_of(path, node)) for path, node in before]

    def _address_of(self, path: str, node: Znode) -> str:
        """Return the address in a latch; empty if the latch cannot be read. Then its owner cannot be probed."""
        try:
            return decode_node(node.data, LatchRecord, where=path).address
        except (Fatal, NotAuthentic) as error:
            log.warning("cannot read a latch", reason=str(error))
            return ""

    async def _is_turn(self, before: list[_Contender], change: asyncio.Event) -> bool:
        """Probe the contenders before this one.

        True once the processes of all of them, if any, are proven gone. False if ``change`` is set before that.
        """
        clock = asyncio.get_running_loop().time
        while before and not change.is_set():
            answers = await asyncio.gather(*(self._look(each) for each in before))
            for each, answer in zip(before, answers, strict=True):
                self._rule.probed(each.life, answer, clock())
            if all(self._rule.is_gone(each.life, clock()) for each in before):
                log.info("the leader's process has ended: taking over", was=[each.address for each in before])
                self._rule.took_over(each.life for each in before)
                return True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PROBE_INTERVAL):
                    await change.wait()
        return not before

    async def _look(self, contender: _Contender) -> PortProbe:
        return await self._prober(contender.address) if contender.address else PortProbe.SILENT

    async def _leave(self, path: str) -> None:
        """Delete this process's latch, and retry until that succeeds or the session ends, which deletes it."""
        while self._session.state is not SessionState.LOST:
            try:
                await self._session.delete(path)
            except Absent:
                return
            except UnknownOutcome:
                continue
            except EmberkeepError as error:
                log.info("cannot leave the queue of leaders now, trying again", reason=str(error))
                await asyncio.sleep(RETRY_PAUSE)
            else:
                return
