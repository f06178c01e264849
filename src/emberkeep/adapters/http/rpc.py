"""RPC over HTTP: ``POST /rpc/v1/<kind>`` with a MessagePack body, a protocol version header and a bearer token.

This module has the caller's side and what both sides share; ``rpc_server`` has the receiver's side.

Both sides announce with each message that they ignore fields that they do not know. Release 0.1.0 rejects such fields
and announces nothing, so it gets only the fields that it knows (``protocol.encoding.first_release``).

A body is small: a part larger than ``rpc.offload.min-size`` is sent as a BLOB (``adapters.http.offload``). Failures
reach the caller as ``protocol.transport`` defines: no connection is RetryLater, silence or a broken connection is
UnknownOutcome, and an error of the receiver arrives as the class that the receiver raised.
"""

from __future__ import annotations

import asyncio
import io
import ssl
from http import HTTPStatus
from typing import NamedTuple

import aiohttp
import msgspec

from emberkeep.adapters.http.driver_access import CalledDrivers
from emberkeep.adapters.http.offload import PACE, Offload, Packed, inline_limit
from emberkeep.base.configuration.options.blobs import OFFLOAD_MIN_SIZE
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import EmberkeepError, Fatal, InvalidInput, RetryLater, UnknownOutcome
from emberkeep.base.identity import AttemptScope
from emberkeep.base.tls.contexts import UNPROVEN_HINT, handshake_failure
from emberkeep.protocol.driver_messages import called_attempt
from emberkeep.protocol.encoding.first_release import for_first_release
from emberkeep.protocol.encoding.wire import check_address, decode_error, decode_reply, encode_message
from emberkeep.protocol.messages.root import PROTOCOL_VERSION, Message
from emberkeep.protocol.rest import PROBLEM_MEDIA_TYPE, Problem
from emberkeep.protocol.transport import ReplyT

RPC_PATH = "/rpc/v1/"
VERSION_HEADER = "Emberkeep-Protocol"
# A sender of this header ignores fields that it does not know. The value has no meaning.
LENIENT_HEADER = "Emberkeep-Unknown-Fields"
LENIENT = {LENIENT_HEADER: "ignored"}
CONTENT_TYPE = "application/vnd.emberkeep.rpc+msgpack"

_CONNECTIONS = 512
_MOST_STRICT = 10_000  # addresses of processes of release 0.1.0
CONNECTIONS_PER_PEER = 16  # the most that a frozen peer can block
REPLY_SECONDS = 120.0  # for the BLOBs of an off-loaded reply
_STREAMED_BYTES = 512 * 1024  # larger bodies are sent in pieces, so that they do not block the loop
_CHUNK_BYTES = 256 * 1024

SAME_MINIMUM = "larger parts travel as BLOBs: set rpc.offload.min-size to the same value everywhere"


class _Answer(NamedTuple):
    status: int
    content_type: str
    body: bytes
    lenient: bool  # from a process that ignores unknown fields


