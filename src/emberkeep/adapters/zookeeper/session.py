"""A ZooKeeper session beside the event loop: kazoo's threads talk, and everything they say hops over to the loop.

Operations are refused at once while there is no connection, instead of waiting in kazoo's queue for one: who cannot
reach ZooKeeper is to know it. Each has a deadline. After a session is over, kazoo makes a new one by itself.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from kazoo.client import KazooClient, KazooState, TransactionRequest
from kazoo.exceptions import KazooException, RolledBackError, RuntimeInconsistency
from kazoo.retry import KazooRetry
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from emberkeep.adapters.zookeeper.errors import Denied, TransactionRefused, no_answer, not_connected, translate
from emberkeep.base.configuration.options import (
    ZOOKEEPER_ACL,
    ZOOKEEPER_AUTHORIZATION,
    ZOOKEEPER_CONNECTION_TIMEOUT,
    ZOOKEEPER_QUORUM,
    ZOOKEEPER_SESSION_TIMEOUT,
)
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Absent, EmberkeepError, InvalidInput

_LONGEST_PAUSE = 1.0  # seconds between two tries to connect
_AT_ONCE = 100  # operations under way; kazoo takes a full wake-up pipe for a closed connection

log = structlog.get_logger(__name__)
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")  # below ours, so that it never mixes with a job's own output


class SessionState(enum.Enum):
    CONNECTED = KazooState.CONNECTED
    SUSPENDED = KazooState.SUSPENDED
    LOST = KazooState.LOST


@dataclass(frozen=True)
class SessionSettings:
    """Times in seconds. ``authorization``: "scheme:credentials"; ``creator_only``: nodes are for those who have it."""

    hosts: str
    session_timeout: float
    operation_timeout: float
    authorization: str = ""
    creator_only: bool = False


@dataclass(frozen=True)
class Node:
    """What a node held when it was read. ``created``: grows with each node made, anywhere in ZooKeeper.
    ``created_ms``: when it was made."""

    data: bytes
    version: int
    created: int
    owner: int  # the session of an ephemeral node, else 0
    created_ms: int


def session_settings(configuration: Configuration) -> SessionSettings:
    """Raises InvalidInput."""
    hosts = configuration[ZOOKEEPER_QUORUM]
    authorization = configuration[ZOOKEEPER_AUTHORIZATION]
    creator_only = configuration[ZOOKEEPER_ACL] == "creator"
    if not hosts:
        raise InvalidInput(
            "high-availability.type is zookeeper, but no server is named",
            field=ZOOKEEPER_QUORUM.key,
            hint=f"set {ZOOKEEPER_QUORUM.key} to host:port,host:port,…",
        )
    if creator_only and not authorization:
        raise InvalidInput(
            f"{ZOOKEEPER_ACL.key} is creator, but this cluster has no name to ZooKeeper",
            field=ZOOKEEPER_AUTHORIZATION.key,
            hint=f"set {ZOOKEEPER_AUTHORIZATION.key} to digest:user:password",
        )
    return SessionSettings(
        hosts=hosts,
        session_timeout=configuration[ZOOKEEPER_SESSION_TIMEOUT],
        operation_timeout=configuration[ZOOKEEPER_CONNECTION_TIMEOUT],
        authorization=authorization,
        creator_only=creator_only,
    )


class ZooKeeperSession:
    """One client. ``state`` is what was last heard of the connection."""

    def __init__(self, settings: SessionSettings) -> None:
        self.state = SessionState.LOST
        self.settings = settings
        self._listeners: list[Callable[[SessionState], None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._places = asyncio.Semaphore(_AT_ONCE)
        scheme, _, credentials = settings.authorization.partition(":")
        self._kazoo = KazooClient(
            hosts=settings.hosts,
            timeout=settings.session_timeout,
            auth_data=[(scheme, credentials)] if scheme else None,
            default_acl=CREATOR_ALL_ACL if settings.creator_only else OPEN_ACL_UNSAFE,
            logger=_kazoo_log,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=_LONGEST_PAUSE),
        )

    @property
    def hosts(self) -> str:
        return self.settings.hosts

    @property
    def id(self) -> int:
        """The present session's; 0 while not connected."""
        client_id = self._kazoo.client_id
        return int(client_id[0]) if client_id is not None else 0

    def start(self) -> None:
        """Begin to connect; needs a running loop. Whether and when that succeeds, listeners hear."""
        self._loop = asyncio.get_running_loop()
        self._kazoo.add_listener(self._hop)
        self._kazoo.start_async()

    async def close(self) -> None:
        """End the session: its ephemeral nodes go now."""
        if self._loop is None:
            return
        self._kazoo.remove_listener(self._hop)
        await asyncio.to_thread(self._close)
        self.state = SessionState.LOST

    def _close(self) -> None:
        self._kazoo.stop()
        self._kazoo.close()

    def listen(self, listener: Callable[[SessionState], None]) -> Callable[[], None]:
        """Hear each change of state, on the loop; also the present one when connected. Returns how to stop hearing."""
        self._listeners.append(listener)
        if self.state is not SessionState.LOST:
            listener(self.state)
        return lambda: self._listeners.remove(listener)

    async def connected(self) -> None:
        """Return once there is a connection."""
        connected = asyncio.Event()
        forget = self.listen(lambda state: connected.set() if state is SessionState.CONNECTED else None)
        try:
            await connected.wait()
        finally:
            forget()

    def _hop(self, state: str) -> None:
        """Called in one of kazoo's threads."""
        self._call_on_loop(self._changed, SessionState(state))

    def _call_on_loop(self, function: Callable[..., None], *arguments: object) -> None:
        assert self._loop is not None, "start() comes first"  # noqa: S101
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop is closed: nobody is left to tell
            return

    def _changed(self, state: SessionState) -> None:
        if state is self.state:
            return
        log.info("ZooKeeper session", state=state.value, hosts=self.hosts)
        self.state = state
        for listener in list(self._listeners):
            listener(state)

    # --- reading ----------------------------------------------------------------------------------------------------

    async def get(self, path: str, *, watch: Callable[[], None] | None = None) -> Node:
        """Raises Absent, RetryLater, Fatal. ``watch`` is called once, on the loop, when it changes or may have."""
        data, stat = await self._run(
            lambda: self._kazoo.get_async(path, watch=self._watcher(watch)), f"read {path}", writes=False
        )
        return Node(data, stat.version, stat.czxid, stat.ephemeralOwner, stat.ctime)

    async def find(self, path: str, *, watch: Callable[[], None] | None = None) -> Node | None:
        """Like ``get``, for a node that need not be there; then ``watch`` waits for it to come."""
        while True:
            stat = await self._run(
                lambda: self._kazoo.exists_async(path, watch=self._watcher(watch)), f"look for {path}", writes=False
            )
            if stat is None:
                return None
            try:
                return await self.get(path)
            except Absent:
                continue  # gone meanwhile

    async def exists(self, path: str) -> bool:
        """Raises RetryLater."""
        try:
            stat = await self._run(lambda: self._kazoo.exists_async(path), f"look for {path}", writes=False)
        except Denied:
            return True  # only what is there can be denied
        return stat is not None

    async def acls(self, path: str) -> list[ACL]:
        """Who may do what there. Raises as ``get``."""
        found, _ = await self._run(lambda: self._kazoo.get_acls_async(path), f"read who may use {path}", writes=False)
        return list(found)

    async def children(self, path: str, *, watch: Callable[[], None] | None = None) -> list[str]:
        """Names, sorted. Raises as ``get``."""
        names: list[str] = await self._run(
            lambda: self._kazoo.get_children_async(path, watch=self._watcher(watch)), f"list {path}", writes=False
        )
        return sorted(names)

    def _watcher(self, watch: Callable[[], None] | None) -> Callable[[Any], None] | None:
        if watch is None:
            return None
        return lambda _: self._call_on_loop(watch)

    # --- writing ----------------------------------------------------------------------------------------------------

    async def create(
        self,
        path: str,
        data: bytes,
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        acl: Sequence[ACL] | None = None,
    ) -> str:
        """Returns the path with its number, if ``sequence``. ``acl``: None for what is configured. Raises Conflict,
        Absent, RetryLater, UnknownOutcome."""
        made: str = await self._run(
            lambda: self._kazoo.create_async(path, data, acl=acl, ephemeral=ephemeral, sequence=sequence),
            f"create {path}",
            writes=True,
        )
        return made

    async def delete(self, path: str) -> None:
        """Raises Absent, RetryLater, UnknownOutcome."""
        await self._run(lambda: self._kazoo.delete_async(path), f"delete {path}", writes=True)

    async def commit(self, what: str, build: Callable[[TransactionRequest], None]) -> list[Any]:
        """One transaction; ``build`` adds its operations. Returns their results.

        Raises TransactionRefused (nothing has happened), RetryLater, UnknownOutcome, Fatal.
        """
        transaction = self._kazoo.transaction()
        build(transaction)
        results = await self._run(transaction.commit_async, what, writes=True)
        _check_results(results, what)
        return list(results)

    # --- the hop ----------------------------------------------------------------------------------------------------

    async def _run(self, start: Callable[[], Any], what: str, *, writes: bool) -> Any:
        async with self._places:
            return await self._ask(start, what, writes=writes)

    async def _ask(self, start: Callable[[], Any], what: str, *, writes: bool) -> Any:
        if self.state is not SessionState.CONNECTED:
            raise not_connected(self.hosts)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        operation = start()
        operation.rawlink(lambda result: self._call_on_loop(_settle, answer, result))
        try:
            async with asyncio.timeout(self.settings.operation_timeout):
                return await answer
        except TimeoutError:
            raise no_answer(what, writes=writes) from None
        except KazooException as error:
            raise translate(error, what, writes=writes) from error


def _settle(answer: asyncio.Future[Any], result: Any) -> None:
    if answer.done():
        return
    if result.exception is None:
        answer.set_result(result.value)
    else:
        answer.set_exception(result.exception)


def _check_results(results: Sequence[Any], what: str) -> None:
    """ZooKeeper marks the operations before the impossible one as rolled back, and those after it as not looked at."""
    for index, result in enumerate(results):
        if isinstance(result, KazooException) and not isinstance(result, RolledBackError | RuntimeInconsistency):
            error: EmberkeepError = translate(result, what, writes=False)
            raise TransactionRefused(index, error)
