"""Transfers BLOBs from and to a BLOB server over HTTP, in threads, so that the event loop does not block."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import ssl
from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec
import structlog

from emberkeep.adapters.blobs.files_copy import cannot_store
from emberkeep.adapters.blobs.wire import (
    SILENCE_SECONDS,
    BrokenAnswer,
    ConnectionPool,
    ResponseHead,
    TransferAbort,
    TransferRequest,
    Write,
)
from emberkeep.adapters.blocking.threads import WorkThreads, ended
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Absent, Conflict, EmberkeepError, Fatal, InvalidInput, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.blobs.attempt_fences import NO_ATTEMPT
from emberkeep.blobs.errors import CannotStore, DamagedBlob
from emberkeep.blobs.model import BlobKey, transient
from emberkeep.protocol.rest import API_PREFIX
from emberkeep.protocol.rest_blobs import ATTEMPT_HEADER, BLOB_PEER_HEADER

log = structlog.get_logger(__name__)

THREADS = 8  # concurrent transfers
_BUSY_SECONDS = 30.0  # total wait after which a download from a busy server fails
_LONGEST_WAIT = 5.0  # seconds between two attempts at a busy server
_PROBLEM_BYTES = 64 * 1024
_REDIRECT = re.compile(r"(https?)://([^/?#@\s]+)(/[^?#\s]*)")

ResultT = TypeVar("ResultT")


class _Busy(RetryLater):
    """The server is busy. ``wait``: seconds until the next attempt."""

    def __init__(self, message: str, wait: float) -> None:
        super().__init__(message)
        self.wait = wait


class _Problem(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a problem document that we pass on."""

    detail: str = ""
    hint: str | None = None


class BlobThreads:
    """Threads and connections for the transfers of one process. Belongs to the event loop that uses it."""

    def __init__(
        self,
        token: str,
        *,
        tls: ssl.SSLContext | None = None,
        silence: float = SILENCE_SECONDS,
        thread_name: str = "emberkeep-blob-transfer",
    ) -> None:
        """``tls`` verifies each server before anything is sent; None: the servers do not encrypt."""
        self.connections = ConnectionPool(token, tls=tls, silence=silence)
        self._threads = WorkThreads(THREADS, thread_name)
        self._running: set[TransferAbort] = set()
        self._closed = False

    async def run(self, work: Callable[[TransferAbort], ResultT]) -> ResultT:
        """Run ``work`` in a thread. If the caller is cancelled, abort ``work`` and wait until it has ended.

        Raises RetryLater after ``close``.
        """
        if self._closed:
            raise _closed()
        abort = TransferAbort()
        future = self._threads.start(lambda: work(abort))
        self._running.add(abort)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            abort.set()
            if not self._threads.forget(future):
                await ended(future)
            raise
        finally:
            self._running.discard(abort)

    def close(self) -> None:
        """Abort all transfers; their callers get RetryLater. Idempotent."""
        self._closed = True
        for future in self._threads.close():
            future.set_exception(_closed())
        for abort in list(self._running):
            abort.set()
        self.connections.close()


def _closed() -> RetryLater:
    return RetryLater("this process is shutting down and transfers no more BLOBs")


class HttpBlobSource:
    """Implements ``blobs.ports.BlobSource``: the BLOB server, and the peers to which it redirects us."""

    def __init__(
        self, threads: BlobThreads, server: Callable[[], str | None], *, max_size: int, own_address: str | None = None
    ) -> None:
        """Open no connection before the first transfer.

        - ``server``: returns the server's current address; None if none is known.
        - ``max_size``: the largest size of a BLOB, in bytes.
        - ``own_address``: where this process serves its BLOBs to peers; None if it serves none.
        """
        self._threads = threads
        self._server = server
        self._max_size = max_size
        self._own_address = own_address
        self._from_peers: set[tuple[JobId, BlobKey]] = set()
        self._offers: set[asyncio.Task[None]] = set()

    @property
    def location(self) -> str:
        return f"BLOB server {self._server() or '(unknown)'}"

    async def download(self, owner: JobId, key: BlobKey, destination: Path) -> str:
        """See BlobSource. Check the SHA-256 of the content, and return that SHA-256."""
        busy = 0.0
        self._from_peers.discard((owner, key))
        while True:
            server = self._server()
            if server is None:
                raise RetryLater("no BLOB server is known now")
            transfer = _Download(self._threads.connections, server, owner, key, destination, self._max_size)
            try:
                by_peer = await self._threads.run(
                    lambda abort, transfer=transfer: transfer.run(abort, self._own_address)  # type: ignore[misc]
                )
            except _Busy as error:
                if busy >= _BUSY_SECONDS:
                    raise
                busy += error.wait
                await asyncio.sleep(error.wait)
            else:
                if by_peer:
                    self._from_peers.add((owner, key))
                return key.sha256

    def obtained(self, owner: JobId, key: BlobKey) -> None:
        """See BlobSource. If a peer sent the BLOB, tell the server, which knows only of BLOBs that it sent itself."""
        if (owner, key) in self._from_peers and self._own_address is not None:
            self._from_peers.discard((owner, key))
            offer = asyncio.create_task(self._offer(owner, key, self._own_address), name=f"blob-offer {key}")
            self._offers.add(offer)
            offer.add_done_callback(self._offers.discard)

    async def _offer(self, owner: JobId, key: BlobKey, own_address: str) -> None:
        request = TransferRequest("POST", f"{blob_path(owner, key)}/ready", {BLOB_PEER_HEADER: own_address})
        try:
            await self._threads.run(lambda abort: _send(self._threads.connections, abort, self._server(), request))
        except EmberkeepError as error:
            log.debug("cannot offer this cache to others", key=str(key), reason=error.message)


