"""The limit of the heartbeat measurement: an aiohttp server that reads a body, answers with one, and that is all.

``python -m bench.load.echo_server BYTES`` answers each POST with BYTES bytes.
It prints "host:port" and serves until SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from aiohttp import web


async def serve(answer_bytes: int) -> None:
    answer = b"x" * answer_bytes

    async def echo(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=answer, content_type="application/octet-stream")

    app = web.Application()
    app.add_routes([web.post("/", echo)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    host, port = runner.addresses[0][:2]
    print(f"{host}:{port}", flush=True)
    await stop.wait()
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
