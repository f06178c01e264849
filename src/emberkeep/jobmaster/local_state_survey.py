"""Local state of a job on the nodes of its attempt: a JobMaster asks their task managers before it places a query."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec
import structlog

from emberkeep.base.errors import EmberkeepError
from emberkeep.jobmaster.identity import Identity
from emberkeep.local_state.model import Holding
from emberkeep.local_state.placement import ExecutorPlace, Survey
from emberkeep.protocol.messages.executors import ListLocalState, LocalStateListed
from emberkeep.protocol.transport import RpcClient
from emberkeep.slots.model import TaskManagerInfo
from emberkeep.slots.pool.state import PoolState

log = structlog.get_logger(__name__)


class HeldSlots(msgspec.Struct, frozen=True, kw_only=True):
    """Executors and task managers of an attempt that can take new work."""

    wanted: int  # executors that the application asks for
    executors: tuple[ExecutorPlace, ...]
    task_managers: tuple[TaskManagerInfo, ...]


def held_slots(pool: PoolState) -> HeldSlots:
    """Return the slots held now, without those that leave, are dismissed or cordoned: nothing new is placed there."""
    slots = tuple(slot for slot in pool.held.values() if slot.takes_new_work)
    return HeldSlots(
        wanted=pool.wanted,
        executors=tuple(
            ExecutorPlace(executor_id=slot.executor.id, host=slot.task_manager.host, task_manager=slot.task_manager.id)
            for slot in slots
        ),
        task_managers=tuple({slot.task_manager.id: slot.task_manager for slot in slots}.values()),
    )


async def take_survey(identity: Identity, slots: HeldSlots, rpc: RpcClient, rpc_timeout: float) -> Survey:
    """Ask all task managers at once. The result leaves out those that do not answer within ``rpc_timeout`` seconds.

    A task manager that is left out may hold the newest copy of a partition.
    """
    request = ListLocalState(job_id=identity.job_id, attempt=identity.attempt)

    async def ask(info: TaskManagerInfo) -> tuple[Holding, ...] | None:
        try:
            return (await rpc.call(info.address, request, LocalStateListed, timeout=rpc_timeout)).holdings
        except EmberkeepError as error:
            log.warning("cannot list the local state of a task manager", task_manager=info.id, reason=str(error))
            return None

    answers: Iterable[tuple[Holding, ...] | None] = await asyncio.gather(*map(ask, slots.task_managers))
    return Survey(
        wanted=slots.wanted,
        executors=slots.executors,
        holdings={info.id: held for info, held in zip(slots.task_managers, answers, strict=True) if held is not None},
    )
