"""Calls that order task managers to start and stop drivers, and drivers to report."""

from __future__ import annotations

import structlog

from emberkeep.base.errors import EmberkeepError, RetryLater, UnknownOutcome
from emberkeep.base.ids import InstanceId, JobId
from emberkeep.jobmanager.jobs.admission import driver_need
from emberkeep.jobmanager.jobs.job_table import ManagedJob
from emberkeep.jobmanager.surroundings import Surroundings
from emberkeep.jobmanager.term import Term
from emberkeep.jobs import events as ev
from emberkeep.protocol.messages.job_masters import ReportNow
from emberkeep.protocol.messages.root import Ack
from emberkeep.protocol.messages.task_managers import StartDriver, StopDriver

log = structlog.get_logger(__name__)


class DriverCalls:
    """Sends each order in one call. The job's state machine repeats an order until it sees that it was followed."""

    def __init__(self, surroundings: Surroundings, timeout: float, term: Term) -> None:
        self._surroundings = surroundings
        self._rpc = surroundings.rpc
        self._checkpoints_recorded = surroundings.checkpoints_recorded()
        self._timeout = timeout
        self._term = term

    async def start(self, job: ManagedJob, attempt: int, place: ev.DriverPlace) -> ev.Event | None:
        """Order a driver's start. Return the task manager's reply, or None if the order must be repeated."""
        request = StartDriver(
            epoch=self._term.epoch,
            graph=job.state.graph,
            attempt=attempt,
            memory_mb=driver_need(job.state.graph).memory_mb,
            job_manager=self._surroundings.address,
            checkpoint_root=self._surroundings.checkpoint_root,
            checkpoints_recorded=self._checkpoints_recorded,
            checkpoints=job.pointers.queries,
            procedure=job.requests.current,
            lineage=self._term.lineage,
        )
        try:
            await self._rpc.call(place.address, request, Ack, timeout=self._timeout)
        except (RetryLater, UnknownOutcome) as error:
            log.info(
                "no reply to the start of a driver", job=job.job_id, task_manager=place.task_manager, reason=str(error)
            )
            return None
        except EmberkeepError as error:
            return ev.StartRefused(attempt, f"task manager {place.task_manager} does not start the driver: {error}")
        return ev.StartAccepted(attempt)

    async def stop(
        self, job_id: JobId, attempt: int, place: ev.DriverPlace, grace: float
    ) -> ev.DriverNeverThere | None:
        """Order a driver to stop. Return what the task manager's reply proves, if anything. An error is only logged."""
        request = StopDriver(
            epoch=self._term.epoch, job_id=job_id, attempt=attempt, grace=grace, lineage=self._term.lineage
        )
        try:
            reply = await self._rpc.call(place.address, request, Ack, timeout=self._timeout)
        except EmberkeepError as error:
            log.info("cannot stop a driver", job=job_id, task_manager=place.task_manager, reason=str(error))
            return None
        return ev.DriverNeverThere(attempt, InstanceId(reply.never_had_by)) if reply.never_had_by else None

    async def wake(self, job: ManagedJob) -> None:
        """Make the job's JobMaster send its next heartbeat at once. Without it, the regular one does the same."""
        if job.job_master:
            request = ReportNow(job_id=job.job_id, attempt=job.state.attempt)
            try:
                await self._rpc.call(job.job_master, request, Ack, timeout=self._timeout)
            except EmberkeepError as error:
                log.debug("cannot wake a JobMaster", job=job.job_id, reason=str(error))
