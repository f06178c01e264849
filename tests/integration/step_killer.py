"""A proxy between one client and the leading JobManager, which kills the leader at each step of what the client does.

A step is a request, and what had happened to it: nothing of it has arrived, half of an upload has, or a change was made
and its answer never comes. Requests for the same thing in the same state of the job are one step.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from io import BytesIO

import aiohttp
import msgspec
from aiohttp import hdrs, web

_JOB = re.compile(r"/jobs/[0-9a-f]{32}")
_KEY = re.compile(r"/([pt])-([0-9a-f]{64})")
_LOG = re.compile(r"/logs/.*")
_HOP = {hdrs.HOST, hdrs.CONTENT_LENGTH, hdrs.TRANSFER_ENCODING, hdrs.CONNECTION}
_LIMITS = aiohttp.ClientTimeout(total=60.0)


class _State(msgspec.Struct):
    state: str


class StepKiller:
    """Use as ``with killer.serving()``. ``target`` is the leader ("host:port"); ``kill`` ends it when it is called.

    Until ``over`` it strikes once, at the first step that it has never struck at before, and ``struck`` says where.
    Requests fail from then on until ``go_on``.
    """

    def __init__(self, chosen: Callable[[str], bool] = lambda step: True, *, until_running: bool = True) -> None:
        """``chosen``: at which steps it may strike. ``until_running``: it is over once the client's job runs."""
        self._chosen = chosen
        self._until_running = until_running
        self.url = ""
        self.target = ""
        self.kill: Callable[[], None] = lambda: None
        self.steps: list[str] = []  # at which it has struck
        self.struck = threading.Event()
        self.over = False  # the job runs
        self._away = False
        self._state = "unknown"
        self._session: aiohttp.ClientSession | None = None

    def next_run(self, target: str, kill: Callable[[], None]) -> None:
        self.kill, self._state, self.over = kill, "unknown", False
        self.struck.clear()
        self.go_on(target)

    def go_on(self, target: str) -> None:
        """Another one leads."""
        self.target, self._away = target, False

    @contextmanager
    def serving(self) -> Iterator[None]:
        loop, ready = asyncio.new_event_loop(), threading.Event()
        thread = threading.Thread(target=self._run, args=(loop, ready), name="step-killer")
        thread.start()
        assert ready.wait(30.0)
        try:
            yield
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _run(self, loop: asyncio.AbstractEventLoop, ready: threading.Event) -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(self._open())
        ready.set()
        loop.run_forever()
        loop.run_until_complete(self._close(runner))
        loop.close()

    async def _open(self) -> web.AppRunner:
        self._session = aiohttp.ClientSession(timeout=_LIMITS, auto_decompress=False)
        app = web.Application(client_max_size=64 * 1024**2)
        app.router.add_route("*", "/{path:.*}", self._serve)
        runner = web.AppRunner(app, shutdown_timeout=1.0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return runner

    async def _close(self, runner: web.AppRunner) -> None:
        assert self._session is not None
        await self._session.close()
        await runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        assert self._session is not None
        body = await request.read()
        name = f"{request.method} {_name(request.path, len(body))} ({self._state})"
        if self._away or self._strikes(f"before {name}"):
            return self._broken(request)
        half = request.method == "PUT" and self._strikes_later(f"half of {name}")
        headers = {key: value for key, value in request.headers.items() if key.title() not in _HOP}
        headers[hdrs.CONTENT_LENGTH] = str(len(body))
        try:
            async with self._session.request(
                request.method,
                f"http://{self.target}{request.raw_path}",
                headers=headers,
                data=self._half(body, f"half of {name}") if half else BytesIO(body),
                allow_redirects=False,
            ) as answer:
                content = await answer.read()
        except (aiohttp.ClientError, OSError, _Struck):
            return self._broken(request)
        if request.method != "GET" and self._strikes(f"after {name}"):
            return self._broken(request)
        self._learn(request, answer.status, content)
        kept = {key: value for key, value in answer.headers.items() if key.title() not in _HOP}
        return web.Response(status=answer.status, body=content, headers=kept)

    def _learn(self, request: web.Request, status: int, content: bytes) -> None:
        if request.method == "GET" and status == 200 and _JOB.fullmatch(request.path.removeprefix("/v1")):
            self._state = msgspec.json.decode(content, type=_State).state
            runs = self._state not in ("CREATED", "INITIALIZING", "RESTARTING")
            self.over = self.over or (runs and self._until_running)

    def _strikes_later(self, step: str) -> bool:
        return self._chosen(step) and not (self.over or self.struck.is_set() or step in self.steps)

    def _strikes(self, step: str) -> bool:
        if not self._strikes_later(step):
            return False
        self.steps.append(step)
        self._away = True
        self.kill()
        self.struck.set()
        return True

    async def _half(self, body: bytes, step: str) -> AsyncIterator[bytes]:
        yield body[: (len(body) + 1) // 2]
        if self._strikes(step):
            raise _Struck

    def _broken(self, request: web.Request) -> web.StreamResponse:
        """An answer that nobody gets."""
        if request.transport is not None:
            request.transport.abort()
        return web.Response()


def _name(path: str, size: int) -> str:
    """Without what differs from run to run: a BLOB is known by its size, logs are all alike."""
    return _LOG.sub("/logs/:log", _KEY.sub(rf"/\1-{size}", _JOB.sub("/jobs/:job", path)))


class _Struck(Exception):
    """The leader was killed while a body was on its way."""