class _Download:
    """The download of one BLOB; runs in a thread."""

    def __init__(
        self, connections: ConnectionPool, server: str, owner: JobId, key: BlobKey, destination: Path, max_size: int
    ) -> None:
        self._connections = connections
        self._server = server
        self._owner = owner
        self._key = key
        self._path = blob_path(owner, key)
        self._destination = destination
        self._max_size = max_size

    def run(self, abort: TransferAbort, own_address: str | None) -> bool:
        """Fetch the BLOB from the server, or from the peer that the server names; if the peer fails, from the server.

        Return True if a peer sent the BLOB (BLOB-22).
        """
        headers = {} if own_address is None else {BLOB_PEER_HEADER: own_address}
        peer = self._get(abort, self._server, self._path, headers)
        if peer is None:
            return False
        try:
            if peer == own_address:
                raise RetryLater("the BLOB server redirects to this cache itself")
            if self._get(abort, peer, self._path, {}) is None:
                return True
            raise RetryLater(f"peer {peer} redirects this request")
        except CannotStore:
            raise
        except EmberkeepError as error:
            if abort.is_set:
                raise
            log.info("cannot fetch a BLOB from a peer, asking the BLOB server", peer=peer, reason=error.message)
        if self._get(abort, self._server, f"{self._path}?direct=true", headers) is not None:
            raise BrokenAnswer(f"{self._server} redirects although this request asks for the BLOB itself")
        return False

    def _get(self, abort: TransferAbort, address: str, target: str, headers: dict[str, str]) -> str | None:
        """Fetch the BLOB from ``address`` and return None, or return the address of the peer to ask instead."""
        with self._connections.exchange(abort, address, TransferRequest("GET", target, headers)) as (answer, read):
            if answer.status == HTTPStatus.TEMPORARY_REDIRECT:
                _read_problem(answer, read)
                return self._peer(address, answer)
            if answer.status != HTTPStatus.OK:
                raise _refusal(address, answer, _read_problem(answer, read))
            if answer.length > self._max_size:
                raise Fatal(
                    f"{address} announces {answer.length} bytes, blob.max-size is {self._max_size}",
                    hint="set blob.max-size to the same value everywhere",
                )
            actual = self._receive(read)
        if actual != self._key.sha256:
            raise DamagedBlob(self._owner, self._key, actual, f"data from {address}")
        return None

    def _peer(self, address: str, answer: ResponseHead) -> str:
        """Return the peer's address in a redirect.

        Raises BrokenAnswer unless the redirect leads to this very BLOB: we send our token there.
        """
        match = _REDIRECT.fullmatch(answer.headers.get("location", ""))
        if match is None or match.group(1, 3) != (self._connections.scheme, self._path):
            raise BrokenAnswer(f"{address} redirects to an address that is not a cache of this cluster")
        return match.group(2)

    def _receive(self, read: Callable[[Write], None]) -> str:
        digest = hashlib.sha256()
        file = _create(self._destination)
        try:

            def write(data: memoryview) -> None:
                digest.update(data)
                _write(file, data, self._destination)

            read(write)
        finally:
            os.close(file)
        return digest.hexdigest()


