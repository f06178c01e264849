"""Tunnels to the Spark Connect server of a job's driver.

A tunnel carries one connection of a client. It is open to identities that may change the job: code that a client sends
runs as the job.
"""

from __future__ import annotations

import asyncio
import contextlib

from aiohttp import web

from emberkeep.base.errors import Conflict, InvalidInput, RetryLater
from emberkeep.base.identity import Role
from emberkeep.base.request_context import is_logged_in
from emberkeep.base.tunnels import CHUNK, HEARTBEAT, Pipe, SocketPipe, join
from emberkeep.rest.serving.routing import CheckedRequest, Route

_LOOK_SECONDS = 15.0  # between two looks whether the caller may still use its tunnel


async def open_tunnel(call: CheckedRequest) -> web.StreamResponse:
    socket = web.WebSocketResponse(heartbeat=HEARTBEAT, compress=False, max_msg_size=2 * CHUNK)
    if not socket.can_prepare(call.request).ok:
        raise InvalidInput("this resource is a WebSocket", hint="`emberkeep connect open` uses it")
    job = await call.api.gateway.job(call.path["jobid"])
    if job.status.is_globally_terminal:
        raise Conflict(f"job {job.name!r} has ended", hint="`emberkeep connect up` starts a Spark Connect server")
    if not job.job_master:
        raise RetryLater(f"job {job.name!r} has no driver now", hint="its next attempt will have one: try again")
    async with call.api.tunnels.place():
        token, driver = await call.api.connect_tunnels.open(job.job_master, job.job_id, job.attempt)
        client = SocketPipe(socket)
        try:
            await socket.prepare(call.request)
            await socket.send_str(token)
        except OSError:
            await driver.close()
            return socket
        await _joined(call, client, driver)
    return socket


async def _joined(call: CheckedRequest, client: Pipe, driver: Pipe) -> None:
    """Join both until one ends, the server stops, or the caller's login ends."""
    passing = asyncio.create_task(join(client, driver), name="connect-tunnel")
    watching = asyncio.create_task(_login_ended(call), name="connect-tunnel-login")
    try:
        await asyncio.wait({passing, watching}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (passing, watching):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(passing, watching, return_exceptions=True)


async def _login_ended(call: CheckedRequest) -> None:
    """Return when the caller is no longer logged in, or the server stops."""
    while is_logged_in(call.request):
        if await call.api.pause(_LOOK_SECONDS):
            return


ROUTES = (
    Route(
        "GET",
        "/jobs/{jobid}/connect",
        open_tunnel,
        "Open a connection to the Spark Connect server of a job's driver, as a WebSocket",
        "Jobs",
        role=Role.SUBMITTER,
        status=101,
        media="",
        problems=(400, 404, 409, 429, 503),
        doc="The first message is the server's token, as text. The others are binary: the bytes of a gRPC connection, "
        "which `emberkeep connect open` passes on. The connection ends with the driver, with this JobManager, and with "
        "the caller's login.",
    ),
)
