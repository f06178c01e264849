"""Old attempts change nothing, on whatever node they are (P3).

Each attempt leaves an empty file ``.attempts/<number>`` in the job's own durable root before the first request of its
driver is answered, which is before its executors have anything to do. Whoever changes something lists these files
before, and again before the change is acknowledged. An executor on a node that sees another storage than the driver's
finds no root there, and waits; where there is a root without a mark, it is refused.

What this guarantees: once any request of attempt N has been answered, no change that an older attempt begins anywhere
reaches the store, and none is acknowledged to it. A change of an older attempt that had passed its first check may
still reach the store (one file operation for each request under way), but is not acknowledged. It does no harm: what
attempt N has written is not overwritten by a create or rename that must find nothing, and a state file is the work of a
micro-batch whose offsets had been acknowledged before, so that N computes it from the same input.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable

import structlog

from emberkeep.base.configuration.options import STORAGE_DIRECTORY
from emberkeep.base.errors import Absent, EmberkeepError
from emberkeep.base.ids import JobId
from emberkeep.local_state.errors import Exists, Fenced
from emberkeep.local_state.gateway_ports import Spool
from emberkeep.local_state.model import DRIVER, Caller
from emberkeep.local_state.ports import DurableState

log = structlog.get_logger(__name__)

FENCE_DIRECTORY = ".attempts"
_REMEMBERED_JOBS = 10_000
_LANES = 4  # listings of a job at once; more changes at once share them


class _Lane:
    """Listings of a job's marks, one after the other. ``listing`` is held while the durable store is asked."""

    def __init__(self) -> None:
        self.listing = threading.Lock()
        self.begun = 0  # listings
        self.seen = -1  # the newest attempt that the last one showed


class _Job:
    """What is known of a job's attempts."""

    def __init__(self) -> None:
        self.newest = -1
        self.admitted: set[int] = set()
        # Several, so that a far store is not waited for twice: first for a listing that began too early.
        self.lanes = tuple(_Lane() for _ in range(_LANES))
        self.turn = itertools.cycle(self.lanes)


class AttemptFences:
    """Of one gateway; any thread may call it."""

    def __init__(self, own_state: Callable[[JobId], DurableState], spool: Callable[[], Spool]) -> None:
        """``own_state``: the durable store of a job's own root. ``spool``: makes the empty file that is stored."""
        self._own_state = own_state
        self._spool = spool
        self._lock = threading.Lock()
        self._jobs: OrderedDict[JobId, _Job] = OrderedDict()  # least recently used first

    def see(self, job_id: JobId, attempt: int) -> None:
        """The task manager knows of this attempt: older ones are refused from now on."""
        job = self._job(job_id)
        with self._lock:
            job.newest = max(job.newest, attempt)

    def check_memory(self, caller: Caller) -> None:
        """For what changes nothing. Raises Fenced where a newer attempt is known here."""
        newest = self._job(caller.job_id).newest
        if caller.attempt < newest:
            raise _fenced(caller, newest)

    def admit(self, caller: Caller) -> None:
        """Before anything else that a request does: the attempt's driver has left its mark. Raises Fenced, RetryLater,
        Fatal."""
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
        """Ask the durable store for a newer attempt, by a listing that begins after this call. Raises Fenced (also:
        the job's marks are gone, its state was removed), RetryLater, Fatal."""
        newest = self._newest(caller.job_id)
        if newest > caller.attempt:
            self.see(caller.job_id, newest)
            raise _fenced(caller, newest)
        if newest < caller.attempt:
            raise Fenced(
                f"attempt {caller.attempt} of job {caller.job_id} has no mark in the job's durable directory",
                hint="its state was removed as the job has ended, or this node sees another "
                f"{STORAGE_DIRECTORY.key} than the driver's node",
            )

    def forget(self, job_id: JobId) -> None:
        """Nothing of the job is here any more. Should one of its processes come back, it is admitted again."""
        with self._lock:
            self._jobs.pop(job_id, None)

    def _newest(self, job_id: JobId) -> int:
        """Where no lane is free, all who wait for one share its next listing."""
        job = self._job(job_id)
        free = next((lane for lane in job.lanes if lane.listing.acquire(blocking=False)), None)
        if free is not None:
            try:
                return self._newest_now(job_id, free)
            finally:
                free.listing.release()
        with self._lock:
            lane = next(job.turn)
        before = lane.begun
        with lane.listing:
            return lane.seen if lane.begun > before else self._newest_now(job_id, lane)

    def _newest_now(self, job_id: JobId, lane: _Lane) -> int:
        lane.begun += 1
        try:
            lane.seen = self._listed(job_id)
        except BaseException:
            lane.begun -= 1  # nobody may take the earlier result for that of this listing
            raise
        return lane.seen

    def _listed(self, job_id: JobId) -> int:
        """-1 where there is no mark."""
        return max(self._marks(job_id), default=-1)

    def _marks(self, job_id: JobId) -> list[int]:
        try:
            entries = self._own_state(job_id).listing(FENCE_DIRECTORY)
        except Absent:
            return []
        names = (entry.name.rpartition("/")[2] for entry in entries)
        return [int(name) for name in names if name.isdecimal()]

    def _mark(self, caller: Caller) -> None:
        """Before it is asked whether it is the newest: of two new attempts at least one sees the other."""
        spool = self._spool()
        try:
            spool.finish()
            self._own_state(caller.job_id).create(_mark(caller.attempt), spool.path, overwrite=False)
        except Exists:
            pass
        finally:
            spool.discard()

    def _clear_older(self, caller: Caller) -> None:
        """Marks below the newest say nothing."""
        try:
            for attempt in self._marks(caller.job_id):
                if attempt < caller.attempt:
                    self._own_state(caller.job_id).delete(_mark(attempt), recursive=False)
        except EmberkeepError as error:
            log.debug("older attempts' marks stay", job=caller.job_id, reason=str(error))

    def _job(self, job_id: JobId) -> _Job:
        with self._lock:
            job = self._jobs.get(job_id)
            if job is None:
                job = self._jobs[job_id] = _Job()
                if len(self._jobs) > _REMEMBERED_JOBS:
                    self._jobs.popitem(last=False)
            self._jobs.move_to_end(job_id)
            return job


def _mark(attempt: int) -> str:
    return f"{FENCE_DIRECTORY}/{attempt}"


def _fenced(caller: Caller, newest: int) -> Fenced:
    return Fenced(
        f"attempt {caller.attempt} of job {caller.job_id} is over: attempt {newest} has begun",
        hint="its processes are about to be ended",
    )
