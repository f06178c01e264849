"""Cancels jobs: a cancellation is durable before it is acknowledged, so the next leader knows of it too."""

from __future__ import annotations

import asyncio
from functools import partial

import structlog

from emberkeep.base.actors import Actor, ActorPart
from emberkeep.base.errors import Absent, Conflict, EmberkeepError, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.base.request_context import caller
from emberkeep.chronicle.occurrence import Occurrence, What
from emberkeep.jobmanager.answers import Answers
from emberkeep.jobmanager.jobs.job_machines import JobMachines
from emberkeep.jobmanager.store_writes import StoreWrites
from emberkeep.jobs import events as ev
from emberkeep.jobs.model import JobStatus

log = structlog.get_logger(__name__)


class Cancellations(ActorPart):
    """Passes a cancellation to the job's state machine once the job store has recorded it."""

    def __init__(self, owner: Actor, machines: JobMachines, writes: StoreWrites, answers: Answers) -> None:
        super().__init__(owner)
        self._machines = machines
        self._writes = writes
        self._answers = answers

    async def cancel(self, job_id: JobId, *, grace: float | None = None) -> None:
        """Cancel a job durably: once this returns, the next leader will know of it too.

        Raises Absent; Conflict if the job has ended otherwise; RetryLater, UnknownOutcome, Fatal.
        """
        answer = await self.ask(partial(self._cancel, job_id, grace, caller()))
        await answer

    def _cancel(self, job_id: JobId, grace: float | None, by: str) -> asyncio.Future[None]:
        ended = self._is_canceled(job_id)
        answer: asyncio.Future[None] = self._answers.new()
        if ended:
            answer.set_result(None)
        else:
            self._owner.start_effect(f"cancel {job_id}", self._record(job_id, grace, by, answer), deadline=None)
        return answer

    async def _record(self, job_id: JobId, grace: float | None, by: str, answer: asyncio.Future[None]) -> None:
        def give_up(error: EmberkeepError) -> None:
            if not answer.done():
                answer.set_exception(error)

        try:
            if not await self._writes.record_cancel(job_id, give_up):
                return
        except Absent:
            log.info("job ended before it could be canceled", job=job_id)
        except Conflict as error:  # another JobManager is the leader
            give_up(RetryLater(f"this JobManager is no longer the leader: {error.message}", hint="try again"))
            raise
        self.tell(partial(self._recorded, job_id, grace, by, answer))

    def _recorded(self, job_id: JobId, grace: float | None, by: str, answer: asyncio.Future[None]) -> None:
        try:
            if not self._is_canceled(job_id):
                self._note(job_id, by)
                self._machines.apply(job_id, ev.CancelRequested(grace))
        except (Absent, Conflict) as error:  # the job ended while the cancellation was written
            if not answer.done():
                answer.set_exception(error)
        if not answer.done():
            answer.set_result(None)

    def _note(self, job_id: JobId, by: str) -> None:
        status = self._machines.table.view(job_id).status
        if status is not JobStatus.CANCELLING:  # only the first of several requests
            self._machines.chronicle.note(
                Occurrence(
                    what=What.CANCEL_REQUESTED,
                    message=f"{by} asked to cancel the job" if by else "the job must be cancelled",
                    by=by,
                    job_id=job_id,
                )
            )

    def _is_canceled(self, job_id: JobId) -> bool:
        """True if the job has ended by cancellation, False if it has not ended.

        Raises Absent; Conflict if it has ended in another way.
        """
        status = self._machines.table.view(job_id).status
        if status.is_globally_terminal and status is not JobStatus.CANCELED:
            raise Conflict(f"job {job_id} has ended: it is {status.value}")
        return status.is_globally_terminal
