"""A JobMaster's link to the JobManager: registers, then reports the attempt's status until the driver ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

from emberkeep.base.beacon import Beacon, answer_timeout
from emberkeep.base.configuration.options.job_managers import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT, RPC_TIMEOUT
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Conflict, EmberkeepError
from emberkeep.base.system import System
from emberkeep.jobmaster.identity import Identity
from emberkeep.jobmaster.lease import AttemptLease
from emberkeep.protocol.messages.job_master_reports import JobMasterStatus
from emberkeep.protocol.messages.job_masters import JobMasterHeartbeat, JobMasterReply, RegisterJobMaster
from emberkeep.protocol.messages.root import Message
from emberkeep.protocol.transport import RpcClient

log = structlog.get_logger(__name__)


class LinkOwner(Protocol):
    """The actor whose state the link reports."""

    async def take_status(self) -> JobMasterStatus:
        """Return the current status, with the next sequence number."""

    async def take_reply(self, reply: JobMasterReply) -> None:
        """Act on a reply of the newest JobManager."""

    async def take_refusal(self, message: str) -> None:
        """Act on a JobManager's refusal: this attempt has ended."""


class JobManagerLink:
    """Reports to one JobManager at a time and ignores replies of an older epoch. All times are seconds."""

    def __init__(
        self,
        system: System,
        configuration: Configuration,
        rpc: RpcClient,
        identity: Identity,
        owner: LinkOwner,
        job_manager: str,
    ) -> None:
        self.registered = asyncio.Event()  # set at the first registration, never cleared
        self._rpc = rpc
        self._identity = identity
        self._owner = owner
        self.job_manager = job_manager  # its current address
        self._answer_timeout = answer_timeout(configuration[RPC_TIMEOUT], configuration[HEARTBEAT_TIMEOUT])
        self._beacon = Beacon(configuration[HEARTBEAT_INTERVAL], system.rng)
        self._known = False  # True if the JobManager knows of this attempt
        self.epoch = identity.epoch  # of the newest JobManager that has replied, at first of the one that started this
        self._older_answers = False
        self.lineage = identity.lineage  # of the job store in which ``epoch`` counts; "" until a reply names it
        self.lease: AttemptLease | None = None  # None: this process commits nothing
        self.on_silence: Callable[[], None] = lambda: None  # called if no reply came, or one of an older epoch

    def wake(self) -> None:
        """Report at once, because the status has changed."""
        self._beacon.wake()

    def follow(self, job_manager: str) -> None:
        """Report to ``job_manager``, which is the leader now."""
        if job_manager == self.job_manager:
            return
        log.info("following the leader", job_manager=job_manager, before=self.job_manager)
        self.job_manager = job_manager
        self._known = False
        self._beacon.restart()

    def ask(self) -> None:
        """Ask the JobManager at once, even during a pause after a failure, because the lease is in doubt."""
        self._beacon.restart()

    async def run(self) -> None:
        """Report until cancelled."""
        await self._beacon.run(self._send)

    async def _send(self) -> bool:
        status = await self._owner.take_status()
        asked = 0.0 if self.lease is None else self.lease.asking()
        in_doubt = self.lease is not None and self.lease.look()
        asks_confirmation = self.lease is not None and self.lease.needs_confirmation()
        request = self._request(status, in_doubt=in_doubt, asks_confirmation=asks_confirmation)
        try:
            reply = await self._rpc.call(self.job_manager, request, JobMasterReply, timeout=self._answer_timeout)
        except Conflict as error:
            self._known = False
            await self._owner.take_refusal(error.message)
            return False
        except EmberkeepError as error:
            log.debug("the JobManager does not answer", reason=str(error))
            self.on_silence()
            return False
        if reply.epoch < self.epoch:
            self._note_older(reply.epoch)
            self.on_silence()
            return False
        self._older_answers = False
        self.epoch = reply.epoch
        self.lineage = reply.lineage or self.lineage
        if self.lease is not None and reply.known:
            if reply.lease > 0:
                self.lease.shorten(reply.lease)
            if in_doubt or reply.confirmed:
                self.lease.confirmed(asked)
        self._note(reply)
        await self._owner.take_reply(reply)
        return True

    def _request(self, status: JobMasterStatus, *, in_doubt: bool, asks_confirmation: bool) -> Message:
        own = self._identity
        if self._known and not in_doubt:
            return JobMasterHeartbeat(
                job_id=own.job_id,
                attempt=own.attempt,
                status=status,
                lineage=self.lineage,
                known_epoch=self.epoch,
                asks_confirmation=asks_confirmation,
            )
        return RegisterJobMaster(
            job_id=own.job_id,
            attempt=own.attempt,
            address=own.address,
            task_manager=own.task_manager,
            pid=own.pid,
            status=status,
            in_doubt=in_doubt,
            lineage=self.lineage,
            known_epoch=self.epoch,
        )

    def _note_older(self, epoch: int) -> None:
        if not self._older_answers:
            log.warning(
                "a JobManager with an older epoch answers; if it is the leader, its job store was restored from an "
                "older copy: see docs/storage.md",
                epoch=epoch,
                newest=self.epoch,
            )
        self._older_answers = True

    def _note(self, reply: JobMasterReply) -> None:
        if reply.heartbeat_interval > 0:
            self._beacon.interval = reply.heartbeat_interval
        self._known = reply.known
        if reply.known:
            self.registered.set()
        else:
            self._beacon.wake()
