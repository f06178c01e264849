"""What a driver may ask of the cluster's processes, and how they address a driver.

A driver's credentials are good for one attempt. A daemon serves only the kinds of requests that drivers send, and only
about that attempt.
"""

from __future__ import annotations

from typing import Final

from emberkeep.base.errors import Forbidden
from emberkeep.base.identity import AttemptScope
from emberkeep.protocol.messages.executors import (
    ExecutorChanged,
    JobMasterBeat,
    ListLocalState,
    OfferSlots,
    ReleaseSlot,
    StartExecutor,
)
from emberkeep.protocol.messages.job_masters import (
    JobMasterHeartbeat,
    ReadProgress,
    ReadSparkUi,
    RegisterJobMaster,
    ReportNow,
    ReportOutcome,
)
from emberkeep.protocol.messages.leaders import AskLeader
from emberkeep.protocol.messages.root import Message

# Requests about one attempt, which name it in their fields job_id and attempt.
_OF_AN_ATTEMPT = (
    RegisterJobMaster,
    JobMasterHeartbeat,
    ReportOutcome,
    StartExecutor,
    ReleaseSlot,
    JobMasterBeat,
    ListLocalState,
)
FROM_DRIVERS: Final = frozenset(kind.__name__ for kind in (*_OF_AN_ATTEMPT, AskLeader))


def check_driver_kind(kind: str, scope: AttemptScope) -> None:
    """Raise Forbidden unless drivers send requests of this kind."""
    if kind not in FROM_DRIVERS:
        raise Forbidden(
            f"{kind[:64]} is for the daemons of the cluster, and the credentials are those of {scope}",
            hint="a job's processes can act for their own attempt only",
        )


def check_driver_request(request: Message, scope: AttemptScope) -> None:
    """Raise Forbidden if the request is not about the attempt whose driver sends it."""
    if isinstance(request, _OF_AN_ATTEMPT) and (request.job_id, request.attempt) != (scope.job_id, scope.attempt):
        raise Forbidden(
            f"{type(request).__name__} is about attempt {request.attempt} of job {request.job_id}, and the "
            f"credentials are those of {scope}",
            hint="a job's processes can act for their own attempt only",
        )


def called_attempt(request: Message) -> AttemptScope | None:
    """Return the attempt whose driver receives the request; None if a daemon receives it."""
    if isinstance(request, OfferSlots | ExecutorChanged | ReportNow | ReadSparkUi | ReadProgress):
        return AttemptScope(request.job_id, request.attempt)
    if isinstance(request, AskLeader) and request.job_id:
        return AttemptScope(request.job_id, request.attempt)
    return None
