"""Requests to one JobManager, each sent once, so that what is known about its outcome is exactly what the reply says.

Emberkeep's own client repeats requests. That hides in which of several tries a request took effect.
"""

from __future__ import annotations

import hashlib
import io
import socket
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import urljoin

import aiohttp
import msgspec

SECONDS = 12.0  # longer than a takeover, so that most requests get a reply
_CONNECT_SECONDS = 3.0
_REDIRECTS = 3
# For a download that is broken off: so little fits on its way that most of a file is not sent yet when its client goes.
BREAKABLE = 200_000  # bytes
_SEGMENT, _RECEIVED, _READ_AHEAD = 536, 4096, 1024
_UNCONFIRMED = "Emberkeep-Unconfirmed"


class NotDone(Exception):
    """The request has had no effect: it was refused, or has not arrived."""


class Unknown(Exception):
    """Nobody knows whether the request has had an effect."""


class Abandoned(Unknown):
    """The client has not waited any longer for the reply."""


@dataclass(frozen=True)
class Reply:
    """A reply whose meaning the caller decides. ``body``: decoded JSON; None if there is none."""

    status: int
    body: Any


class Answered(msgspec.Struct, frozen=True, array_like=True):
    """A reply, as it was seen. ``is_vouched_for``: False if the leader has not confirmed that it still leads."""

    method: str
    path: str
    status: int
    sent: float
    returned: float
    is_vouched_for: bool = True


def _ignore(_: Answered) -> None:
    pass


class Calls:
    """Use as ``async with``. Each request is sent once: aiohttp by itself repeats a PUT whose connection breaks.

    ``seen``: called for each reply.
    """

    def __init__(self, token: str, seen: Callable[[Answered], None] = _ignore) -> None:
        self._headers = {"Authorization": f"Bearer {token}"}
        self._seen = seen
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Calls:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True),
            headers=self._headers,
            auto_decompress=True,
            middlewares=(_send_once,),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def call(
        self,
        method: str,
        base: str,
        path: str,
        body: Any = None,
        *,
        seconds: float = SECONDS,
    ) -> Reply:
        """Send one request to the JobManager at ``base``, or to the leader that it names.

        Raises NotDone and Unknown. A reply that the leader does not vouch for is NotDone: it shows nothing.
        """
        url = f"{base}/v1{path}"
        data = None if body is None else msgspec.json.encode(body)
        for _ in range(_REDIRECTS):
            status, location, answer = await self._send(method, url, data, "application/json", seconds)
            if status not in (307, 308):
                return _read(status, answer)
            url = urljoin(url, location)
        raise NotDone("redirected in a circle")

    async def upload(
        self, base: str, path: str, content: bytes, *, whole: bool = True, seconds: float = SECONDS
    ) -> None:
        """Upload a BLOB to the leader; if not ``whole``, break off half-way. Raises NotDone and Unknown."""
        url = f"{base}/v1{path}"
        for _ in range(_REDIRECTS):
            data = io.BytesIO(content) if whole else _half(content)  # aiohttp sends plain bytes in one piece
            status, location, answer = await self._send("PUT", url, data, "application/octet-stream", seconds)
            if status not in (307, 308):
                _read(status, answer)
                return
            url = urljoin(url, location)
        raise NotDone("redirected in a circle")

    async def break_download(self, base: str, path: str) -> bool:
        """Break off the download of a BLOB after its first bytes. Return False if there was nothing to break off.

        That is so for BLOBs of less than BREAKABLE bytes: their server has sent them before it notices.
        """
        url = f"{base}/v1{path}"
        connector = aiohttp.TCPConnector(force_close=True, socket_factory=_narrow_socket)
        async with aiohttp.ClientSession(
            connector=connector, headers=self._headers, read_bufsize=_READ_AHEAD, middlewares=(_send_once,)
        ) as session:
            for _ in range(_REDIRECTS):
                try:
                    async with session.get(
                        url, allow_redirects=False, timeout=aiohttp.ClientTimeout(total=SECONDS)
                    ) as reply:
                        if reply.status in (307, 308):
                            url = urljoin(url, reply.headers.get("Location", ""))
                            continue
                        found = reply.status == 200 and bool(await reply.content.read(1000))
                        reply.close()
                        return found and (reply.content_length or 0) >= BREAKABLE
                except (Unknown, aiohttp.ClientError, OSError):
                    return False
        return False

    async def digest(self, base: str, path: str, *, seconds: float = SECONDS) -> tuple[int, str]:
        """Download a BLOB. Return the status of the reply, and the SHA-256 of what came. Raises NotDone and Unknown."""
        assert self._session is not None
        url = f"{base}/v1{path}"
        for _ in range(_REDIRECTS):
            try:
                async with self._session.get(
                    url,
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_SECONDS),
                ) as reply:
                    if reply.status in (307, 308):
                        url = urljoin(url, reply.headers.get("Location", ""))
                        continue
                    found = hashlib.sha256()
                    async for piece in reply.content.iter_chunked(1 << 20):
                        found.update(piece)
                    if reply.headers.get(_UNCONFIRMED):
                        raise NotDone("the leader does not vouch for it")
                    _read(reply.status, b"")
                    return reply.status, found.hexdigest()
            except (aiohttp.ClientError, OSError) as error:
                raise Unknown(str(error) or type(error).__name__) from error
        raise NotDone("redirected in a circle")

    async def _send(self, method: str, url: str, data: Any, kind: str, seconds: float) -> tuple[int, str, bytes]:
        assert self._session is not None
        sent = time.monotonic()
        try:
            async with self._session.request(
                method,
                url,
                data=data,
                headers={} if data is None else {"Content-Type": kind},
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_SECONDS),
            ) as reply:
                answer = await reply.read()
                is_vouched_for = _UNCONFIRMED not in reply.headers
                path = reply.url.raw_path_qs
                self._seen(Answered(method, path, reply.status, sent, time.monotonic(), is_vouched_for))
                if reply.headers.get(_UNCONFIRMED):
                    raise NotDone("the leader does not vouch for it")
                return reply.status, reply.headers.get("Location", ""), answer
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotDone(str(error)) from error
        except TimeoutError as error:
            raise Abandoned(f"no reply within {seconds:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unknown(str(error) or type(error).__name__) from error


def _narrow_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Make a socket whose peer can send little before it is read: its buffers grow with the size of segments."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVED)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _SEGMENT)
    return made


async def _send_once(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Send a request. Raises Unknown if the connection breaks: what aiohttp would repeat may have had an effect."""
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise Unknown(str(error) or type(error).__name__) from error


def _read(status: int, answer: bytes) -> Reply:
    if status == 503:
        raise NotDone(answer.decode(errors="replace"))
    if status in (408, 500, 502, 504):
        raise Unknown(answer.decode(errors="replace"))
    try:
        return Reply(status, msgspec.json.decode(answer) if answer else None)
    except msgspec.DecodeError:
        return Reply(status, None)


async def _half(content: bytes) -> AsyncIterator[bytes]:
    yield content[: len(content) // 2]
    raise _BrokenOff


class _BrokenOff(OSError):
    """An upload that ends too early."""
