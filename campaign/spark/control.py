"""What a user asks of the cluster during a history. Each call is repeated while nobody answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from campaign.processes.calls import Calls, NotDone, Unknown
from campaign.processes.cluster import Member, RealCluster
from emberkeep.base.errors import Absent, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.blocklist.model import BlockAction
from emberkeep.client.endpoint import Endpoint
from emberkeep.client.rest_client import RestClient
from emberkeep.client.submission.job_submission import JobSubmitting
from emberkeep.client.submission.preparation import Program, prepare
from emberkeep.client.submission.spark_options import SparkOptions
from emberkeep.protocol.rest_blocklist import BlockRequest
from emberkeep.protocol.rest_jobs import JobDetailsInfo
from emberkeep.protocol.rest_savepoints import OperationStatus, TriggerResponse

ANSWER_SECONDS = 300.0  # within which all must work again, whatever has just happened, on a busy machine as well
POLL = 0.2
_SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_RESTARTS = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "200ms",
}

T = TypeVar("T")


class _Silent:
    """Progress of uploads that nobody looks at."""

    def begin(self, files: int, size: int) -> None: ...

    def file(self, name: str) -> None: ...

    def sent(self, count: int) -> None: ...

    def end(self) -> None: ...


class Control:
    """Use as ``async with``."""

    def __init__(self, cluster: RealCluster) -> None:
        self._cluster = cluster
        first, *others = cluster.urls
        # A client that gives up and asks anew would make a second request of one that was accepted.
        self._client = RestClient(Endpoint(first, cluster.token, others=tuple(others)), patience=ANSWER_SECONDS)
        self._calls = Calls(cluster.token)

    async def __aenter__(self) -> Control:
        await self._client.__aenter__()
        await self._calls.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._calls.__aexit__(kind, error, trace)
        await self._client.__aexit__(kind, error, trace)

    async def leader(self) -> Member | None:
        """Return the JobManager that says that it leads; None if none does now."""
        for member, url in zip(self._cluster.job_managers, self._cluster.urls, strict=True):
            try:
                reply = await self._calls.call("GET", url, "/leader", seconds=1.0)
            except (NotDone, Unknown):
                continue
            if reply.status == 200:
                return member
        return None

    async def answers(self) -> None:
        """Return once the cluster answers, with all its task managers."""

        async def look() -> bool:
            return (await self._client.overview()).taskmanagers == len(self._cluster.task_managers)

        await self._until(look, "all task managers are there")

    async def submit(
        self, script: Path, arguments: tuple[str, ...], *, hot: bool = False, savepoint: str = ""
    ) -> JobId:
        """Submit a job and return its id."""
        options = SparkOptions(
            conf=(f"spark.driver.defaultJavaOptions={_SMALL_JVM}", f"spark.executor.defaultJavaOptions={_SMALL_JVM}"),
            driver_memory="512m",
            executor_memory="512m",
            num_executors="1",
        )
        settings = {**_RESTARTS, **({"execution.standby": "hot"} if hot else {})}
        job = prepare(Program(str(script), None, arguments), options, settings, {}, savepoint=savepoint)
        submitting = JobSubmitting(self._client, job, _Silent(), lambda _: None, silence=ANSWER_SECONDS)
        return await self._repeated(submitting.run)

    async def job(self, job_id: JobId) -> JobDetailsInfo:
        return await self._repeated(lambda: self._client.job(job_id))

    async def savepoint(self, job_id: JobId, target: Path) -> str:
        """Make a savepoint and return its location. Raises ValueError with the reason if it fails."""
        asked = lambda: self._client.savepoints.create(job_id, target=str(target))  # noqa: E731
        return await self._completed(job_id, asked)

    async def stop(self, job_id: JobId, target: Path, *, drain: bool) -> str:
        """Stop a job and return the location of its savepoint. Raises ValueError with the reason if that fails."""
        asked = lambda: self._client.savepoints.stop(job_id, drain=drain, target=str(target))  # noqa: E731
        return await self._completed(job_id, asked)

    async def _completed(self, job_id: JobId, ask: Callable[[], Awaitable[TriggerResponse]]) -> str:
        trigger = (await self._repeated(ask)).request_id
        while True:
            state = await self._repeated(lambda: self._client.savepoints.status(job_id, trigger))
            if state.status.id is OperationStatus.COMPLETED:
                assert state.operation is not None
                if state.operation.location is None:
                    cause = state.operation.failure_cause
                    raise ValueError("it has no location" if cause is None else cause.stack_trace)
                return state.operation.location
            await asyncio.sleep(POLL)

    async def cancel(self, job_id: JobId) -> None:
        await self._repeated(lambda: self._client.cancel(job_id))

    async def evacuate(self, node: str) -> None:
        request = BlockRequest(
            action=BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS, cause="a fault of the history", allow_merge=True
        )
        await self._repeated(lambda: self._client.block(node, request))

    async def unblock(self, node: str) -> None:
        try:
            await self._repeated(lambda: self._client.unblock(node))
        except Absent:
            return

    async def _repeated(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call while nobody answers it. Raises what the cluster answers, and TimeoutError."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                return await call()
            except RetryLater as error:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"not within {ANSWER_SECONDS:g} s: {error}") from error
            await asyncio.sleep(POLL)

    async def _until(self, look: Callable[[], Awaitable[bool]], what: str) -> None:
        deadline = time.monotonic() + ANSWER_SECONDS
        while not await self._repeated(look):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {ANSWER_SECONDS:g} s: {what}")
            await asyncio.sleep(POLL)