def _create(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise cannot_store(path, error) from error


def _write(file: int, data: memoryview, path: Path) -> None:
    while data:
        try:
            written = os.write(file, data)
        except OSError as error:
            raise cannot_store(path, error) from error
        data = data[written:]


class HttpBlobUploads:
    """Stores transient BLOBs at the BLOB server: large messages and logs.

    ``attempt``: the owner's attempt on whose behalf a call is made. The server refuses calls for an ended attempt.
    """

    def __init__(self, threads: BlobThreads, server: Callable[[], str | None]) -> None:
        """``server``: returns the server's current address; None if none is known."""
        self._threads = threads
        self._server = server

    async def put_bytes(self, owner: JobId, data: bytes, holders: Sequence[str], attempt: int = NO_ATTEMPT) -> BlobKey:
        """Store ``data``, referenced by ``holders``, and return its key. Idempotent.

        Raises RetryLater (no reply), InvalidInput (too large), Conflict (job or attempt has ended), Fatal.
        """

        def work(abort: TransferAbort) -> BlobKey:
            key = transient(hashlib.sha256(data).hexdigest())
            query = f"?{urlencode([('holder', holder) for holder in holders])}" if holders else ""
            request = TransferRequest("PUT", blob_path(owner, key) + query, _acting_for(attempt), data)
            _send(self._threads.connections, abort, self._server(), request)
            return key

        return await self._threads.run(work)

    async def release(self, owner: JobId, key: BlobKey, holder: str, attempt: int = NO_ATTEMPT) -> None:
        """Release one reference at the server; ignore a missing one.

        Raises RetryLater, Conflict (the attempt has ended), Fatal.
        """
        path = f"{blob_path(owner, key)}/holders/{quote(holder, safe='')}"
        request = TransferRequest("DELETE", path, _acting_for(attempt))
        await self._threads.run(lambda abort: _send(self._threads.connections, abort, self._server(), request))


def _acting_for(attempt: int) -> dict[str, str]:
    return {} if attempt == NO_ATTEMPT else {ATTEMPT_HEADER: str(attempt)}


def _send(connections: ConnectionPool, abort: TransferAbort, server: str | None, request: TransferRequest) -> None:
    """Send a request whose success has no content. For DELETE, "not found" is success.

    Raises RetryLater, InvalidInput, Conflict, Absent, Fatal.
    """
    if server is None:
        raise RetryLater("no BLOB server is known now")
    with connections.exchange(abort, server, request) as (answer, read):
        problem = _read_problem(answer, read)
        gone = request.method == "DELETE" and answer.status == HTTPStatus.NOT_FOUND
        if answer.status >= HTTPStatus.MULTIPLE_CHOICES and not gone:
            raise _refusal(server, answer, problem)


def blob_path(owner: JobId, key: BlobKey) -> str:
    """Return the path of a BLOB at servers and peers."""
    return f"{API_PREFIX}/jobs/{owner}/blobs/{key}"


def _read_problem(answer: ResponseHead, read: Callable[[Write], None]) -> _Problem:
    """Read the problem document in an error response; return an empty one if the response has none.

    Leave a long body unread: its connection is not used again.
    """
    if answer.length > _PROBLEM_BYTES:
        return _Problem()
    data = bytearray()
    read(data.extend)
    try:
        return from_json(data, _Problem)
    except msgspec.DecodeError:
        return _Problem()


def _refusal(address: str, answer: ResponseHead, problem: _Problem) -> EmberkeepError:
    """Return the error for an HTTP status other than success."""
    status = answer.status
    message = f"{address}: {problem.detail[:500]}" if problem.detail else f"{address} answers with HTTP status {status}"
    match status:
        case HTTPStatus.NOT_FOUND:
            return Absent(message, hint=problem.hint)
        case HTTPStatus.CONFLICT:
            return Conflict(message, hint=problem.hint)
        case HTTPStatus.BAD_REQUEST | HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            return InvalidInput(message, hint=problem.hint)
        case HTTPStatus.UNAUTHORIZED:
            return Fatal(message, hint="security.token-file must have the same content everywhere")
        case HTTPStatus.SERVICE_UNAVAILABLE:
            return _Busy(message, _retry_after(answer))
        case HTTPStatus.REQUEST_TIMEOUT | HTTPStatus.BAD_GATEWAY | HTTPStatus.GATEWAY_TIMEOUT:
            return RetryLater(message, hint=problem.hint)
        case _:
            return Fatal(message, hint=problem.hint)


def _retry_after(answer: ResponseHead) -> float:
    text = answer.headers.get("retry-after", "")
    return min(_LONGEST_WAIT, max(0.1, float(text))) if text.isascii() and text.isdigit() else 1.0
