"""Events and effects of a job's requests."""

from __future__ import annotations

import msgspec

from emberkeep.base.errors import EmberkeepError
from emberkeep.lifecycle.model import ProcedureProgress, ProcedureRequest

NOBODY = 0  # a caller that does not wait for an answer


# --- events -----------------------------------------------------------------------------------------------------------


class TakenOver(msgspec.Struct, frozen=True):
    """A leader takes over the job in the state recorded in the job store.

    ``current``: the open request. ``stopped``: the request that has stopped the job permanently; with it,
    ``current`` is ignored.
    """

    current: ProcedureRequest | None = None
    stopped: Ended | None = None


class RequestMade(msgspec.Struct, frozen=True):
    """A caller asks the job for something.

    ``caller``: the number by which Accept and Refuse refer to the caller. ``ending``: the job's status if
    it is being cancelled or is failing, else "".
    ``has_driver``: False if the job has no driver and none is being started.
    """

    request: ProcedureRequest
    caller: int = NOBODY
    ending: str = ""
    has_driver: bool = True


class WriteUncertain(msgspec.Struct, frozen=True):
    """The write of the new request fails or takes long, so its callers get an error. The write may continue."""

    error: EmberkeepError


class RequestWritten(msgspec.Struct, frozen=True):
    """The new request is durable."""


class RequestNotWritten(msgspec.Struct, frozen=True):
    """The new request was certainly not written."""

    error: EmberkeepError


class Reported(msgspec.Struct, frozen=True):
    """The JobMaster of an attempt reports the progress of its newest request."""

    attempt: int
    progress: ProcedureProgress


class DeadlinePassed(msgspec.Struct, frozen=True):
    """The time of a request is over, as measured since it was made, or since this JobManager leads.

    Time in which this JobManager was frozen, or in doubt whether it leads, is not counted, as for its other deadlines:
    it could record no end then, nor start the driver that the job waits for. A driver that starts late counts it all.

    ``waits_for``: what the job waits for if it has no driver and none is being started; else "".
    """

    trigger_id: str
    waits_for: str


class EndWritten(msgspec.Struct, frozen=True):
    """The end of the current request is durable."""


class EndNotWritten(msgspec.Struct, frozen=True):
    """The end of the current request was certainly not written: a newer attempt runs, or the store refuses it."""


class NextAttemptRecorded(msgspec.Struct, frozen=True):
    """A newer attempt is durable. If the request was a move, the same write has ended it in the store."""


class JobEnded(msgspec.Struct, frozen=True):
    """The job's result is durable. ``status``: how it has ended."""

    status: str


Event = (
    TakenOver
    | RequestMade
    | WriteUncertain
    | RequestWritten
    | RequestNotWritten
    | Reported
    | DeadlinePassed
    | EndWritten
    | EndNotWritten
    | NextAttemptRecorded
    | JobEnded
)


# --- effects ----------------------------------------------------------------------------------------------------------


class WriteRequest(msgspec.Struct, frozen=True):
    """Write the request to the job store; answer with RequestWritten or RequestNotWritten."""

    request: ProcedureRequest


class Accept(msgspec.Struct, frozen=True):
    """Reply to these callers that their request is durable."""

    callers: tuple[int, ...]


class Refuse(msgspec.Struct, frozen=True):
    """Raise the error for these callers."""

    callers: tuple[int, ...]
    error: EmberkeepError


class WatchDeadline(msgspec.Struct, frozen=True):
    """Send DeadlinePassed from the request's deadline on, repeatedly, as long as the request is the current one."""

    request: ProcedureRequest


class WriteEnd(msgspec.Struct, frozen=True):
    """Write the end of a completed request; answer with EndWritten or EndNotWritten."""

    request: ProcedureRequest
    attempt: int
    progress: ProcedureProgress


class DeleteRequest(msgspec.Struct, frozen=True):
    """Delete a request that failed or came too late from the job store; answer with EndWritten or EndNotWritten."""

    request: ProcedureRequest


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """Remember how a request has ended, for later queries. A newer event about the same request replaces it."""

    trigger_id: str
    request: ProcedureRequest | None  # None if an earlier leader got it and its savepoint's record does not tell
    progress: ProcedureProgress | None = None
    savepoint: str = ""  # its path
    manifest_sha256: str = ""
    failure: str = ""  # why it ended without success


class StopJob(msgspec.Struct, frozen=True):
    """Start no further attempt: the job ends with its script."""


Effect = WriteRequest | Accept | Refuse | WatchDeadline | WriteEnd | DeleteRequest | Ended | StopJob
