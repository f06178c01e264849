"""A task manager's link to the JobManager: registers, then reports everything it holds, whatever happens over there.

Only a refusal for good ends it: another process has this one's id, or the two keep checkpoints in different places.
While drivers or executors are here, not even that: they work for JobMasters that may know of no other process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import structlog

from emberkeep.base.beacon import Beacon
from emberkeep.base.configuration.options import STORAGE_DIRECTORY
from emberkeep.base.errors import Conflict, EmberkeepError, Fatal, InvalidInput
from emberkeep.base.system import System
from emberkeep.protocol.messages import (
    AttemptKey,
    RegisterTaskManager,
    TaskManagerHeartbeat,
    TaskManagerHeartbeatReply,
    TaskManagerRegistered,
    TaskManagerReport,
)
from emberkeep.protocol.transport import RpcClient
from emberkeep.slots.model import TaskManagerInfo

log = structlog.get_logger(__name__)

JobManagerReply = TaskManagerRegistered | TaskManagerHeartbeatReply


class LinkOwner(Protocol):
    """The actor whose state is reported."""

    @property
    def holds_nothing(self) -> bool:
        """Whether no slot is held and no driver lives here."""

    async def take_report(self) -> TaskManagerReport:
        """The present state, with the next sequence number."""

    def followed_lineage(self) -> str:
        """Of the job store whose JobManagers alone are followed; "": any."""

    def followed_epoch(self) -> int:
        """The highest one that was heard of there; 0 where any job store is followed."""

    def attempts_seen(self) -> tuple[AttemptKey, ...]:
        """The newest attempts that any JobManager has spoken of here, SEEN_JOBS at most."""

    async def take_reply(self, reply: JobManagerReply) -> None:
        """Act on an answer. Raises RetryLater when it comes from a JobManager that is not the newest."""


class JobManagerLink:
    """``job_manager``: its address at present. ``silence_timeout``: seconds after which a silent one counts as away.

    After twice that time of uninterrupted Conflict this process gives up, if it holds nothing. One that was refused
    and never registered lets others register before it at a JobManager that may not have met them yet.
    """

    def __init__(
        self,
        system: System,
        rpc: RpcClient,
        info: TaskManagerInfo,
        owner: LinkOwner,
        job_manager: str,
        *,
        interval: float,
        rpc_timeout: float,
        silence_timeout: float,
    ) -> None:
        self.registered = False
        self.on_silence: Callable[[], None] = lambda: None  # the JobManager has not answered, or is not the newest
        self._system = system
        self._rpc = rpc
        self.info = info
        self._owner = owner
        self.job_manager = job_manager
        self._rpc_timeout = rpc_timeout
        self._silence_timeout = silence_timeout
        self._registers_from = 0.0  # on the monotonic clock
        self._beacon = Beacon(interval, system.rng)
        self._refused_since: float | None = None
        self._silent = False
        self._welcomed = False  # some JobManager has registered this process
        self._closed = False

    def wake(self) -> None:
        """Something to report has changed."""
        self._beacon.wake()

    def follow(self, job_manager: str) -> None:
        """Another JobManager leads now."""
        if job_manager == self.job_manager:
            return
        log.info("following the leader", job_manager=job_manager, before=self.job_manager)
        self.job_manager = job_manager
        self.registered = False
        self._let_others_go_first()
        self._beacon.restart()

    async def run(self) -> None:
        """Report until cancelled. Raises Fatal after a lasting refusal, or when the first
        JobManager keeps checkpoints elsewhere."""
        await self._beacon.run(self._send)

    async def say_goodbye(self) -> None:
        """Report for the last time, once: who is gone must not register again."""
        try:
            await self._send()
        finally:
            self._closed = True

    async def _send(self) -> bool:
        """Register or report once; returns whether the JobManager has answered. Raises Fatal, see ``run``."""
        if self._closed:
            return True
        if not self.registered and self._system.clock.monotonic() < self._registers_from:
            return False
        try:
            await (self._report() if self.registered else self._register())
        except Conflict as error:
            self.registered = False
            self._note_refusal(error)
        except InvalidInput as error:
            if error.field == STORAGE_DIRECTORY.key and not self._welcomed:
                # What runs here goes on: whoever mends the configuration starts this task manager again. Later it is
                # another JobManager's mistake, which must not end anything here.
                raise Fatal(
                    f"the JobManager at {self.job_manager} refuses this configuration: {error.message}", hint=error.hint
                ) from error
            self._note_silence(error)
        except EmberkeepError as error:
            self._note_silence(error)
        else:
            self._refused_since = None
            if self._silent:
                log.info("the JobManager answers again", job_manager=self.job_manager)
            self._silent = False
            return True
        return False

    async def _register(self) -> None:
        report = await self._owner.take_report()
        request = RegisterTaskManager(
            info=self.info,
            report=report,
            attempts=self._owner.attempts_seen(),
            lineage=self._owner.followed_lineage(),
            epoch=self._owner.followed_epoch(),
        )
        reply = await self._rpc.call(self.job_manager, request, TaskManagerRegistered, timeout=self._rpc_timeout)
        await self._owner.take_reply(reply)
        if reply.heartbeat_interval > 0:
            self._beacon.interval = reply.heartbeat_interval
        self.registered = self._welcomed = True
        log.info("registered at the JobManager", job_manager=self.job_manager, epoch=reply.epoch)

    async def _report(self) -> None:
        request = TaskManagerHeartbeat(
            id=self.info.id,
            instance=self.info.instance,
            report=await self._owner.take_report(),
            lineage=self._owner.followed_lineage(),
            epoch=self._owner.followed_epoch(),
        )
        reply = await self._rpc.call(self.job_manager, request, TaskManagerHeartbeatReply, timeout=self._rpc_timeout)
        if not reply.known:  # there is nothing else in it
            self.registered = False
            self._beacon.wake()
            return
        await self._owner.take_reply(reply)

    def _let_others_go_first(self) -> None:
        """Whoever has the id that this process was refused is to reach the next JobManager before it."""
        if self._refused_since is not None and not self._welcomed:
            self._registers_from = self._system.clock.monotonic() + self._silence_timeout
        self._refused_since = None

    def _note_silence(self, error: EmberkeepError) -> None:
        self._let_others_go_first()
        self.on_silence()
        if not self._silent:
            log.warning("the JobManager does not answer; going on and trying again", reason=str(error))
        self._silent = True

    def _note_refusal(self, error: Conflict) -> None:
        now = self._system.clock.monotonic()
        if self._refused_since is None:
            self._refused_since = now
            log.warning("the JobManager refuses this task manager", reason=str(error))
        elif now - self._refused_since > 2 * self._silence_timeout and self._owner.holds_nothing:
            raise Fatal(
                f"the JobManager at {self.job_manager} refuses task manager {self.info.id}: {error.message}",
                hint=error.hint or "give each task manager its own taskmanager.resource-id and working directory",
            ) from error
