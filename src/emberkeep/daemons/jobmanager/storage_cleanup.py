"""Deletes data that no job needs from the shared storage, and reports who owns the storage.

Default checkpoints are kept for as long as their job may run again. Once the job is FINISHED or CANCELED, they are
marked, and deleted after a delay; event logs are deleted after a longer delay. Checkpoints and event logs of a FAILED
job stay as long as its result. Data of jobs that the job store does not know is marked, too, and kept for longer
(``jobs.leftovers``), because a job store restored from an older copy does not know the newest jobs. Graphs without a
handle are deleted in the same way. The remains of damaged jobs in the job store are deleted after a warning
(``jobs.damaged_leftovers``).

While task managers of another job store are in contact, their jobs may use data that this job store does not know.
During that time, the waiting periods for data of unknown jobs are reset at each inspection.

An inspection checks in this order: does the storage belong to this job store; what is in it; does this JobManager lead;
which jobs exist. So data that was in the storage before this leader was confirmed belongs to a job that was accepted
earlier. This leader knows that job, or the job is globally terminal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

import structlog

from emberkeep.adapters.shared_storage.cluster import ClusterStorage
from emberkeep.base.configuration.options.directories import (
    DAMAGED_DATA_DELAY,
    ENDED_DATA_DELAY,
    EVENT_LOG_DELAY,
    UNKNOWN_DATA_DELAY,
)
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Conflict, EmberkeepError, Fatal, NewerFormat, RetryLater, Unavailable
from emberkeep.base.files.ownership import OwnedByAnother
from emberkeep.base.ids import JobId
from emberkeep.jobmanager.views.cluster import JobManagerGateway
from emberkeep.jobs.damaged_leftovers import DamagedJob, stages_of_damaged, warnings
from emberkeep.jobs.leftovers import Item, Kind, Mark, Periods, is_needed, stages, with_periods_restarted
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.rest_storage import StorageInfo
from emberkeep.rest.cluster.shapes import of_another_store
from emberkeep.rest.cluster.storage_shapes import data_of_damaged, stored_data
from emberkeep.rest.ports import StorageCondition

log = structlog.get_logger(__name__)

_INTERVAL_SECONDS = 30.0
_IN_DIRECTORIES = (Kind.CHECKPOINTS, Kind.EVENT_LOGS, Kind.LOGS)
_REMOVED_HERE = (*_IN_DIRECTORIES, Kind.GRAPH, Kind.RESULT)


class StoreLeftovers(Protocol):
    """Files of the job store that no record leads to."""

    async def graphs(self) -> Collection[JobId]:
        """Return the jobs that have graphs in this store's place, but no handle and no damaged data that is kept.

        The result is also empty if the graphs cannot be listed now.
        """

    async def remove_graph(self, job_id: JobId) -> None:
        """Delete the graphs of a job without a handle, after checking the handles again. What is unreadable stays."""

    async def results(self) -> Collection[JobId]:
        """Return the jobs that have result files in this store's place but that the store does not know.

        The result is also empty if the files cannot be listed now.
        """

    async def remove_result(self, job_id: JobId) -> None:
        """Delete the result files of a job, after checking again that the store does not know the job."""


class StoreOfStorage(Protocol):
    """The part of the job store that the storage keeper uses."""

    async def confirm(self) -> None:
        """Raise an EmberkeepError unless this JobManager leads."""

    async def adopt_storage(self) -> None:
        """Make this job store the owner of the storage. Raises what ``ClusterStorage.adopt`` raises."""

    async def damaged(self) -> list[DamagedJob]:
        """See ``JobStore.damaged``."""

    async def remove_damaged(self, job_id: JobId) -> None:
        """See ``JobStore.remove_damaged``."""

    @property
    def leftovers(self) -> StoreLeftovers:
        """The store's files that the storage keeper may have to remove."""


class BlobsOfStorage(Protocol):
    """The part of the BLOB server that the storage keeper uses."""

    def unknown_owners(self) -> set[JobId]: ...

    def give_up(self, owners: Collection[JobId]) -> None: ...


