"""A task manager process as its callers see it: one RPC service, one ``run`` and one orderly shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from emberkeep.base.configuration.options.job_managers import RPC_TIMEOUT
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import EmberkeepError, InvalidInput, RetryLater
from emberkeep.base.identity import AttemptScope
from emberkeep.base.system import System
from emberkeep.protocol.messages.executors import JobMasterBeat, ListLocalState, LocalStateListed
from emberkeep.protocol.messages.logs import ListLogs, SearchLog, UploadLog
from emberkeep.protocol.messages.root import Message
from emberkeep.slots.model import TaskManagerInfo
from emberkeep.taskmanager.orders import Order
from emberkeep.taskmanager.ports import TaskManagerPorts
from emberkeep.taskmanager.task_executor import TaskExecutor

log = structlog.get_logger(__name__)

RETIRE_POLL = 0.2  # seconds between two checks of whether a retiring task manager is empty
SAVE_TIMEOUT = 5.0  # seconds to save what is left when this task manager ends
CLOSE_MARGIN = 5.0  # seconds, after the grace period, to kill processes that did not end by themselves


class TaskManagerService:
    """Serves the RPC requests of a task manager. ``job_manager``: the address where it first registers."""

    def __init__(
        self,
        system: System,
        configuration: Configuration,
        info: TaskManagerInfo,
        ports: TaskManagerPorts,
        job_manager: str,
    ) -> None:
        self.executor = TaskExecutor(system, configuration, info, ports, job_manager)
        self._system = system
        self._rpc_timeout = configuration[RPC_TIMEOUT]
        self._logs = ports.logs
        # called at the end of an orderly shutdown, once no process is left: a last chance to save what is here
        self.on_emptied: Callable[[], Awaitable[object]] | None = None
        self._local_state = ports.local_state

    @property
    def registered(self) -> bool:
        """True if this process is registered with its current JobManager."""
        return self.executor.link.registered

    @property
    def job_manager(self) -> str:
        """Address of the current JobManager."""
        return self.executor.link.job_manager

    async def _save(self) -> None:
        if self.on_emptied is None:
            return
        try:
            async with asyncio.timeout(SAVE_TIMEOUT):
                await self.on_emptied()
        except TimeoutError:
            log.warning("the newest lines of the logs here were not copied to the shared storage in time")

    def job_masters(self) -> dict[str, AttemptScope]:
        """Return the JobMasters that hold slots here: a map from the address of each to its attempt."""
        allocations = [slot.allocation for slot in self.executor.table.state.slots.values()]
        return {each.job_master: AttemptScope(each.job_id, each.attempt) for each in allocations}

    def follow(self, job_manager: str) -> None:
        """Register with another JobManager, the new leader."""
        self.executor.link.follow(job_manager)

    async def run(self) -> None:
        """Serve and report until cancelled. Raises what ``TaskExecutor.run`` raises."""
        await self.executor.run()

    async def serve(self, request: Message) -> Message:
        """See RpcService. Requires that ``run`` runs."""
        if isinstance(request, ListLogs | UploadLog | SearchLog) and self._logs is not None:
            return await self._logs.serve(request)
        if isinstance(request, ListLocalState):
            return (
                LocalStateListed(holdings=()) if self._local_state is None else await self._local_state.serve(request)
            )
        if not isinstance(request, Order):
            raise InvalidInput(f"a task manager does not serve {type(request).__name__}")
        reply = await self.executor.serve(request)
        if not isinstance(request, JobMasterBeat):  # a beat changes nothing that its sender relies on
            await self._settled()
        return reply

    async def _settled(self) -> None:
        """Wait until the slot table's record is on disk: the next task manager process must know what a reply promises.

        Raises RetryLater.
        """
        try:
            # half the RPC timeout, so that the caller gets the reason before its own timeout
            async with asyncio.timeout(self._rpc_timeout / 2):
                await self.executor.journal.settled()
        except TimeoutError:
            problem = self.executor.journal.problem or "the disk does not answer"
            raise RetryLater(f"the task manager cannot write its record: {problem}") from None

    def drain(self, seconds: float) -> None:
        """Accept nothing new, and let the work here move elsewhere for ``seconds``; then ``retired`` returns.

        For a machine that is about to be taken away: the JobManager learns of it with the next report. Repeating it
        changes nothing.
        """
        if not self.executor.orders.stop_asked.is_set():
            log.info("this task manager is about to end, its work moves elsewhere", seconds=seconds)
            self.executor.tell(partial(self.executor.orders.drain, seconds))

    async def retired(self) -> None:
        """Return once the caller must call ``shutdown``.

        This is the case once this task manager was ordered to stop, or told to drain, and all work here has ended or
        the time allowed for it has passed.
        """
        executor, orders = self.executor, self.executor.orders
        await orders.stop_asked.wait()
        while not executor.emptied.is_set() and self._system.clock.monotonic() < orders.stop_by:  # noqa: ASYNC110
            await asyncio.sleep(RETIRE_POLL)

    async def shutdown(self, grace: float) -> None:
        """Stop drivers, within ``grace`` seconds, and executors; refuse new work and report this to the JobManager.

        ``run`` must continue until this returns. That takes at most the grace period, CLOSE_MARGIN, SAVE_TIMEOUT
        and two RPC timeouts.
        """
        await self.executor.close(grace)
        self.executor.link.wake()
        try:
            async with asyncio.timeout(grace + CLOSE_MARGIN):
                await self.executor.emptied.wait()
        except TimeoutError:
            log.warning("processes did not end in time", slots=len(self.executor.table.state.slots))
        await self._save()
        try:
            await self._settled()
        except RetryLater as error:
            log.warning(
                "cannot write the record; the next task manager process here will look for processes that have ended",
                reason=str(error),
            )
        try:
            async with asyncio.timeout(self._rpc_timeout):
                await self.executor.link.say_goodbye()
        except (TimeoutError, EmberkeepError) as error:
            log.warning("cannot report the end of this task manager to the JobManager", reason=str(error))
