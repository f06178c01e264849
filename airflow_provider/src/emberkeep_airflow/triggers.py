"""Triggers: wait in Airflow's triggerer for the end of a job, or for a savepoint, without a worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from emberkeep.base.errors import EmberkeepError, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.client.log_copy import ProblemClock
from emberkeep.client.rest_client import RestClient
from emberkeep_airflow.hook import EmberkeepHook
from emberkeep_airflow.job_run import cancelled
from emberkeep_airflow.savepoints import SavepointWait

_SILENCE = 300.0  # seconds without a JobManager after which the task is told
_PATIENCE = 20.0  # seconds; Airflow gives on_kill 30
_SHORTEST_PAUSE = 0.01  # seconds; the triggerer has other triggers


class EmberkeepJobTrigger(BaseTrigger):
    """Fire once when a job has ended, when ``deadline`` (Unix seconds) has passed, or when the job cannot be watched.

    ``cancel_on_kill``: cancel the job when a user ends the deferred task. The job is not affected by the end of the
    triggerer: another one continues to wait.
    """

    def __init__(
        self,
        emberkeep_conn_id: str,
        job_id: str,
        poll_interval: float,
        deadline: float | None = None,
        cancel_on_kill: bool = True,
    ) -> None:
        super().__init__()
        self.emberkeep_conn_id = emberkeep_conn_id
        self.job_id = job_id
        self.poll_interval = poll_interval
        self.deadline = deadline
        self.cancel_on_kill = cancel_on_kill

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "emberkeep_airflow.triggers.EmberkeepJobTrigger", {
            "emberkeep_conn_id": self.emberkeep_conn_id,
            "job_id": self.job_id,
            "poll_interval": self.poll_interval,
            "deadline": self.deadline,
            "cancel_on_kill": self.cancel_on_kill,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        try:
            access = await EmberkeepHook(self.emberkeep_conn_id).access_async()
            async with RestClient(access.endpoint, patience=_PATIENCE) as client:
                event = await self._wait(client)
        except EmberkeepError as error:
            event = {"problem": str(error)}
        yield TriggerEvent({"job_id": self.job_id, **event})

    async def on_kill(self) -> None:
        """Cancel the job: a user has cleared the deferred task, or marked it."""
        if not self.cancel_on_kill:
            return
        access = await EmberkeepHook(self.emberkeep_conn_id).access_async()
        async with RestClient(access.endpoint, patience=_PATIENCE) as client:
            if await cancelled(client, JobId(self.job_id)):
                self.log.info("job %s is being cancelled, because its task was ended", self.job_id)

    async def _wait(self, client: RestClient) -> dict[str, Any]:
        silence = ProblemClock(_SILENCE)
        while True:
            try:
                job = await client.job(JobId(self.job_id))
            except RetryLater:
                if silence.is_over():
                    raise
            else:
                silence.reset()
                if job.state.is_globally_terminal:
                    return {"state": job.state.value}
            pause = max(self.poll_interval, _SHORTEST_PAUSE)
            left = pause if self.deadline is None else self.deadline - time.time()
            if left <= 0:
                return {"timed_out": True}
            await asyncio.sleep(min(left, pause))


class EmberkeepSavepointTrigger(BaseTrigger):
    """Fire once when a job has a savepoint that was made at or after ``after_ms`` (Unix milliseconds), or never will.

    ``job``: the job's id, a prefix of the id, or its name.
    """

    def __init__(self, emberkeep_conn_id: str, job: str, after_ms: int, poll_interval: float) -> None:
        super().__init__()
        self.emberkeep_conn_id = emberkeep_conn_id
        self.job = job
        self.after_ms = after_ms
        self.poll_interval = poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "emberkeep_airflow.triggers.EmberkeepSavepointTrigger", {
            "emberkeep_conn_id": self.emberkeep_conn_id,
            "job": self.job,
            "after_ms": self.after_ms,
            "poll_interval": self.poll_interval,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        try:
            access = await EmberkeepHook(self.emberkeep_conn_id).access_async()
            async with RestClient(access.endpoint, patience=_PATIENCE) as client:
                yield TriggerEvent({"savepoint": await self._wait(client)})
        except EmberkeepError as error:
            yield TriggerEvent({"problem": str(error)})

    async def _wait(self, client: RestClient) -> str:
        wait, silence = SavepointWait(self.job, self.after_ms), ProblemClock(_SILENCE)
        while True:
            try:
                found = await wait.look(client)
            except RetryLater:
                if silence.is_over():
                    raise
            else:
                silence.reset()
                if found:
                    return found
            await asyncio.sleep(max(self.poll_interval, _SHORTEST_PAUSE))
