"""Ask for a savepoint or a stop and wait for it, even if another JobManager becomes the leader."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import JobId
from emberkeep.client.errors import Unanswered, Unreachable
from emberkeep.client.log_copy import ProblemClock
from emberkeep.client.rest_client import RestClient
from emberkeep.protocol.rest_savepoints import OperationStatus, SavepointStatus, TriggerResponse

_POLL = 0.3  # seconds
_UNREACHABLE_LIMIT = 300.0


async def asked_when_free(
    client: RestClient,
    job_id: JobId,
    ask: Callable[[], Awaitable[TriggerResponse]],
    notice: Callable[[str], None],
) -> TriggerResponse:
    """Make a request about a job with ``ask``; while the job makes a periodic savepoint, wait for its end.

    The wait is bounded by the limits of that savepoint. ``notice`` gets a message for the user when the wait begins.
    Raises what ``ask`` raises.
    """
    told = False
    while True:
        try:
            return await ask()
        except (Unanswered, Unreachable):
            raise
        except RetryLater:
            current = (await client.job(job_id)).emberkeep.procedure
            if current is None or not current.periodic:
                if told:  # it has just ended
                    return await ask()
                raise
        if not told:
            notice("a periodic savepoint is being made; waiting for its end")
            told = True
        await asyncio.sleep(_POLL)


async def until_completed(
    client: RestClient,
    job_id: JobId,
    trigger_id: str,
    look: Callable[[SavepointStatus], None],
    notice: Callable[[str], None],
) -> SavepointStatus:
    """Return the request's final state; pass each state to ``look``, and each message for the user to ``notice``.

    Raises Absent, Unreachable (no JobManager for 5 minutes).
    """
    silence = ProblemClock(_UNREACHABLE_LIMIT)
    while True:
        try:
            state = await client.savepoints.status(job_id, trigger_id)
        except RetryLater as error:
            if not silence.is_running:
                notice(f"{error.message}; the request is durable and continues without the JobManager, trying again")
            if silence.is_over():
                raise
        else:
            silence.reset()
            look(state)
            if state.status.id is OperationStatus.COMPLETED:
                return state
        await asyncio.sleep(_POLL)
