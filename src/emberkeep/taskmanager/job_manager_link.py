"""A task manager's link to the JobManager: registers, then reports everything that the task manager holds.

Lost contact never ends the link. Only a lasting refusal does: another process has the id of this one, or the first
JobManager keeps checkpoints in another location. A refused id does not end the link while slots are held or drivers are
alive here, because they work for JobMasters that may know no other process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import structlog

from emberkeep.base.beacon import Beacon, answer_timeout
from emberkeep.base.configuration.options.directories import STORAGE_DIRECTORY
from emberkeep.base.configuration.options.job_managers import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT, RPC_TIMEOUT
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Conflict, EmberkeepError, Fatal, InvalidInput
from emberkeep.base.system import System
from emberkeep.protocol.messages.task_manager_reports import TaskManagerReport
from emberkeep.protocol.messages.task_managers import (
    AttemptKey,
    RegisterTaskManager,
    TaskManagerHeartbeat,
    TaskManagerHeartbeatReply,
    TaskManagerRegistered,
)
from emberkeep.protocol.transport import RpcClient
from emberkeep.slots.model import TaskManagerInfo

log = structlog.get_logger(__name__)

_MOST_REASONS = 10  # for one silence, in the log

JobManagerReply = TaskManagerRegistered | TaskManagerHeartbeatReply


class LinkOwner(Protocol):
    """The actor whose state is reported."""

    @property
    def holds_nothing(self) -> bool:
        """True if no slot is held and no driver is alive here."""

    async def take_report(self) -> TaskManagerReport:
        """Return a report of the current state, with the next sequence number."""

    def followed_lineage(self) -> str:
        """Return the lineage of the only job store whose JobManagers are followed; "" if all are followed."""

    def followed_epoch(self) -> int:
        """Return the highest epoch seen from that job store's JobManagers; 0 if all job stores are followed."""

    def attempts_seen(self) -> tuple[AttemptKey, ...]:
        """Return the newest attempts that this task manager knows of, at most SEEN_JOBS."""

    async def take_reply(self, reply: JobManagerReply) -> None:
        """Act on a reply. Raises RetryLater if its JobManager is not the newest leader."""


class JobManagerLink:
    """Registers a task manager with a JobManager, and sends reports to it.

    ``job_manager``: its current address; ``epoch``: of the leader that has registered this process last. The link
    raises Fatal after Conflict replies for more than twice the heartbeat timeout, if the owner holds nothing. A
    process that was refused and never registered waits one heartbeat timeout before it registers with the next
    JobManager, so that a process that holds the same id registers first.
    """

    def __init__(
        self,
        system: System,
        configuration: Configuration,
        rpc: RpcClient,
        info: TaskManagerInfo,
        owner: LinkOwner,
        job_manager: str,
    ) -> None:
        self.registered = False
        # the JobManager has not replied, or is not the newest leader
        self.on_silence: Callable[[], None] = lambda: None
        self._system = system
        self._rpc = rpc
        self.info = info
        self._owner = owner
        self.job_manager = job_manager
        self.epoch = 0
        self._silence_timeout = configuration[HEARTBEAT_TIMEOUT]
        self._answer_timeout = answer_timeout(configuration[RPC_TIMEOUT], self._silence_timeout)
        self._registers_from = 0.0  # on the monotonic clock
        self._beacon = Beacon(configuration[HEARTBEAT_INTERVAL], system.rng)
        self._refused_since: float | None = None
        self._silences: set[str] = set()  # their reasons, since the JobManager's last reply
        self._welcomed = False  # a JobManager has registered this process
        self._closed = False

    def wake(self) -> None:
        """Send the next report early, because the state has changed."""
        self._beacon.wake()

    def follow(self, job_manager: str) -> None:
        """Register with the new leader at this address. Does nothing if this is the current JobManager's address."""
        if job_manager == self.job_manager:
            return
        log.info("following the leader", job_manager=job_manager, before=self.job_manager)
        self.job_manager = job_manager
        self.registered = False
        self._let_others_go_first()
        self._beacon.restart()

    async def run(self) -> None:
        """Report until cancelled.

        Raises Fatal if JobManagers keep refusing this task manager, as the class describes, or if the first JobManager
        keeps checkpoints elsewhere.
        """
        await self._beacon.run(self._send)

    async def say_goodbye(self) -> None:
        """Report one last time. Send nothing afterwards, so that a stopping process does not register again."""
        try:
            await self._send()
        finally:
            self._closed = True

    async def _send(self) -> bool:
        """Register or report once. Return True if the JobManager replied. Raises Fatal, see ``run``."""
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
                # Drivers and executors here continue to run: the task manager is started again with a corrected
                # configuration. After the first registration the mistake is another JobManager's, which must not end
                # anything here.
                raise Fatal(
                    f"the JobManager at {self.job_manager} refuses this configuration: {error.message}", hint=error.hint
                ) from error
            self._note_silence(error)
        except EmberkeepError as error:
            self._note_silence(error)
        else:
            self._refused_since = None
            if self._silences:
                log.info("the JobManager answers again", job_manager=self.job_manager)
            self._silences.clear()
            return True
        return False

    async def _register(self) -> None:
        report = await self._owner.take_report()
        request = RegisterTaskManager(
            info=self.info,
            report=report,
            attempts=self._owner.attempts_seen(),
            lineage=self._owner.followed_lineage(),
            known_epoch=self._owner.followed_epoch(),
        )
        reply = await self._rpc.call(self.job_manager, request, TaskManagerRegistered, timeout=self._answer_timeout)
        await self._owner.take_reply(reply)
        if reply.heartbeat_interval > 0:
            self._beacon.interval = reply.heartbeat_interval
        self.epoch = reply.epoch
        self.registered = self._welcomed = True
        log.info("registered at the JobManager", job_manager=self.job_manager, epoch=reply.epoch)

    async def _report(self) -> None:
        request = TaskManagerHeartbeat(
            id=self.info.id,
            instance=self.info.instance,
            report=await self._owner.take_report(),
            lineage=self._owner.followed_lineage(),
            known_epoch=self._owner.followed_epoch(),
        )
        reply = await self._rpc.call(self.job_manager, request, TaskManagerHeartbeatReply, timeout=self._answer_timeout)
        if not reply.known:  # such a reply has nothing else
            self.registered = False
            self._beacon.wake()
            return
        await self._owner.take_reply(reply)

    def _let_others_go_first(self) -> None:
        """Delay registration so that the process with the refused id reaches the next JobManager first."""
        if self._refused_since is not None and not self._welcomed:
            self._registers_from = self._system.clock.monotonic() + self._silence_timeout
        self._refused_since = None

    def _note_silence(self, error: EmberkeepError) -> None:
        self._let_others_go_first()
        self.on_silence()
        reason = str(error)
        if reason not in self._silences and len(self._silences) < _MOST_REASONS:
            log.warning("the JobManager does not answer; work continues, trying again", reason=reason)
            self._silences.add(reason)

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
