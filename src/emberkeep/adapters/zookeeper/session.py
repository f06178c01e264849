"""A ZooKeeper session for the event loop: kazoo's threads do the I/O, and every result is handed over to the loop.

Without a connection an operation fails at once instead of waiting in kazoo's queue, so that callers learn that
ZooKeeper is unreachable. Each operation has a deadline. After a session ends, kazoo automatically opens a new one.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from kazoo.client import KazooClient, KazooState, TransactionRequest
from kazoo.exceptions import KazooException, RolledBackError, RuntimeInconsistency
from kazoo.retry import KazooRetry
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from emberkeep.adapters.logging_setup import library_logger
from emberkeep.adapters.zookeeper.access.encrypted_connections import handler_for
from emberkeep.adapters.zookeeper.access.settings import SessionSettings
from emberkeep.adapters.zookeeper.access.signatures import NotAuthentic, RecordSigner, content_of
from emberkeep.adapters.zookeeper.errors import Denied, TransactionRefused, no_answer, not_connected, translate
from emberkeep.base.errors import Absent, EmberkeepError

_LONGEST_PAUSE = 1.0  # seconds between two attempts to connect
_AT_ONCE = 100  # operations in flight; kazoo reports a full wake-up pipe as a closed connection

log = structlog.get_logger(__name__)


class SessionState(enum.Enum):
    CONNECTED = KazooState.CONNECTED
    SUSPENDED = KazooState.SUSPENDED
    LOST = KazooState.LOST


@dataclass(frozen=True)
class Znode:
    """A node as it was read, at ``path``. ``stored`` is checked by ``signer`` when the content is used.

    ``created``: id of the transaction that created it; nodes created later have larger ones. ``created_ms``: the
    creation time, in ms since 1970.
    """

    path: str
    stored: bytes
    version: int
    created: int
    owner: int  # session id of an ephemeral node, else 0
    created_ms: int
    signer: RecordSigner

    @property
    def data(self) -> bytes:
        """The content. Raises NotAuthentic if this cluster did not write it."""
        return self.signer.checked(self.path, self.stored)

    @property
    def is_authentic(self) -> bool:
        try:
            _ = self.data
        except NotAuthentic:
            return False
        return True

    @property
    def unchecked(self) -> bytes:
        """The content, whoever wrote it: only for keeping a copy."""
        return content_of(self.stored)


class Transaction:
    """The operations of one transaction. What it writes is signed."""

    def __init__(self, request: TransactionRequest, signer: RecordSigner) -> None:
        self._request = request
        self._signer = signer

    def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> None:
        self._request.create(path, self._signer.signed(path, data), ephemeral=ephemeral)

    def set_data(self, path: str, data: bytes, version: int = -1) -> None:
        self._request.set_data(path, self._signer.signed(path, data), version)

    def delete(self, path: str, version: int = -1) -> None:
        self._request.delete(path, version)

    def check(self, path: str, version: int) -> None:
        self._request.check(path, version)


class ZooKeeperSession:
    """One kazoo client. ``state`` is the last reported state of the connection."""

    def __init__(self, settings: SessionSettings) -> None:
        self.state = SessionState.LOST
        self.settings = settings
        self._listeners: list[Callable[[SessionState], None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._places = asyncio.Semaphore(_AT_ONCE)
        login = settings.login
        is_addauth = bool(login.authorization) and not login.sasl
        self._kazoo = KazooClient(
            hosts=settings.hosts,
            timeout=settings.session_timeout,
            auth_data=[login.parts] if is_addauth else None,
            sasl_options=login.sasl_options,
            handler=handler_for(settings),
            default_acl=CREATOR_ALL_ACL if settings.creator_only else OPEN_ACL_UNSAFE,
            logger=library_logger("kazoo"),
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=_LONGEST_PAUSE),
        )

    @property
    def hosts(self) -> str:
        return self.settings.hosts

    @property
    def id(self) -> int:
        """The current session's id; 0 while not connected."""
        client_id = self._kazoo.client_id
        return int(client_id[0]) if client_id is not None else 0

    def start(self) -> None:
        """Begin to connect, and return at once; needs a running loop. Listeners learn when the connection is made."""
        self._loop = asyncio.get_running_loop()
        self._kazoo.add_listener(self._hop)
        self._kazoo.start_async()

    async def close(self) -> None:
        """End the session, so that ZooKeeper deletes its ephemeral nodes now."""
        if self._loop is None:
            return
        self._kazoo.remove_listener(self._hop)
        await asyncio.to_thread(self._close)
        self.state = SessionState.LOST

    def _close(self) -> None:
        self._kazoo.stop()
        self._kazoo.close()

    def listen(self, listener: Callable[[SessionState], None]) -> Callable[[], None]:
        """Call ``listener`` on the loop at each change of state, and now unless the state is LOST.

        Returns a function that removes the listener.
        """
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
        """Hand a new state to the loop. kazoo calls this in one of its threads."""
        self._call_on_loop(self._changed, SessionState(state))

    def _call_on_loop(self, function: Callable[..., None], *arguments: object) -> None:
        assert self._loop is not None, "start() comes first"  # noqa: S101
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop is closed: there is no listener left
            return

    def _changed(self, state: SessionState) -> None:
        if state is self.state:
            return
        log.info("ZooKeeper session", state=state.value, hosts=self.hosts)
        self.state = state
        for listener in list(self._listeners):
            listener(state)

    # --- reading ----------------------------------------------------------------------------------------------------

    async def get(self, path: str) -> Znode:
        """Return the node at ``path``. Raises Absent, RetryLater, Fatal."""
        data, stat = await self._run(lambda: self._kazoo.get_async(path), f"read {path}", writes=False)
        # A node may have no data at all, which is not the same for ZooKeeper.
        return Znode(path, data or b"", stat.version, stat.czxid, stat.ephemeralOwner, stat.ctime, self.settings.signer)

    async def find(self, path: str, *, watch: Callable[[], None] | None = None) -> Znode | None:
        """Return the node at ``path``; None if it does not exist.

        ``watch`` is called when the node is next created, changed or deleted, or when the connection breaks. Raises
        RetryLater, Fatal.
        """
        while True:
            stat = await self._run(
                lambda: self._kazoo.exists_async(path, watch=self._watcher(watch)), f"look for {path}", writes=False
            )
            if stat is None:
                return None
            try:
                return await self.get(path)
            except Absent:
                continue  # deleted in the meantime

    async def exists(self, path: str) -> bool:
        """True if the node exists. Raises RetryLater, Fatal."""
        try:
            stat = await self._run(lambda: self._kazoo.exists_async(path), f"look for {path}", writes=False)
        except Denied:
            return True  # ZooKeeper denies access only to nodes that exist
        return stat is not None

    async def acls(self, path: str) -> list[ACL]:
        """Return the node's access rights. Raises what ``get`` raises."""
        found, _ = await self._run(lambda: self._kazoo.get_acls_async(path), f"read who may use {path}", writes=False)
        return list(found)

    async def children(self, path: str, *, watch: Callable[[], None] | None = None) -> list[str]:
        """Return the names of the node's children, sorted. Raises what ``get`` raises.

        ``watch`` is called at the next change of the names, or when the connection breaks.
        """
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
        """Create a node with signed ``data``, and return its path, which ends in a number if ``sequence``.

        ``acl``: None for the configured one. Raises Conflict (exists), Absent (no parent), RetryLater, UnknownOutcome,
        Fatal.
        """
        stored = self.settings.signer.signed(path, data)
        made: str = await self._run(
            lambda: self._kazoo.create_async(path, stored, acl=acl, ephemeral=ephemeral, sequence=sequence),
            f"create {path}",
            writes=True,
        )
        return made

    async def delete(self, path: str) -> None:
        """Delete a node. Raises Absent, Conflict (it has children), RetryLater, UnknownOutcome, Fatal."""
        await self._run(lambda: self._kazoo.delete_async(path), f"delete {path}", writes=True)

    async def set_acls(self, path: str, acl: Sequence[ACL]) -> None:
        """Replace the node's access rights. Raises Absent, RetryLater, UnknownOutcome, Fatal."""
        await self._run(lambda: self._kazoo.set_acls_async(path, acl), f"restrict who may use {path}", writes=True)

    async def commit(self, what: str, build: Callable[[Transaction], None]) -> list[Any]:
        """Run one transaction, to which ``build`` adds the operations, and return their results.

        Raises TransactionRefused (nothing has happened), RetryLater, UnknownOutcome, Fatal.
        """
        transaction = self._kazoo.transaction()
        build(Transaction(transaction, self.settings.signer))
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
    """Raise TransactionRefused for the first operation that was impossible, if any.

    ZooKeeper marks operations before it as rolled back, and those after it as not attempted: skip both.
    """
    for index, result in enumerate(results):
        if isinstance(result, KazooException) and not isinstance(result, RolledBackError | RuntimeInconsistency):
            error: EmberkeepError = translate(result, what, writes=False)
            raise TransactionRefused(index, error)
