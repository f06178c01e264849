"""A web server on loopback that receives webhooks and behaves as the test says."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web

from emberkeep.adapters.webhooks.webhook import Webhook, WebhookSettings
from emberkeep.base.clock import SystemClock
from emberkeep.base.errors import Unavailable
from emberkeep.base.ids import JobId
from emberkeep.notifications.model import EventKind, Notification, NotifiedJob
from emberkeep.notifications.ports import NoticeStore
from tests.unit.rest.server import eventually

SECRET = b"a-secret-of-both-sides"
LOST, SLOW = -1, -2  # no answer, because the connection breaks; an answer after the sender's patience


@dataclass(frozen=True)
class Received:
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


@dataclass
class Receiver:
    """``answers``: what the next requests are answered with, a status, LOST or SLOW; then 204."""

    answers: list[int] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    url: str = ""

    async def take(self, request: web.Request) -> web.Response:
        self.received.append(Received(dict(request.headers), await request.read()))
        answer = self.answers.pop(0) if self.answers else 204
        if answer == LOST:
            assert request.transport is not None
            request.transport.abort()
        if answer == SLOW:
            await asyncio.sleep(60)
        headers = {"Location": f"{self.url}/elsewhere"} if 300 <= answer < 400 else {}
        return web.Response(status=max(answer, 200), headers=headers)

    def ids(self) -> list[str]:
        return [each.headers["X-Emberkeep-Delivery"] for each in self.received]

    async def gets(self, count: int) -> None:
        await eventually(lambda: len(self.received) >= count)


@asynccontextmanager
async def receiving(*answers: int) -> AsyncIterator[Receiver]:
    receiver = Receiver(list(answers))
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", receiver.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield receiver
    finally:
        await runner.cleanup()


@dataclass
class MemoryNotices:
    """Implements NoticeStore. ``away``: how many of the next calls find no storage."""

    kept: dict[int, list[Notification]] = field(default_factory=dict)
    away: int = 0

    async def earlier(self, lineage: str, epoch: int) -> list[Notification]:
        self._require()
        return [each for before in sorted(self.kept) if before < epoch for each in self.kept[before]]

    async def keep(self, lineage: str, epoch: int, waiting: Sequence[Notification]) -> None:
        self._require()
        self.kept = {epoch: list(waiting)}

    def ids(self) -> list[str]:
        return [each.id for waiting in self.kept.values() for each in waiting]

    def _require(self) -> None:
        if self.away > 0:
            self.away -= 1
            raise Unavailable("the shared storage is away")


@asynccontextmanager
async def delivering(
    url: str, notices: NoticeStore | None = None, epoch: int = 1, **changes: Any
) -> AsyncIterator[Webhook]:
    """Run a webhook that repeats failures almost at once."""
    values: dict[str, Any] = {"url": f"{url}/hook", "secret": SECRET, "events": frozenset(EventKind)}
    settings = WebhookSettings(**{**values, "first_pause": 0.001, **changes})
    webhook = Webhook(settings, SystemClock(), random.Random(1), notices or MemoryNotices())
    running = asyncio.create_task(webhook.run("store", epoch))
    try:
        yield webhook
        if running.done():
            running.result()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def notification(number: int = 1, event: EventKind = EventKind.ALARM_RAISED) -> Notification:
    return Notification(
        id=f"store-3-{number}",
        event=event,
        time_ms=1_795_000_000_000,
        job=NotifiedJob(id=JobId("a" * 32), name="flüge", namespace="team-a", attempt=2),
        message="no micro-batch was committed for 301 s",
        alarm="no-commit",
        query="delays",
    )