@dataclass(frozen=True)
class _Look:
    """The findings and decisions of one inspection of the storage.

    ``damaged``: the remains of damaged jobs. ``marks``: all current marks. ``due``: marks whose data is removed now.
    ``problem``: why BLOBs of unknown jobs are kept, if BLOBs are stored outside the shared storage.
    """

    damaged: dict[JobId, DamagedJob]
    marks: tuple[Mark, ...]
    due: tuple[Mark, ...]
    problem: str = ""


class StorageKeeper:
    """Keeps the storage clean during one term of leadership. Implements rest.ports.Storage."""

    def __init__(
        self,
        configuration: Configuration,
        storage: ClusterStorage,
        store: StoreOfStorage,
        gateway: JobManagerGateway,
        blobs: BlobsOfStorage,
        now_ms: Callable[[], int],
    ) -> None:
        self._storage = storage
        self._store = store
        self._gateway = gateway
        self._blobs = blobs
        self._now_ms = now_ms
        self._periods = Periods(
            unknown_ms=int(configuration[UNKNOWN_DATA_DELAY] * 1000),
            ended_ms=int(configuration[ENDED_DATA_DELAY] * 1000),
            event_logs_ms=int(configuration[EVENT_LOG_DELAY] * 1000),
            damaged_ms=int(configuration[DAMAGED_DATA_DELAY] * 1000),
        )
        periods = self._periods
        shortest = (periods.unknown_ms, periods.ended_ms, periods.event_logs_ms, periods.warning_ms)
        self._interval = min(_INTERVAL_SECONDS, *(period / 1000 for period in shortest))
        self._warned: dict[JobId, int] = {}
        self._turn = asyncio.Lock()
        self._condition = StorageCondition(problem="", unneeded=0)
        self._problem_since_ms = 0

    async def run(self) -> None:
        """Call ``clean`` every half minute, or more often if a period is shorter, until cancelled. Log its errors."""
        while True:
            try:
                await self.clean()
            except (EmberkeepError, OSError) as error:
                log.warning("cannot clean up the storage now", reason=str(error))
            await asyncio.sleep(max(self._interval, 1.0))

    async def clean(self) -> None:
        """Inspect the storage once, mark what no job needs, and delete what is due.

        Raises an EmberkeepError if nothing may be deleted, or if it is unknown whether anything may be.
        """
        async with self._turn:
            try:
                await asyncio.to_thread(self._storage.require)
            except EmberkeepError as error:
                await self._leave_alone(error)
                raise
            try:
                look = await self._look()
            except NewerFormat as error:
                await self._leave_alone(error)
                raise
            self._found(look.problem, len(look.marks))
            await asyncio.to_thread(self._storage.write_marks, look.marks)
            self._warn(look)
            await self._remove([mark for mark in look.due if mark.kind in _REMOVED_HERE])
            await self._release([mark for mark in look.due if mark.kind is Kind.BLOBS])
            await self._remove_damaged([look.damaged[mark.job_id] for mark in look.due if mark.kind is Kind.DAMAGED])

    async def _leave_alone(self, problem: EmberkeepError) -> None:
        self._found(str(problem), self._condition.unneeded)
        known = {job.job_id for job in await self._gateway.jobs()}
        found = [item for item in await self._everything() if item[1] not in known]
        self._found(str(problem), len(found))

    def _found(self, problem: str, unneeded: int) -> None:
        self._condition = StorageCondition(problem=problem, unneeded=unneeded)
        self._problem_since_ms = (self._problem_since_ms or self._now_ms()) if problem else 0

    async def _look(self) -> _Look:
        found = await asyncio.to_thread(self._storage.data.directories) | await self._files_of_store()
        marks = await asyncio.to_thread(self._storage.marks)
        if self._gateway.strangers():
            marks = with_periods_restarted(marks, self._now_ms())
        problem = await asyncio.to_thread(self._storage.blobs.problem)
        blobs = self._unknown_blobs() if problem is None else None
        # If the BLOBs of unknown jobs cannot be listed or deleted, their marks and periods stay.
        kept = tuple(mark for mark in marks if mark.kind is Kind.BLOBS) if blobs is None else ()
        found |= blobs or set()
        known = await self._known()
        damaged = await self._store.damaged()
        decided = stages(found, known, marks, self._now_ms(), self._periods)
        of_damaged = stages_of_damaged(damaged, marks, self._now_ms(), self._periods)
        return _Look(
            damaged={job.job_id: job for job in damaged},
            marks=decided.marks + of_damaged.marks + kept,
            due=decided.due + of_damaged.due,
            problem="" if problem is None else str(problem),
        )

    def _unknown_blobs(self) -> set[Item] | None:
        """Return the BLOBs of unknown jobs, or None if they cannot be listed now."""
        try:
            return {(Kind.BLOBS, owner) for owner in self._blobs.unknown_owners()}
        except EmberkeepError as error:
            log.info("cannot list the BLOBs that no job needs now", reason=str(error))
            return None

    async def _files_of_store(self) -> set[Item]:
        graphs, results = await self._store.leftovers.graphs(), await self._store.leftovers.results()
        return {(Kind.GRAPH, job_id) for job_id in graphs} | {(Kind.RESULT, job_id) for job_id in results}

    async def _known(self) -> dict[JobId, JobStatus]:
        """Return the status of all known jobs. Raises an EmberkeepError unless this JobManager leads."""
        await _as_leader(self._store.confirm())
        return {job.job_id: job.status for job in await self._gateway.jobs()}

    async def _remove(self, due: list[Mark]) -> None:
        """Remove what no job needs. What cannot be removed now is logged, and stays for the next inspection."""
        for mark in due:
            status = (await self._known()).get(mark.job_id)
            if status is not None and is_needed(mark.kind, status):
                continue
            log.info("removing data that no job needs", job=mark.job_id, kind=mark.kind.value, unknown=not mark.ended)
            try:
                await self._remove_item((mark.kind, mark.job_id))
            except (Unavailable, Fatal) as error:  # Fatal: deleting needs space, too, on some file systems
                await asyncio.to_thread(self._storage.require)  # if the whole storage is away, that ends the inspection
                log.warning(
                    "cannot remove data that no job needs now",
                    job=mark.job_id,
                    kind=mark.kind.value,
                    reason=error.message,
                    hint=error.hint,
                )

    async def _remove_item(self, item: Item) -> None:
        if item[0] in _IN_DIRECTORIES:
            await asyncio.to_thread(self._storage.data.remove, item)
        else:
            await self._remove_file_of_store(item)

    async def _remove_file_of_store(self, item: Item) -> None:
        await asyncio.to_thread(self._storage.require)
        kind, job_id = item
        if kind is Kind.GRAPH:
            await _as_leader(self._store.leftovers.remove_graph(job_id))
        else:
            await _as_leader(self._store.leftovers.remove_result(job_id))

    async def _release(self, due: list[Mark]) -> None:
        if due:
            owners = {mark.job_id for mark in due} - (await self._known()).keys()
            await asyncio.to_thread(self._storage.blobs.require)
            self._blobs.give_up(owners)

    def _warn(self, look: _Look) -> None:
        now_ms = self._now_ms()
        marks = [mark for mark in look.marks if mark.kind is Kind.DAMAGED]
        self._warned = {mark.job_id: self._warned[mark.job_id] for mark in marks if mark.job_id in self._warned}
        for mark in warnings(marks, self._warned, now_ms):
            self._warned[mark.job_id] = now_ms
            log.warning(
                "the data of a damaged job will be removed soon",
                job=mark.job_id,
                places=look.damaged[mark.job_id].places,
                after=datetime.fromtimestamp(self._periods.due_ms(mark) / 1000, UTC).isoformat(timespec="seconds"),
                hint=f"copy it, or set {DAMAGED_DATA_DELAY.key} to a longer time",
            )

    async def _remove_damaged(self, due: list[DamagedJob]) -> None:
        for job in due:
            await self._known()
            await asyncio.to_thread(self._storage.require)
            try:
                await self._store.remove_damaged(job.job_id)
            except (Unavailable, Fatal) as error:
                log.warning("cannot remove the data of a damaged job now", job=job.job_id, reason=str(error))
            else:
                log.warning("removed the data of a damaged job", job=job.job_id, places=job.places)

    # --- requests of users --------------------------------------------------------------------------------------------

    async def status(self) -> StorageInfo:
        """Return what is in the storage. Raises an EmberkeepError if that is unknown now."""
        problem = await asyncio.to_thread(self._storage.problem)
        blobs = problem or await asyncio.to_thread(self._storage.blobs.problem)
        known = {job.job_id: job.status for job in await self._gateway.jobs()}
        marks = {(mark.kind, mark.job_id): mark for mark in await asyncio.to_thread(self._storage.marks)}
        data = [
            stored_data(item, marks.get(item), self._periods)
            for item in sorted(await self._everything(), key=lambda item: (item[1], item[0].value))
            if item in marks or item[1] not in known
        ]
        for job in await self._store.damaged() if problem is None else ():
            data.append(data_of_damaged(job, marks.get((Kind.DAMAGED, job.job_id)), self._periods))
        return StorageInfo(
            location=self._storage.location,
            cluster=self._storage.cluster,
            blobs=self._storage.blobs.location,
            owned=blobs is None,
            problem="" if blobs is None else blobs.message,
            hint="" if blobs is None else blobs.hint or "",
            data=data,
            used_by=of_another_store(self._gateway.strangers()),
        )

    async def _everything(self) -> set[Item]:
        found = await asyncio.to_thread(self._storage.data.everything) | await self._files_of_store()
        return {item for item in found if item[0] is not Kind.BLOBS} | (self._unknown_blobs() or set())

    def condition(self) -> StorageCondition:
        return self._condition

    def problem(self) -> str:
        """Return the problem that the last inspection of the storage found; "" if it found none."""
        return self._condition.problem

    @property
    def problem_since_ms(self) -> int:
        """Since when there is a problem, as far as this leader knows; 0 if there is none."""
        return self._problem_since_ms

    async def adopt(self) -> StorageInfo:
        async with self._turn:
            await self._adopt()
        log.warning("the storage was adopted for this job store on request", storage=self._storage.location)
        await self.clean()
        return await self.status()

    async def _adopt(self) -> None:
        await _as_leader(self._store.adopt_storage())
        await asyncio.to_thread(self._storage.blobs.adopt)

    async def purge(self, *, force: bool = False) -> StorageInfo:
        """Adopt the storage, and delete at once what belongs to no job of the job store.

        Raises Conflict while task managers of another job store are in contact, because their jobs may use the storage;
        ``force`` deletes even then.
        """
        async with self._turn:
            self._refuse_users(force=force)
            unknown = self._blobs.unknown_owners()
            await self._adopt()
            found = await self._everything()
            known = await self._known()
            for item in sorted(found, key=lambda item: (item[1], item[0].value)):
                if item[1] not in known and item[0] is not Kind.BLOBS:
                    self._refuse_users(force=force)
                    log.warning("removing data on request", job=item[1], kind=item[0].value)
                    if item[0] is Kind.GRAPH:  # also those of other job stores
                        await asyncio.to_thread(self._storage.data.remove, item)
                    await self._remove_item(item)
            self._blobs.give_up(unknown - known.keys())
        await self.clean()
        return await self.status()

    def _refuse_users(self, *, force: bool) -> None:
        others = self._gateway.strangers()
        if others and not force:
            names = ", ".join(f"{other.id} at {other.address}" for other in others[:3]) + (", …" * (len(others) > 3))
            raise Conflict(
                "jobs of another job store may use the data in the storage; task managers that work for that job "
                f"store: {names}",
                hint="stop these task managers first, or restart each with taskmanager.adopt-leader: true and then "
                "restart the JobManager; `purge --force` deletes the data even while jobs use it",
            )


async def _as_leader(work: Awaitable[None]) -> None:
    """Wait for work of the job store. Raises RetryLater, not Conflict, if this JobManager is no longer the leader.

    A client that asked for the work then goes to the new leader.
    """
    try:
        await work
    except OwnedByAnother:
        raise
    except Conflict as error:
        raise RetryLater(f"this JobManager is no longer the leader: {error.message}", hint="try again") from error
