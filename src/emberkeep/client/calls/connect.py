"""REST API calls for Spark Connect servers of jobs."""

from __future__ import annotations

import aiohttp

from emberkeep.base.errors import Conflict, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.base.tunnels import Pipe, SocketPipe
from emberkeep.client.http_calls import REQUEST_TIMEOUT, HttpCalls, Request


class ConnectCalls:
    """A RestClient's calls for Spark Connect. They raise what RestClient raises."""

    def __init__(self, http: HttpCalls) -> None:
        self._http = http

    async def tunnel(self, job_id: JobId) -> tuple[str, Pipe]:
        """Open a connection to the job's server, and return it with the server's token.

        Raises Absent (no such job), Conflict (the job runs no server, or has ended), RetryLater (it has no driver now,
        or its server is starting).
        """
        path = f"/jobs/{job_id}"
        await self._http.call(Request("GET", path))  # finds the leader
        try:
            socket = await self._http.socket(f"{path}/connect")
        except Conflict:
            raise Conflict(
                f"job {job_id} runs no Spark Connect server", hint="`emberkeep connect up` starts one"
            ) from None
        try:
            return await socket.receive_str(timeout=REQUEST_TIMEOUT), SocketPipe(socket)
        except (aiohttp.ClientError, OSError, TypeError):  # TypeError: closed before the first message
            await socket.close()
            raise RetryLater("the connection to the Spark Connect server broke") from None
