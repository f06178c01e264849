"""The job store as a sequential object: for each idempotency key one job, or none.

Operations: ``submit`` (argument ``jobid``, the id that the client proposes), ``cancel`` and ``read`` (argument
``jobid``). Several clients may propose different ids with one key; the first one is the job's. A listing is a ``read``
of each key's jobs. Jobs progress by themselves: a read may show a later state than the one before it, but no earlier
one. Once its cancellation has taken effect, a job does not wait or start again: it is being cancelled, unless it was
about to end by itself.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from campaign.linearizability.history import Operation

ABSENT = "absent"  # there is no such job
ENDED = "ended"  # the cancellation is refused, as the job has ended otherwise
_ENDS = ("FINISHED", "FAILED", "CANCELED")
_WAITS = ("CREATED", "INITIALIZING", "RESTARTING")


class StoredJob(msgspec.Struct, frozen=True):
    """``status``: "" while it runs or waits, CANCELLING, or how it has ended ("ENDED": not cancelled, else unknown).

    ``attempt``: the highest number that was read. ``cancelled``: a cancellation has taken effect.
    """

    job_id: str
    status: str = ""
    attempt: int = 0
    cancelled: bool = False


class JobStoreModel:
    """The job of one idempotency key."""

    def initial(self) -> StoredJob | None:
        return None

    def after(self, state: StoredJob | None, operation: Operation) -> Iterable[StoredJob | None]:
        if operation.kind == "submit":
            return self._submit(state, operation)
        if operation.kind == "cancel":
            return self._cancel(state, operation)
        return self._read(state, operation)

    def _submit(self, state: StoredJob | None, operation: Operation) -> Iterable[StoredJob | None]:
        after = StoredJob(operation.arguments["jobid"]) if state is None else state
        if operation.returned is None:
            return () if state is not None else (after,)
        expected = {"jobid": after.job_id, "created": state is None}
        return (after,) if operation.result == expected else ()

    def _cancel(self, state: StoredJob | None, operation: Operation) -> Iterable[StoredJob | None]:
        known = operation.returned is not None
        if state is None or state.job_id != operation.arguments["jobid"]:
            return (state,) if known and operation.result == ABSENT else ()
        has_ended = state.status in ("FINISHED", "FAILED", "ENDED")
        if known and operation.result == ENDED:
            if has_ended:
                return (state,)
            return () if state.status == "CANCELED" else (msgspec.structs.replace(state, status="ENDED"),)
        if has_ended or (known and operation.result is not None):
            return ()
        return (msgspec.structs.replace(state, cancelled=True),)

    def _read(self, state: StoredJob | None, operation: Operation) -> Iterable[StoredJob | None]:
        result = operation.result
        if state is None or state.job_id != operation.arguments["jobid"]:
            return (state,) if result == ABSENT else ()
        if result == ABSENT:
            return ()
        status, attempt = result["status"], result["attempt"]
        if state.cancelled and status in _WAITS:
            return ()
        status = status if status in _ENDS or status == "CANCELLING" else ""
        if attempt < state.attempt or not _may_follow(state, status):
            return ()
        return (msgspec.structs.replace(state, status=status, attempt=attempt),)


def _may_follow(state: StoredJob, status: str) -> bool:
    """True if a read may show ``status`` when the last known one is that of ``state``."""
    if status in ("CANCELLING", "CANCELED") and not state.cancelled:
        return False
    if state.status in _ENDS:
        return status == state.status
    if state.status == "ENDED":
        return status in ("FINISHED", "FAILED")
    return status != "" or state.status == ""