class HttpRpcClient:
    """RPC over HTTP; implements ``protocol.transport.RpcClient``.

    Belongs to the event loop of its first call. Reuses connections.
    """

    def __init__(
        self,
        token: str,
        offload: Offload | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        drivers: CalledDrivers | None = None,
        connections_per_peer: int = CONNECTIONS_PER_PEER,
    ) -> None:
        """Without ``offload``, only small messages can be sent and received.

        ``tls`` verifies each peer before anything is sent; None: the peers do not encrypt. ``drivers``: how to call
        drivers; None: they have no credentials of their own.
        """
        self._drivers = drivers
        self._tls = tls
        self._scheme = "http" if tls is None else "https"
        self._offload = offload
        self._inline_limit = inline_limit_of(offload)
        self._connections_per_peer = connections_per_peer
        self._headers = {
            "Authorization": f"Bearer {token}",
            VERSION_HEADER: str(PROTOCOL_VERSION),
            **LENIENT,
            "Content-Type": CONTENT_TYPE,
            "Accept-Encoding": "identity",
        }
        self._session: aiohttp.ClientSession | None = None
        self._strict: set[str] = set()  # addresses where a process of release 0.1.0 has answered
        self._closed = False

    async def call(self, address: str, request: Message, reply: type[ReplyT], *, timeout: float) -> ReplyT:  # noqa: ASYNC109
        """Send ``request`` to ``address`` ("host:port") and return its reply.

        ``timeout`` is in seconds. The BLOBs of an off-loaded request or reply get additional time.
        """
        if self._closed:
            raise RetryLater("this process is shutting down and sends no more requests")
        check_address(address)
        status, data = await self._send(address, request, timeout)
        if status != HTTPStatus.OK:
            raise decode_error(data, sender=address)
        return decode_reply(await self._unpack(data, address), reply, sender=address)

    async def _send(self, address: str, request: Message, seconds: float) -> tuple[int, bytes]:
        """Return status and body of the reply."""
        sent = for_first_release(request) if address in self._strict else request
        answer = await self._exchange(address, sent, seconds)
        if not answer.lenient and answer.status == HTTPStatus.BAD_REQUEST and sent is request:
            reduced = for_first_release(request)
            if reduced is not request:
                # The peer rejected the request while decoding it, so the request has had no effect.
                answer = await self._exchange(address, reduced, seconds)
        if answer.lenient:
            self._strict.discard(address)
        else:
            if len(self._strict) >= _MOST_STRICT:
                self._strict.clear()  # refilled as these peers answer
            self._strict.add(address)
        return answer.status, answer.body

    async def _exchange(self, address: str, request: Message, seconds: float) -> _Answer:
        """Send the request once. Raises RetryLater, UnknownOutcome; Fatal if the reply is not from an RPC handler."""
        packed = await pack(self._offload, request, seconds=seconds)
        answer = await self._deliver(address, request, packed, seconds)
        if answer.content_type != CONTENT_TYPE:
            raise _foreign_answer(address, answer)
        return answer

    async def _deliver(self, address: str, request: Message, packed: Packed, seconds: float) -> _Answer:
        arrived, kind = True, type(request).__name__
        url = f"{self._scheme}://{address}{RPC_PATH}{kind}"
        try:
            async with asyncio.timeout(seconds + packed.offloaded / PACE):
                return await self._post(url, packed.body, called_attempt(request))
        except TimeoutError:
            raise UnknownOutcome(f"{address} did not answer {kind} within {seconds:g} s") from None
        except aiohttp.ServerFingerprintMismatch:
            arrived = False
            raise RetryLater(
                f"{address} has not proven to be the driver that {kind} is for: it shows another certificate",
                hint=UNPROVEN_HINT,
            ) from None
        except aiohttp.ClientSSLError as error:
            arrived = False
            raise RetryLater(
                f"{address} has not proven to be of this cluster: {handshake_failure(error)}", hint=UNPROVEN_HINT
            ) from None
        except aiohttp.ClientConnectorError as error:
            arrived = False
            reason = error.os_error.strerror or str(error.os_error)
            raise RetryLater(f"cannot connect to {address} for {kind}: {reason}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise UnknownOutcome(
                f"the connection to {address} broke during {kind}: {str(error) or repr(error)}"
            ) from None
        finally:
            if self._offload is not None:
                if arrived:
                    self._offload.sent(packed)
                else:
                    await self._offload.not_delivered(packed)

    async def _unpack(self, data: bytes, address: str) -> bytes:
        """Return the whole reply. The request was served, so any failure here is an UnknownOutcome."""
        if self._offload is None:
            return data
        try:
            async with asyncio.timeout(REPLY_SECONDS):
                return await self._offload.unpack(data)
        except (EmberkeepError, TimeoutError) as error:
            raise UnknownOutcome(f"the reply of {address} did not arrive completely: {error}") from error

    async def _post(self, url: str, body: bytes, driver: AttemptScope | None) -> _Answer:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=_CONNECTIONS,
                    limit_per_host=self._connections_per_peer,
                    ssl=True if self._tls is None else self._tls,
                ),
                headers=self._headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
            )
        data = body if len(body) < _STREAMED_BYTES else io.BytesIO(body)
        headers, verified = None, None
        if driver is not None and self._drivers is not None:
            headers, verified = self._drivers.login(driver)
        async with self._session.post(
            url, data=data, headers=headers, ssl=True if verified is None else verified, allow_redirects=False
        ) as response:
            answer = await read_limited(response.content, response.content_length, self._inline_limit)
            if answer is None:
                response.close()
                raise Fatal(f"the answer from {url} is larger than {self._inline_limit} bytes", hint=SAME_MINIMUM)
            return _Answer(response.status, response.content_type, answer, LENIENT_HEADER in response.headers)

    async def close(self) -> None:
        """Close the connections. Later calls raise RetryLater. Idempotent."""
        self._closed = True
        if self._session is not None:
            await self._session.close()


def _foreign_answer(address: str, answer: _Answer) -> EmberkeepError:
    """Return the error for a reply that the peer's access checks or another server sent, not an RPC handler."""
    status = answer.status
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS):  # too many with a wrong token
        return Fatal(
            f"{address} refused this process's token", hint="security.token-file must have the same content everywhere"
        )
    if status == HTTPStatus.FORBIDDEN:
        refusal = _problem(answer)
        return Fatal(f"{address} refuses the requests of this process: {refusal.detail}", hint=refusal.hint)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return UnknownOutcome(f"{address} answered with HTTP status {status}", hint="see the log of that process")
    return Fatal(
        f"the process at {address} is not an Emberkeep process (HTTP status {status})",
        hint="check the address and port",
    )


def _problem(answer: _Answer) -> Problem:
    """Return the problem document in a reply, or one without details."""
    try:
        if answer.content_type == PROBLEM_MEDIA_TYPE:
            return from_json(answer.body, Problem)
    except msgspec.MsgspecError:
        pass
    status = HTTPStatus(answer.status)
    return Problem(title=status.phrase, status=status.value, detail=f"HTTP status {status.value}", errors=[])


async def pack(offload: Offload | None, message: Message, *, seconds: float, answers: Message | None = None) -> Packed:
    """Encode a message, with large parts as BLOBs (see ``Offload.pack``).

    If ``offload`` is None, parts stay in the body, and a message that is too large raises InvalidInput.
    """
    if offload is not None:
        return await offload.pack(message, seconds=seconds, answers=answers)
    body, limit = encode_message(message), inline_limit_of(None)
    if len(body) > limit:
        raise InvalidInput(
            f"{type(message).__name__} is too large: {len(body)} bytes, at most {limit} without off-loading"
        )
    return Packed(body)


def inline_limit_of(offload: Offload | None) -> int:
    return inline_limit(OFFLOAD_MIN_SIZE.default) if offload is None else offload.inline_limit


async def read_limited(stream: aiohttp.StreamReader, announced: int | None, limit: int) -> bytes | None:
    """Return the whole body; None if it is, or is announced to be, larger than ``limit`` bytes."""
    if announced is not None and announced > limit:
        return None
    body = bytearray()
    async for chunk in stream.iter_chunked(_CHUNK_BYTES):
        body += chunk
        if len(body) > limit:
            return None
    return bytes(body)
