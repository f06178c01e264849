"""A process with few descriptors that serves a secured HTTP port: the script of a test, which kills it.

It prints its address. Each request that is let in opens ``FILES`` files at once, as the process's own work does.
"""

from __future__ import annotations

import asyncio
import os
import resource

from aiohttp import web

from emberkeep.adapters.http.security import AccessPolicy, secure
from emberkeep.adapters.http.server import bind_port, serve_http

DESCRIPTORS = 160
FILES = 16
TOKEN = "the token of the cluster"


async def _work(_: web.Request) -> web.Response:
    files: list[int] = []
    try:
        files.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(FILES))
    finally:
        for file in files:
            os.close(file)
    return web.Response(text="done")


async def _main() -> None:
    app = web.Application()
    secure(app, AccessPolicy(TOKEN))
    app.router.add_get("/work", _work)
    server = await serve_http(app, bind_port("127.0.0.1", 0))
    print(server.address, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    asyncio.run(_main())
