"""A JobMaster as its driver process sees it: one RPC service, one thing to run, and what the script's life tells it."""

from __future__ import annotations

import asyncio

import structlog

from emberkeep.base.configuration.options import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT, RPC_TIMEOUT
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Conflict, EmberkeepError, InvalidInput
from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.base.system import System
from emberkeep.jobmaster.events import Ending, StartedApplication, TakeSlots
from emberkeep.jobmaster.identity import Identity
from emberkeep.jobmaster.job_master import JobMaster
from emberkeep.jobmaster.local_state_survey import HeldSlots, take_survey
from emberkeep.jobmaster.ports import Application, SparkDriver
from emberkeep.jobs.model import AttemptOutcome, FailureKind
from emberkeep.local_state.placement import Survey
from emberkeep.protocol.messages import Ack, ExecutorChanged, Message, OfferSlots, ReportOutcome
from emberkeep.protocol.transport import RpcClient
from emberkeep.slots.pool.events import ApplicationStopped, ApplicationStopping

log = structlog.get_logger(__name__)

REPORT_PAUSE = 0.5  # seconds between two tries to report the outcome


class JobMasterService:
    """All methods are called on the loop that ``run`` runs on."""

    def __init__(
        self,
        system: System,
        configuration: Configuration,
        rpc: RpcClient,
        spark: SparkDriver,
        job_id: JobId,
        attempt: int,
        address: str,
        task_manager: TaskManagerId,
        job_manager: str,
        pid: int,
    ) -> None:
        identity = Identity(job_id=job_id, attempt=attempt, address=address, task_manager=task_manager, pid=pid)
        self.master = JobMaster(system, configuration, rpc, spark, identity, job_manager)
        self._system = system
        self._rpc = rpc
        self._release_wait = configuration[HEARTBEAT_INTERVAL]
        self._report_timeout = configuration[HEARTBEAT_TIMEOUT]
        self._rpc_timeout = configuration[RPC_TIMEOUT]

    @property
    def job_manager(self) -> str:
        """Address of the JobManager at present."""
        return self.master.link.job_manager

    def follow(self, job_manager: str) -> None:
        """Report to another JobManager: it leads now."""
        self.master.link.follow(job_manager)

    async def run(self) -> None:
        """Serve, beat and report until cancelled."""
        await self.master.run()

    async def serve(self, request: Message) -> Message:
        """See RpcService. Needs ``run``."""
        if not isinstance(request, OfferSlots | ExecutorChanged):
            raise InvalidInput(f"a JobMaster does not serve {type(request).__name__}")
        reply: Message = await self.master.ask(request)
        return reply

    async def registered(self) -> None:
        """Return once the JobManager has accepted this attempt. A refusal calls SparkDriver.abandon instead."""
        await self.master.registered.wait()

    def application_started(self, application: Application) -> None:
        """A SparkContext is up: executors are wanted."""
        self.master.tell(StartedApplication(application))

    def application_stopping(self) -> None:
        """The SparkContext begins to stop: executors end with it."""
        self.master.tell(ApplicationStopping())

    def application_stopped(self) -> None:
        """The SparkContext has stopped: all slots go back."""
        self.master.tell(ApplicationStopped())

    async def survey_local_state(self) -> Survey:
        """What the nodes hold of the job's state, and which executors they have. Takes one RPC timeout at most."""
        slots: HeldSlots = await self.master.ask(TakeSlots())
        return await take_survey(self.master.identity, slots, self._rpc, self._rpc_timeout)

    async def report_outcome(self, outcome: AttemptOutcome) -> None:
        """Give all slots back and tell the JobManager how the attempt ended; ``run`` must go on until this returns.

        Takes at most ``heartbeat.timeout`` and one RPC; only the RPC when the attempt was ended from outside: whoever
        did that knows it, and may be ending JobManagers as well. Raises the last error when the JobManager could not be
        told; the task manager will tell it then. A refusal counts as told: somebody else has decided already.
        """
        await self.master.ask(Ending())
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
            epoch=link.epoch,
        )
        patience = 0.0 if outcome.kind is FailureKind.LOST else self._report_timeout
        give_up = self._system.clock.monotonic() + patience
        while True:
            try:
                await self._rpc.call(self.job_manager, request, Ack, timeout=self._rpc_timeout)
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
        """A moment for task managers to hear that their slots are free; else they would find out later."""
        try:
            async with asyncio.timeout(self._release_wait):
                await self.master.all_released.wait()
        except TimeoutError:
            log.info("the process ends before all slots were given back; their task managers will notice")
