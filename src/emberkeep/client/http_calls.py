"""HTTP requests to a JobManager: token, redirects to the leader, retries, and errors as classes of ``base.errors``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, NoReturn, TypeVar
from urllib.parse import urljoin, urlsplit

import aiohttp
import msgspec

from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Absent, Conflict, EmberkeepError, Fatal, InvalidInput, OverQuota, RetryLater
from emberkeep.base.tls.contexts import UNPROVEN_HINT, client_context, handshake_failure
from emberkeep.base.tunnels import CHUNK, HEARTBEAT
from emberkeep.blobs.errors import NotUploaded
from emberkeep.client.endpoint import Endpoint
from emberkeep.client.errors import NotAuthorised, Unanswered, Unreachable
from emberkeep.protocol.rest import API_PREFIX, Problem

T = TypeVar("T")

REQUEST_TIMEOUT = 15.0  # seconds
_CONNECT_TIMEOUT = 5.0  # seconds; a leader's machine that does not answer must not use up a whole request's time
_LIMITS = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT, sock_connect=_CONNECT_TIMEOUT)
_MAX_REDIRECTS = 5
_ELECTION_PATIENCE = 60.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_QUOTA_PATIENCE = 60.0  # the longest wait of one call for its quota, in seconds


def _is_utf_8(text: str) -> bool:
    """True if the text has no bytes of another encoding, as arguments of commands and names of files may have."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True)
class Request:
    """A request, which may be sent several times. ``limits`` are its deadlines.

    ``body`` is called for each try and returns the body.

    ``sink`` receives the content of a successful reply as it arrives, in place of ``HttpReply.body``. After a broken
    try, it receives the content from the beginning.
    """

    method: str
    path: str  # below the API's prefix
    parameters: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Callable[[], Any] | None = None
    limits: aiohttp.ClientTimeout = _LIMITS
    sink: Callable[[AsyncIterator[bytes]], Awaitable[None]] | None = None

    def __post_init__(self) -> None:
        """Raise InvalidInput for a parameter that is not UTF-8, of which a part would be left out on the way."""
        for name, value in self.parameters.items():
            for text in (value,) if isinstance(value, str) else value:
                if not _is_utf_8(text):
                    raise InvalidInput(f"{name}: {text[:80]!r} is not UTF-8", hint="pass the text in UTF-8", field=name)


@dataclass(frozen=True)
class HttpReply:
    """A reply. ``HttpCalls.call`` returns only replies with a status below 400."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def time_ms(self) -> int:
        """Return the time of the reply by the JobManager's clock: Unix milliseconds, precise to 1 s. Raises Fatal."""
        try:
            moment = parsedate_to_datetime(self.headers["Date"])
        except (KeyError, ValueError):
            raise Fatal("the answer has no Date header", hint="check for a proxy that removes it") from None
        return round(moment.timestamp() * 1000)


