"""Pushes metrics at an interval. A push that fails is not repeated: the next one carries newer values of everything."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import structlog
from prometheus_client.core import Metric

from emberkeep.adapters.otlp.outcome import PushOutcome
from emberkeep.adapters.otlp.settings import OtlpSettings
from emberkeep.base.clock import Clock
from emberkeep.base.errors import EmberkeepError, Unavailable
from emberkeep.base.processes.threads import start_thread

_GRACE_SECONDS = 2.0  # for what the exporter does beside waiting
_LONGEST_PAUSE_SECONDS = 300.0  # a collector that asks for more gets the next push after this
_LAST_SECONDS = 2.0  # at an orderly end, the longest wait for the last push

log = structlog.get_logger(__name__)

Families = Callable[[], Awaitable[Sequence[Metric]]]


class Exporter(Protocol):
    """Sends metrics. Its calls block."""

    def send(self, families: Sequence[Metric], now_ms: int) -> PushOutcome:
        """Send ``families``; return what became of that."""

    def close(self) -> None: ...


class OtlpPusher:
    """Pushes while ``run`` runs, one push at a time. At most one thread of it exists."""

    def __init__(self, settings: OtlpSettings, exporter: Exporter, families: Families, clock: Clock) -> None:
        """``families`` returns the current metrics, or raises an EmberkeepError."""
        self._settings = settings
        self._exporter = exporter
        self._families = families
        self._clock = clock
        self._turn = asyncio.Lock()
        self._idle = threading.Event()  # clear while a thread sends
        self._idle.set()
        self._is_running = False
        self._problem = ""
        self._pause = 0.0
        self.sent = 0
        self.failed = 0

    async def run(self) -> None:
        """Push at once and then at each interval, or later if the endpoint asks for that, until cancelled."""
        self._is_running = True
        try:
            while True:
                began = self._clock.monotonic()
                async with self._turn:
                    if self._is_running:
                        await self._push()
                pause = min(self._pause, _LONGEST_PAUSE_SECONDS)
                await asyncio.sleep(max(0.0, pause, began + self._settings.interval - self._clock.monotonic()))
        finally:
            self._exporter.close()

    async def finish(self) -> None:
        """Push for the last time. Skip that if the newest push failed; wait at most _LAST_SECONDS."""
        try:
            async with asyncio.timeout(_LAST_SECONDS), self._turn:
                if self._is_running and not self._problem:
                    await self._push()
        except TimeoutError:
            log.warning("the last metrics may not have reached the OpenTelemetry endpoint", seconds=_LAST_SECONDS)
        finally:
            self._is_running = False

    async def _push(self) -> None:
        limit = self._settings.timeout + _GRACE_SECONDS
        self._pause = 0.0
        try:
            async with asyncio.timeout(limit):
                outcome = await self._send(await self._families())
                problem, self._pause = outcome.problem, outcome.pause
        except EmberkeepError as error:
            problem = f"the metrics cannot be read: {error.message}"
        except TimeoutError:
            problem = f"it has not answered for {limit:g} s"
        except Exception as error:  # noqa: BLE001 - a fault in one gauge must not end the leader
            problem = f"the metrics cannot be read: {type(error).__name__}: {error}"
        if problem:
            self.failed += 1
        else:
            self.sent += 1
        self._note(problem)

    async def _send(self, families: Sequence[Metric]) -> PushOutcome:
        """Send in a thread, which a process that ends does not wait for."""
        if not self._idle.is_set():
            return PushOutcome("it has not yet answered an earlier push")
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[PushOutcome] = loop.create_future()
        now_ms = self._clock.now_ms()

        def send() -> None:
            try:
                sent = self._exporter.send(families, now_ms)
            except Exception as error:  # noqa: BLE001 - a fault of an optional library must not end the leader
                sent = PushOutcome(f"{type(error).__name__}: {error}")
            self._idle.set()
            with contextlib.suppress(RuntimeError):  # the loop is closed, so nothing waits
                loop.call_soon_threadsafe(_complete, outcome, sent)

        self._idle.clear()
        try:
            start_thread(send, "metrics-push")
        except Unavailable:
            self._idle.set()
            raise
        return await outcome

    def _note(self, problem: str) -> None:
        """Log the beginning and the end of a failure, not each push."""
        if problem and not self._problem:
            log.warning(
                "cannot push all metrics to the OpenTelemetry endpoint, trying again at each interval",
                endpoint=self._settings.endpoint,
                reason=problem,
            )
        elif self._problem and not problem:
            log.info("the OpenTelemetry endpoint takes all metrics again", endpoint=self._settings.endpoint)
        self._problem = problem


def _complete(outcome: asyncio.Future[PushOutcome], sent: PushOutcome) -> None:
    if not outcome.done():
        outcome.set_result(sent)
