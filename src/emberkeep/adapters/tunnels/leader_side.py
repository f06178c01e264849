"""The leader's side of tunnels: opens them to drivers, as it calls drivers otherwise."""

from __future__ import annotations

import asyncio
import ssl
from http import HTTPStatus
from typing import Final

import aiohttp

from emberkeep.adapters.http.driver_access import CalledDrivers
from emberkeep.adapters.tunnels.driver_side import TUNNEL_PATH
from emberkeep.base.errors import Conflict, EmberkeepError, OverQuota, RetryLater
from emberkeep.base.identity import AttemptScope
from emberkeep.base.ids import JobId
from emberkeep.base.tls.contexts import UNPROVEN_HINT
from emberkeep.base.tunnels import CHUNK, HEARTBEAT, SocketPipe
from emberkeep.protocol.encoding.wire import check_address

_MOST: Final = 512
_OPEN_SECONDS = 10.0


class DriverTunnels:
    """Implements ``rest.serving.connect_tunnels.ConnectTunnels``. Belongs to the event loop of its first call."""

    def __init__(self, token: str, *, tls: ssl.SSLContext | None, drivers: CalledDrivers | None) -> None:
        """See HttpRpcClient."""
        self._headers = {"Authorization": f"Bearer {token}"}
        self._tls = tls
        self._drivers = drivers
        self._session: aiohttp.ClientSession | None = None

    async def open(self, job_master: str, job_id: JobId, attempt: int) -> tuple[str, SocketPipe]:
        """See ``ConnectTunnels``."""
        check_address(job_master)
        headers, verified = self._headers, None
        if self._drivers is not None:
            headers, verified = self._drivers.login(AttemptScope(job_id, attempt))
        scheme = "http" if self._tls is None else "https"
        try:
            async with asyncio.timeout(_OPEN_SECONDS):  # a driver that hangs accepts connections and does not answer
                socket = await self._opened().ws_connect(
                    f"{scheme}://{job_master}{TUNNEL_PATH}",
                    headers=headers,
                    ssl=True if verified is None else verified,
                    heartbeat=HEARTBEAT,
                    max_msg_size=2 * CHUNK,
                    timeout=aiohttp.ClientWSTimeout(ws_close=_OPEN_SECONDS),
                )
        except aiohttp.WSServerHandshakeError as error:
            raise _refused(error.status) from None
        except (aiohttp.ServerFingerprintMismatch, aiohttp.ClientSSLError):
            raise RetryLater(f"{job_master} has not proven to be the job's driver", hint=UNPROVEN_HINT) from None
        except (aiohttp.ClientError, OSError) as error:
            raise RetryLater(f"the job's driver cannot be reached now: {str(error) or type(error).__name__}") from None
        try:
            return await socket.receive_str(timeout=_OPEN_SECONDS), SocketPipe(socket)
        except (aiohttp.ClientError, OSError, TypeError):  # TypeError: closed before the first message
            await socket.close()
            raise RetryLater("the connection to the job's driver broke") from None

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_MOST, ssl=True if self._tls is None else self._tls),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_OPEN_SECONDS),
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def _refused(status: int) -> EmberkeepError:
    if status in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):  # not found: a driver of an earlier release
        return Conflict("the job runs no Spark Connect server", hint="`emberkeep connect up` starts one")
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return OverQuota("the job's Spark Connect server has too many connections", seconds=5.0)
    return RetryLater(
        f"the job's Spark Connect server accepts no connections now (HTTP status {status})",
        hint="it is starting, or the driver was lost: try again in a few seconds",
    )