@dataclass
class Tries:
    """The tries of one call. ``in_doubt``: a failed try may have taken effect."""

    in_doubt: bool = False

    async def watch(self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        """Observe each send of the request: aiohttp repeats PUT and DELETE by itself when the connection breaks."""
        try:
            return await send(request)
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
            self.in_doubt = True
            raise


class HttpCalls:
    """A connection pool to one cluster.

    Failed requests are retried for ``patience`` seconds. Each JobManager is asked at least once before a call fails.
    """

    def __init__(self, endpoint: Endpoint, patience: float) -> None:
        self._endpoint = endpoint
        # With several JobManagers an election may be under way, which ends after some time.
        self._patience = max(patience, _ELECTION_PATIENCE) if endpoint.others else patience
        self._urls = (endpoint.url, *endpoint.others)
        self._base = endpoint.url  # moves to the leader when a standby redirects
        self._session: aiohttp.ClientSession | None = None
        self.has_met = False  # true once a call has succeeded, or a connection that was accepted broke during a request

    def open(self) -> None:
        """Create the session. Needs a running loop. Raises Fatal (the file with the CAs cannot be used)."""
        token, encrypted = self._endpoint.token, self._endpoint.url.startswith("https:")
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=client_context(self._endpoint.ca) if encrypted else True),
            headers={"Authorization": f"Bearer {token}"} if token else {},
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def call(self, request: Request, tries: Tries | None = None) -> HttpReply:
        """Send until there is a reply or ``patience`` has passed. Raises the errors of ``RestClient``."""
        tries = tries or Tries()
        started = time.monotonic()
        deadline = started + self._patience
        pause = _FIRST_PAUSE
        while True:
            try:
                answer = await self._ask_each(request, tries)
            except OverQuota as error:
                self.has_met = True
                if time.monotonic() + error.seconds > started + _QUOTA_PATIENCE:
                    raise
                await asyncio.sleep(error.seconds)
                deadline = time.monotonic() + self._patience
                continue
            except RetryLater as error:
                self.has_met = self.has_met or _broke_off(error)
                if time.monotonic() + pause > deadline:
                    raise
            else:
                self.has_met = True
                return answer
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _ask_each(self, request: Request, tries: Tries) -> HttpReply:
        """Ask the JobManager that answered last, then the others. If all fail, raises the first RetryLater."""
        first: RetryLater | None = None
        for base in dict.fromkeys((self._base, *self._urls)):
            self._base = base
            try:
                return await self._follow_redirects(request, tries)
            except OverQuota:
                raise  # the others would send the request to the same leader
            except RetryLater as error:
                first = first or error
                tries.in_doubt = tries.in_doubt or _may_be_done(error)
        self._base = self._endpoint.url
        assert first is not None, "there is at least one"  # noqa: S101
        raise first

    async def _follow_redirects(self, request: Request, tries: Tries) -> HttpReply:
        url = self._base + API_PREFIX + request.path
        for _ in range(_MAX_REDIRECTS):
            answer = await self._send(url, request, tries)
            if answer.status >= 400:
                _raise(answer, request.method, url)
            if answer.status not in (307, 308):
                return answer
            # Redirects are followed here, as aiohttp would drop the token on a redirect to another host.
            url = urljoin(url, answer.headers.get("Location", ""))
            request = replace(request, parameters={})  # the new location contains them
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.netloc:
                raise Fatal(f"the JobManager at {self._base} redirects to {url!r}, which is not a web address")
            if parts.scheme == "http" and self._base.startswith("https:"):
                raise Fatal(
                    f"the JobManager at {self._base} redirects to {url}, which does not encrypt",
                    hint="set security.encryption to the same value everywhere",
                )
            self._base = f"{parts.scheme}://{parts.netloc}{parts.path.partition(API_PREFIX + '/')[0]}"
        raise RetryLater(f"the JobManagers redirect in a circle (last to {url})", hint="an election may be under way")

    async def _send(self, url: str, request: Request, tries: Tries) -> HttpReply:
        assert self._session is not None, "open() comes first"  # noqa: S101
        body = request.body() if request.body else None
        try:
            async with self._session.request(
                request.method,
                url,
                params=request.parameters,
                headers=request.headers,
                data=body,
                timeout=request.limits,
                allow_redirects=False,
                middlewares=(tries.watch,),
            ) as response:
                if request.sink is None or response.status != HTTPStatus.OK:
                    return HttpReply(response.status, response.headers.copy(), await response.read())
                await request.sink(response.content.iter_any())
                return HttpReply(response.status, response.headers.copy(), b"")
        except aiohttp.InvalidURL:
            raise InvalidInput(f"{url} is not a URL", hint="for example http://127.0.0.1:8081") from None
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise _unreachable(self._endpoint, error) from error
        finally:
            await _close(body)

    async def socket(self, path: str) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket at the JobManager that answered last. Raises the errors of ``RestClient``.

        Redirects are of no use here, because aiohttp would drop the token: find the leader by another call before.
        """
        assert self._session is not None, "open() comes first"  # noqa: S101
        url = self._base + API_PREFIX + path
        try:
            return await self._session.ws_connect(
                url,
                heartbeat=HEARTBEAT,
                max_msg_size=2 * CHUNK,
                timeout=aiohttp.ClientWSTimeout(ws_close=_CONNECT_TIMEOUT),
            )
        except aiohttp.WSServerHandshakeError as error:
            refusal = error.status
            headers: Mapping[str, str] = {} if error.headers is None else error.headers
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(self._endpoint, error) from error
        # aiohttp does not read why a WebSocket is refused. A plain request is refused for the same reason, if for any.
        answer = await self._send(url, Request("GET", path), Tries())
        if answer.status == refusal:
            _raise(answer, "GET", url)
        message = f"the JobManager refuses the WebSocket (HTTP status {refusal})"
        if _is_over_quota(refusal, headers):
            raise OverQuota(message, hint="there are too many of them: try again", seconds=_retry_after(headers))
        raise _error(refusal, message, None, None)


async def _close(body: object) -> None:
    """Close what a reply that came early has left unread, and with it the file that it reads."""
    if isinstance(body, AsyncGenerator):
        # A task of aiohttp that still reads it is cancelled already, which closes it, too.
        with contextlib.suppress(RuntimeError):
            await body.aclose()


def decode(answer: HttpReply, kind: type[T]) -> T:
    """Return the body decoded as ``kind``. Raises Fatal if it has another form."""
    try:
        return from_json(answer.body, kind)
    except msgspec.MsgspecError as error:
        raise Fatal(
            f"the answer has an unknown form: {error}",
            hint="check that the address is an Emberkeep JobManager of this version",
        ) from None


def _may_be_done(error: RetryLater) -> bool:
    """True if the request may have been carried out in spite of the error."""
    if isinstance(error, Unreachable):
        return not isinstance(error.__cause__, aiohttp.ClientConnectorError)
    return isinstance(error, Unanswered)


def _broke_off(error: RetryLater) -> bool:
    """True if the connection broke after the server had accepted it."""
    cause = error.__cause__
    broken = isinstance(cause, aiohttp.ClientOSError | aiohttp.ServerDisconnectedError)
    return broken and not isinstance(cause, aiohttp.ClientConnectorError)


def _unreachable(endpoint: Endpoint, error: Exception) -> Unreachable:
    if isinstance(error, aiohttp.ClientSSLError):
        return Unreachable(
            f"the server at {endpoint.url} has not proven to be of the cluster: {handshake_failure(error)}",
            hint=UNPROVEN_HINT,
        )
    if isinstance(error, aiohttp.ClientConnectorError):
        reason = os.strerror(error.os_error.errno) if error.os_error.errno else str(error.os_error)
    elif isinstance(error, TimeoutError):
        reason = "no answer in time"
    else:
        reason = str(error) or type(error).__name__
    where = f" (from {endpoint.source})" if endpoint.source else ""
    return Unreachable(
        f"the JobManager at {endpoint.url}{where} cannot be reached: {reason}",
        hint="check that it runs; `emberkeep cluster status` shows a cluster on this machine",
    )


def _raise(answer: HttpReply, method: str, url: str) -> NoReturn:
    """Raise the error that the JobManager describes."""
    message, hint, where = f"{method} {url} was answered with HTTP status {answer.status}", None, None
    try:
        problem = from_json(answer.body, Problem)
    except msgspec.MsgspecError:  # a reply from a proxy, or a reply to HEAD, which has no body
        pass
    else:
        message, hint, where = problem.detail, problem.hint, problem.field
    if _is_over_quota(answer.status, answer.headers):
        raise OverQuota(message, hint=hint, seconds=_retry_after(answer.headers))
    raise _error(answer.status, message, hint, where)


def _is_over_quota(status: int, headers: Mapping[str, str]) -> bool:
    """True if an answer refuses a request that is one too many, rather than a token that was wrong too often."""
    return status == HTTPStatus.TOO_MANY_REQUESTS and "WWW-Authenticate" not in headers


def _retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds in the header Retry-After; 1 if the header is missing or unusable."""
    text = headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdecimal() else 1.0


def _error(status: int, message: str, hint: str | None, where: str | None) -> EmberkeepError:
    if status in (401, 403, 429):  # 429: too many requests with a wrong token
        return NotAuthorised(message, hint=hint or "name the cluster's token file with -D security.token-file=PATH")
    if status == 404:
        return Absent(message, hint=hint)
    if status in (409, 412):
        return Conflict(message, hint=hint)
    if status == 424:
        return NotUploaded(message, field=where, hint=hint)
    if status in (408, 502, 504):
        return Unanswered(message, hint=hint)
    if status == 503:
        return RetryLater(message, hint=hint)
    if status < 500:
        return InvalidInput(message, field=where, hint=hint)
    return Fatal(message, hint=hint)
