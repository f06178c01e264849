"""Delivers notifications to a web server by POST: signed, in order, and again after a failure."""

from __future__ import annotations

import asyncio
import random
import ssl
from dataclasses import dataclass, field
from http import HTTPStatus

import structlog
from aiohttp import ClientError, ClientResponseError, ClientSession, ClientTimeout

from emberkeep.adapters.webhooks.keeper import OutboxKeeper
from emberkeep.adapters.webhooks.signature import DELIVERY, EVENT, SIGNATURE, TIMESTAMP, signature
from emberkeep.base.clock import Clock
from emberkeep.notifications.model import EventKind, Notification, encode
from emberkeep.notifications.outbox import FIRST_PAUSE, Counts, Outbox
from emberkeep.notifications.ports import NoticeStore

# Refused now, perhaps accepted later. All other codes from 400 to 499 say that the request itself is wrong.
_LATER = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class WebhookSettings:
    """``tls``: the context for https; None for the system's CAs. The other settings: see Outbox. Times in seconds."""

    url: str = field(repr=False)
    secret: bytes = field(repr=False)
    events: frozenset[EventKind]
    timeout: float = 10.0
    patience: float = 3600.0
    queue: int = 1000
    first_pause: float = FIRST_PAUSE
    tls: ssl.SSLContext | None = None


class Webhook:
    """A Notifier. Nothing is sent before ``run`` runs; what waits when ``run`` ends is in ``store``."""

    def __init__(self, settings: WebhookSettings, clock: Clock, rng: random.Random, store: NoticeStore) -> None:
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._outbox = Outbox(settings.queue, settings.patience, settings.first_pause)
        self._keeper = OutboxKeeper(self._outbox, store)
        self._added = asyncio.Event()
        self._problem = ""

    @property
    def counts(self) -> Counts:
        return self._outbox.counts

    @property
    def waiting(self) -> int:
        return len(self._outbox)

    def notify(self, notification: Notification) -> None:
        """Implements Notifier."""
        if notification.event in self._settings.events:
            self._outbox.put(notification)
            self._added.set()
            self._keeper.changed()

    async def run(self, lineage: str, epoch: int) -> None:
        """Deliver until cancelled, beginning with what earlier leaders of the job store have not delivered."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep(lineage, epoch))
            tasks.create_task(self._send())

    async def _keep(self, lineage: str, epoch: int) -> None:
        await self._keeper.take_over(lineage, epoch)
        self._added.set()
        await self._keeper.run(lineage, epoch)

    async def _send(self) -> None:
        timeout = ClientTimeout(total=self._settings.timeout)
        async with ClientSession(timeout=timeout, trust_env=False) as session:
            while True:
                await self._wait()
                await self._deliver(session)
                self._keeper.changed()

    async def _wait(self) -> None:
        while (due := self._outbox.due_at()) is None:
            self._added.clear()
            await self._added.wait()
        await asyncio.sleep(max(0.0, due - self._clock.monotonic()))

    async def _deliver(self, session: ClientSession) -> None:
        outbox = self._outbox
        notification = outbox.begin(self._clock.monotonic())
        try:
            status = await self._post(session, notification)
        except (ClientError, OSError, TimeoutError, ValueError) as error:
            self._failed(notification, _reason(error))
            return
        if 200 <= status < 300:
            outbox.delivered()
            self._note("")
        elif 400 <= status < 500 and status not in _LATER:
            log.error("the webhook refuses an event, which is dropped", event_id=notification.id, status=status)
            outbox.refused()
        else:
            self._failed(notification, f"it answered with status {status}")

    def _failed(self, notification: Notification, reason: str) -> None:
        self._note(reason or "it does not answer")
        if not self._outbox.failed(self._clock.monotonic(), self._rng.random()):
            log.error("an event could not be sent to the webhook and is dropped", event_id=notification.id)

    def _note(self, problem: str) -> None:
        """Log the beginning and the end of a failure, not each try."""
        if problem and not self._problem:
            log.warning("cannot send an event to the webhook, trying again", reason=problem)
        elif self._problem and not problem:
            log.info("the webhook takes events again")
        self._problem = problem

    async def _post(self, session: ClientSession, notification: Notification) -> int:
        """Send one request and return the status. Redirects are not followed: they would receive the signature."""
        body = encode(notification)
        timestamp = str(self._clock.now_ms() // 1000)
        headers = {
            "Content-Type": "application/json",
            EVENT: notification.event.value,
            DELIVERY: notification.id,
            TIMESTAMP: timestamp,
            SIGNATURE: signature(self._settings.secret, timestamp, body),
        }
        tls = self._settings.tls or True
        async with session.post(
            self._settings.url, data=body, headers=headers, allow_redirects=False, ssl=tls
        ) as response:
            return response.status


def _reason(error: Exception) -> str:
    """Return why nothing was delivered, without the address, which may contain a secret."""
    if isinstance(error, ClientResponseError):
        return "its answer is not HTTP"
    return type(error).__name__ if isinstance(error, ValueError) else str(error)
