"""A JobMaster as its driver process uses it.

It has one RPC service, one coroutine to run, and calls that survey local state and report the attempt's outcome.
"""

from __future__ import annotations

import asyncio

import structlog

from emberkeep.base.beacon import answer_timeout
from emberkeep.base.configuration.options.job_managers import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT, RPC_TIMEOUT
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Conflict, EmberkeepError, InvalidInput
from emberkeep.base.system import System
from emberkeep.jobmaster.identity import Identity
from emberkeep.jobmaster.job_master import JobMaster
from emberkeep.jobmaster.local_state_survey import take_survey
from emberkeep.jobmaster.ports import SparkDriver
from emberkeep.jobs.model import AttemptOutcome, FailureKind
from emberkeep.local_state.placement import Survey
from emberkeep.protocol.messages.executors import ExecutorChanged, OfferSlots
from emberkeep.protocol.messages.job_masters import ReadProgress, ReportNow, ReportOutcome
from emberkeep.protocol.messages.root import Ack, Message
from emberkeep.protocol.transport import RpcClient

log = structlog.get_logger(__name__)

REPORT_PAUSE = 0.5  # seconds between two tries to report the outcome


class JobMasterService:
    """One JobMaster. Call all methods, including those of ``master``, on the event loop of ``run``.

    ``master`` takes the events of the SparkContext, and its link holds the JobManager's address.
    """

    def __init__(
        self,
        system: System,
        configuration: Configuration,
        rpc: RpcClient,
        spark: SparkDriver,
        identity: Identity,
        job_manager: str,
    ) -> None:
        self.master = JobMaster(system, configuration, rpc, spark, identity, job_manager)
        self._system = system
        self._rpc = rpc
        self._release_wait = configuration[HEARTBEAT_INTERVAL]
        self._report_timeout = configuration[HEARTBEAT_TIMEOUT]
        self._rpc_timeout = configuration[RPC_TIMEOUT]
        # Of one try: a leader whose machine is gone answers nothing, and the next one is asked after that.
        self._report_try = answer_timeout(self._rpc_timeout, self._report_timeout)

    async def run(self) -> None:
        """Serve requests, send heartbeats and report until cancelled."""
        await self.master.run()

    async def serve(self, request: Message) -> Message:
        """Answer one request of a task manager or the JobManager, see RpcService.

        Needs ``run``. Raises InvalidInput for other messages.
        """
        if not isinstance(request, OfferSlots | ExecutorChanged | ReportNow | ReadProgress):
            raise InvalidInput(f"a JobMaster does not serve {type(request).__name__}")
        return await self.master.serve(request)

    async def survey_local_state(self) -> Survey:
        """Return the job's local state on its nodes, and their executors. Takes one RPC timeout at most."""
        slots = await self.master.slots()
        return await take_survey(self.master.identity, slots, self._rpc, self._rpc_timeout)

    async def report_outcome(self, outcome: AttemptOutcome) -> None:
        """Return all slots and report to the JobManager how the attempt ended. Needs ``run`` until this returns.

        First writes the newest progress of streaming queries, which takes 3 s at most. Then retries the report for
        ``heartbeat.timeout``, but tries only once if the driver was stopped from outside (FailureKind.LOST): the
        process that stopped it knows, and may be stopping JobManagers as well. Finally waits up to
        ``heartbeat.interval`` until task managers have taken the slots back.

        Raises the last error if no report succeeded; the task manager reports the outcome then. A refusal counts as
        reported: the JobManager has decided already.
        """
        await self.master.end()
        await self.master.progress.write_last()
        try:
            await self._report(outcome)
        finally:
            await self._wait_released()

    async def _report(self, outcome: AttemptOutcome) -> None:
        identity = self.master.identity
        link = self.master.link
        request = ReportOutcome(
            job_id=identity.job_id,
            attempt=identity.attempt,
            outcome=outcome,
            lineage=link.lineage,
            known_epoch=link.epoch,
        )
        patience = 0.0 if outcome.kind is FailureKind.LOST else self._report_timeout
        give_up = self._system.clock.monotonic() + patience
        while True:
            try:
                await self._rpc.call(link.job_manager, request, Ack, timeout=self._report_try)
            except Conflict as error:
                log.warning("the outcome was refused", reason=str(error))
                return
            except EmberkeepError:
                if self._system.clock.monotonic() >= give_up:
                    raise
                await asyncio.sleep(REPORT_PAUSE)
            else:
                return

    async def _wait_released(self) -> None:
        """Give task managers a moment to learn that their slots are free. Otherwise they notice it later."""
        try:
            async with asyncio.timeout(self._release_wait):
                await self.master.all_released.wait()
        except TimeoutError:
            log.info("the process ends before all slots were released; their task managers detect this and free them")
