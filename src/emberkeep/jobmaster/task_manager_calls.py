"""Requests of a JobMaster to task managers. Each is retried until a reply arrives or it is no longer needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from emberkeep.base.beacon import answer_timeout, retry_pause
from emberkeep.base.errors import Absent, Conflict, EmberkeepError, Fatal, InvalidInput
from emberkeep.base.system import System
from emberkeep.jobmaster.identity import Identity
from emberkeep.jobmaster.ports import Application
from emberkeep.protocol.messages.executors import JobMasterBeat, ReleaseSlot, SlotsReply, StartExecutor
from emberkeep.protocol.messages.root import Ack
from emberkeep.protocol.transport import RpcClient
from emberkeep.slots.pool.events import ExecutorExited, SlotGone
from emberkeep.slots.pool.held_slot import HeldSlot

log = structlog.get_logger(__name__)

LONGEST_PAUSE = 2.0  # seconds between two tries


def start_request(identity: Identity, application: Application, slot: HeldSlot) -> StartExecutor:
    """Return the request that starts an executor of this application in a slot."""
    return StartExecutor(
        job_id=identity.job_id,
        attempt=identity.attempt,
        allocation_id=slot.allocation.id,
        executor_id=slot.executor.id,
        driver_url=application.driver_url,
        app_id=application.app_id,
        cores=slot.allocation.profile.cores,
        heap_mb=application.heap_mb,
        java_options=application.java_options,
        extra_class_path=application.extra_class_path,
        environ=application.environ,
        auth_secret=application.auth_secret,
        python_path=application.python_path,
        python_path_owner=application.python_path_owner,
        artefacts=application.artefacts,
        python=application.python,
        jars_first=application.jars_first,
        secrets=application.secrets,
        namespace_claim=application.namespace_claim,
    )


class TaskManagerCalls:
    """Requests with retries. ``rpc_timeout`` and ``silence_timeout`` are seconds."""

    def __init__(self, system: System, rpc: RpcClient, *, rpc_timeout: float, silence_timeout: float) -> None:
        self._system = system
        self._rpc = rpc
        self._rpc_timeout = rpc_timeout
        self._answer_timeout = answer_timeout(rpc_timeout, silence_timeout)
        self._silence_timeout = silence_timeout

    async def start(
        self, address: str, request: StartExecutor, still_wanted: Callable[[], bool]
    ) -> SlotGone | ExecutorExited | None:
        """Request the start of an executor, retrying until a reply arrives or the start is no longer needed.

        Return what went wrong, or None.
        """
        tries = 0
        while still_wanted():
            try:
                await self._rpc.call(address, request, Ack, timeout=self._rpc_timeout)
            except (Absent, Conflict, InvalidInput) as error:
                return SlotGone(request.allocation_id, request.executor_id, error.message)
            except Fatal as error:
                return ExecutorExited(request.allocation_id, request.executor_id, None, error.message)
            except EmberkeepError:
                tries += 1
                await self._pause(tries)
            else:
                return None
        return None

    async def release(self, address: str, request: ReleaseSlot) -> None:
        """Release a slot, retrying until a reply arrives, for at most ``silence_timeout`` seconds.

        After that the task manager frees the slot on its own, or offers it again and is refused.
        """
        give_up = self._system.clock.monotonic() + self._silence_timeout
        tries = 0
        while self._system.clock.monotonic() < give_up:
            try:
                await self._rpc.call(address, request, Ack, timeout=self._rpc_timeout)
            except (Absent, Conflict, InvalidInput, Fatal) as error:
                log.debug("a slot had been released before", reason=str(error))
                return
            except EmberkeepError:
                tries += 1
                await self._pause(tries)
            else:
                return

    async def beat(self, address: str, request: JobMasterBeat) -> SlotsReply | None:
        """Send one heartbeat.

        Return None if no reply arrives. Raises Conflict if the task manager knows of a newer attempt.
        """
        try:
            return await self._rpc.call(address, request, SlotsReply, timeout=self._answer_timeout)
        except Conflict:
            raise
        except EmberkeepError as error:
            log.debug("a task manager does not answer", address=address, reason=str(error))
            return None

    async def _pause(self, tries: int) -> None:
        await asyncio.sleep(retry_pause(tries, LONGEST_PAUSE, self._system.rng))
