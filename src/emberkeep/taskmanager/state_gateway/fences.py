"""Fences old attempts: once a newer attempt has a mark, no node acknowledges their changes (P3).

Each attempt has a *mark* in the job's own durable root (``local_state.attempt_marks``). The gateway
writes the mark before it answers the first request of the attempt's driver, which is before the executors have work.
Every change lists the marks before it begins, and again before it is acknowledged, to detect a newer attempt. On a node
whose storage is not the driver's, an executor's requests raise Unavailable while the root does not exist there, and
Fenced if the root has no mark.

The guarantee: once any request of attempt N has been answered, no change that an older attempt begins anywhere reaches
the store, and none is acknowledged. A change by an older attempt that had passed its first check may still reach the
store (one file operation for each request under way), but is not acknowledged. Such a change does no harm. A create or
rename that requires its target not to exist does not overwrite what attempt N has written. A state file belongs to a
micro-batch whose offsets were acknowledged before, so attempt N computes it from the same input.

One check is enough for an executor's file with a unique name, and it runs while the file is stored: nothing refers to
such a file before a rename, and a rename is checked before and after. If the attempt is over, the file is deleted.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable

import structlog

from emberkeep.base.configuration.options.directories import STORAGE_DIRECTORY
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.ids import JobId
from emberkeep.local_state.attempt_marks import clear_older_marks, marked_attempts, write_mark
from emberkeep.local_state.errors import Fenced
from emberkeep.local_state.gateway_ports import Spool
from emberkeep.local_state.model import DRIVER, Caller
from emberkeep.local_state.ports import DurableState

log = structlog.get_logger(__name__)

_REMEMBERED_JOBS = 10_000
_LANES = 4  # concurrent listings of one job; further changes share the results of later listings


class _Lane:
    """Listings of a job's marks, one at a time. ``listing`` is held during the request to the durable store."""

    def __init__(self) -> None:
        self.listing = threading.Lock()
        self.begun = 0  # number of listings
        self.seen = -1  # the newest attempt in the last listing


class _Job:
    """Facts about a job's attempts."""

    def __init__(self) -> None:
        self.newest = -1
        self.admitted: set[int] = set()
        # With several lanes, a change need not wait for two listings of a remote store: one that began too early, and
        # its own.
        self.lanes = tuple(_Lane() for _ in range(_LANES))
        self.turn = itertools.cycle(self.lanes)


class GatewayFences:
    """The fences of one gateway. Any thread may call it."""

    def __init__(self, own_state: Callable[[Caller], DurableState], spool: Callable[[], Spool]) -> None:
        """``own_state`` returns the durable store of the own root of a caller's job.

        ``spool`` makes the empty marker file.
        """
        self._own_state = own_state
        self._spool = spool
        self._lock = threading.Lock()
        self._jobs: OrderedDict[JobId, _Job] = OrderedDict()  # least recently used first

    def see(self, job_id: JobId, attempt: int) -> None:
        """Note that the task manager knows of this attempt: refuse older ones from now on."""
        job = self._job(job_id)
        with self._lock:
            job.newest = max(job.newest, attempt)

    def check_memory(self, caller: Caller) -> None:
        """Check a request that changes nothing. Raises Fenced if a newer attempt is known here."""
        newest = self._job(caller.job_id).newest
        if caller.attempt < newest:
            raise _fenced(caller, newest)

    def is_admitted(self, caller: Caller) -> bool:
        """True if ``admit`` would return at once: the attempt is admitted, and no newer one is known here."""
        job = self._job(caller.job_id)
        return caller.attempt in job.admitted and caller.attempt >= job.newest

    def admit(self, caller: Caller) -> None:
        """Refuse a request of an attempt that has ended. Call before anything else that a request does.

        At the first request of an attempt, also check the durable store; for a driver, write the attempt's mark first.
        Raises Fenced, RetryLater, Fatal.
        """
        self.check_memory(caller)
        job = self._job(caller.job_id)
        if caller.attempt in job.admitted:
            return
        if caller.allocation_id == DRIVER:
            self._mark(caller)
        self.check(caller)
        with self._lock:
            job.admitted.add(caller.attempt)
        if caller.allocation_id == DRIVER:
            self._clear_older(caller)

    def check(self, caller: Caller) -> None:
        """List the marks in the durable store, by a listing that begins after this call.

        Raises Fenced if a newer attempt has a mark, or if this attempt has none (its state was removed); RetryLater,
        Fatal.
        """
        newest = self._newest(caller)
        if newest > caller.attempt:
            self.see(caller.job_id, newest)
            raise _fenced(caller, newest)
        if newest < caller.attempt:
            raise Fenced(
                f"attempt {caller.attempt} of job {caller.job_id} has no mark in the job's durable directory",
                hint="the job has ended and its state was removed, or this node has another "
                f"{STORAGE_DIRECTORY.key} than the driver's node",
            )

    def forget(self, job_id: JobId) -> None:
        """Forget a job that no longer has anything here. A process of the job that comes back is admitted again."""
        with self._lock:
            self._jobs.pop(job_id, None)

    def _newest(self, caller: Caller) -> int:
        """Return the newest attempt that has a mark. If no lane is free, waiting callers share its next listing."""
        job = self._job(caller.job_id)
        free = next((lane for lane in job.lanes if lane.listing.acquire(blocking=False)), None)
        if free is not None:
            try:
                return self._newest_now(caller, free)
            finally:
                free.listing.release()
        with self._lock:
            lane = next(job.turn)
        before = lane.begun
        with lane.listing:
            return lane.seen if lane.begun > before else self._newest_now(caller, lane)

    def _newest_now(self, caller: Caller, lane: _Lane) -> int:
        lane.begun += 1
        try:
            lane.seen = self._listed(caller)
        except BaseException:
            lane.begun -= 1  # so that no waiting caller takes the earlier result for that of this listing
            raise
        return lane.seen

    def _listed(self, caller: Caller) -> int:
        """Return the newest attempt that has a mark, or -1 if no attempt has one."""
        return max(self._marks(caller), default=-1)

    def _marks(self, caller: Caller) -> list[int]:
        return marked_attempts(self._own_state(caller))

    def _mark(self, caller: Caller) -> None:
        """Write the attempt's mark, unless its driver has done so at its start.

        This comes before the check for newer marks: of two new attempts, at least one sees the other's.
        """
        write_mark(self._own_state(caller), caller.attempt, self._spool())

    def _clear_older(self, caller: Caller) -> None:
        """Delete marks and named roots of attempts before this one, which no longer have any effect. Ignore errors."""
        try:
            clear_older_marks(self._own_state(caller), caller.attempt)
        except EmberkeepError as error:
            log.debug("cannot delete the marks of older attempts", job=caller.job_id, reason=str(error))

    def _job(self, job_id: JobId) -> _Job:
        with self._lock:
            job = self._jobs.get(job_id)
            if job is None:
                job = self._jobs[job_id] = _Job()
                if len(self._jobs) > _REMEMBERED_JOBS:
                    self._jobs.popitem(last=False)
            self._jobs.move_to_end(job_id)
            return job


def _fenced(caller: Caller, newest: int) -> Fenced:
    return Fenced(
        f"attempt {caller.attempt} of job {caller.job_id} is over: attempt {newest} has begun",
        hint="the task manager will end its processes",
    )
