"""Wait for a savepoint or a stop, even if another JobManager becomes the leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import JobId
from emberkeep.client.log_copy import ProblemClock
from emberkeep.client.rest_client import RestClient
from emberkeep.protocol.rest_savepoints import OperationStatus, SavepointStatus

_POLL = 0.3  # seconds
_UNREACHABLE_LIMIT = 300.0


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
