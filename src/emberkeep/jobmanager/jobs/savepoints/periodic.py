"""Carries out what the state machines of periodic savepoints decide: requests, records of retention, deletions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

import structlog

from emberkeep.base.actors import Actor
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Conflict, EmberkeepError, RetryLater
from emberkeep.base.ids import IdSource
from emberkeep.jobmanager.jobs.job_machines import JobMachines
from emberkeep.jobmanager.jobs.job_table import ManagedJob
from emberkeep.jobmanager.jobs.procedure_defaults import with_defaults
from emberkeep.jobmanager.jobs.requests import JobRequests
from emberkeep.jobmanager.notes import savepoint_notes
from emberkeep.jobmanager.store_writes import StoreWrites
from emberkeep.jobmanager.surroundings import Surroundings
from emberkeep.jobmanager.term import Term
from emberkeep.jobs.checkpoints import JobPointers, SavepointPointer
from emberkeep.jobs.model import JobGraph, JobStatus
from emberkeep.jobs.periodic.machine import PeriodicSavepoints
from emberkeep.jobs.periodic.model import (
    DeleteFiles,
    Effect,
    Explain,
    JobFacts,
    MakeSavepoint,
    WriteRetention,
)
from emberkeep.jobs.periodic.settings import periodic_settings
from emberkeep.jobs.transitions import Phase
from emberkeep.lifecycle.locations import is_same_place
from emberkeep.lifecycle.model import Procedure, ProcedureRequest
from emberkeep.lifecycle.requests.events import Ended
from emberkeep.lifecycle.requests.transitions import RequestPhase

DELETIONS_AT_ONCE = 4  # over all jobs

log = structlog.get_logger(__name__)


class JobSavepoints:
    """The periodic savepoints of all jobs. Each state machine belongs to its ManagedJob; runs in turns of ``owner``.

    ``creating`` returns the graphs of jobs that are being accepted and are not in the table yet.
    """

    def __init__(
        self,
        owner: Actor,
        configuration: Configuration,
        surroundings: Surroundings,
        machines: JobMachines,
        requests: JobRequests,
        writes: StoreWrites,
        term: Term,
        ids: IdSource,
        creating: Callable[[], Iterable[JobGraph]],
    ) -> None:
        self._owner = owner
        self._configuration = configuration
        self._disposal = surroundings.savepoints
        self._root = surroundings.savepoint_root
        self._machines = machines
        self._requests = requests
        self._writes = writes
        self._term = term
        self._ids = ids
        self._creating = creating
        self._deletions = asyncio.Semaphore(DELETIONS_AT_ONCE)

    def new(
        self, graph: JobGraph, configuration: Configuration, attempt: int, pointers: JobPointers
    ) -> PeriodicSavepoints:
        """Return the state machine of a job. ``configuration``: the job's."""
        return PeriodicSavepoints(
            periodic_settings(configuration),
            pointers.savepoints,
            attempt,
            graph.submitted_ms,
            spread=int(graph.job_id[:8], 16) / 2**32,
            now=self._term.clock.now(),
            ms=self._term.clock.now_ms(),
        )

    def reported(self, job: ManagedJob) -> None:
        """Decide about a job whose JobMaster has just reported."""
        facts = JobFacts(attempt=job.state.attempt, is_free=_is_free(job), queries=_queries(job))
        clock = self._term.clock
        self._carry_out(job, job.periodic.looked(facts, self._is_needed, now=clock.now(), ms=clock.now_ms()))

    def request_ended(self, job: ManagedJob, ended: Ended, savepoint: SavepointPointer | None) -> None:
        """Note how a request for a periodic savepoint has ended. ``savepoint``: None if it failed."""
        clock, chronicle = self._term.clock, self._machines.chronicle
        if savepoint is not None:
            job.periodic.made(savepoint, now=clock.now(), ms=clock.now_ms())
            chronicle.note(savepoint_notes.made(job.job_id, savepoint))
            return
        impossible = ended.progress is not None and ended.progress.impossible
        queries = _queries(job) if impossible else None
        effects = job.periodic.failed(ended.failure, queries, now=clock.now(), ms=clock.now_ms())
        if not impossible:
            chronicle.note(savepoint_notes.failed(job.job_id, ended))
        self._carry_out(job, effects)

    def _is_needed(self, path: str) -> bool:
        """True if a job that has not ended may read the savepoint at ``path``, because it starts from there."""
        active = [job for job in self._machines.table.active.values() if not job.state.status.is_globally_terminal]
        if any(job.graph is None for job in active):
            return True  # nobody knows from where it starts
        graphs = [*(job.graph for job in active if job.graph is not None), *self._creating()]
        return any(graph.savepoint and is_same_place(graph.savepoint, path) for graph in graphs)

    # --- effects ------------------------------------------------------------------------------------------------------

    def _carry_out(self, job: ManagedJob, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case MakeSavepoint():
                    self._make(job)
                case Explain(reason):
                    log.warning("no periodic savepoints", job=job.job_id, reason=reason)
                    self._machines.chronicle.note(savepoint_notes.impossible(job.job_id, reason))
                case WriteRetention():
                    write = self._write(job, effect)
                    self._owner.start_effect(f"retention of {job.job_id}", write, deadline=None)
                case DeleteFiles():
                    delete = self._delete(job, effect)
                    self._owner.start_effect(f"delete a savepoint of {job.job_id}", delete, deadline=None)

    def _make(self, job: ManagedJob) -> None:
        request = ProcedureRequest(
            trigger_id=self._ids.hex32(),
            procedure=Procedure.SAVEPOINT,
            requested_ms=self._term.clock.now_ms(),
            periodic=True,
        )
        try:
            self._requests.give(job, with_defaults(request, self._configuration, job.graph, self._root))
        except (Conflict, RetryLater) as error:
            log.info("cannot make a periodic savepoint yet", job=job.job_id, reason=str(error))

    async def _write(self, job: ManagedJob, effect: WriteRetention) -> None:
        """Raises Conflict, which ends the actor, if this JobManager is no longer the leader."""
        retired_ms = self._term.clock.now_ms()
        retired, gone = (frozenset(each.path for each in some) for some in (effect.retired, effect.gone))
        pointers = await self._writes.record_retention(job.job_id, retired, gone, retired_ms)
        self._owner.tell(partial(self._written, job, effect, retired_ms, pointers))

    def _written(self, job: ManagedJob, effect: WriteRetention, retired_ms: int, pointers: JobPointers | None) -> None:
        job.periodic.written(None if pointers is None else retired_ms)
        if pointers is None:
            return
        job.pointers = pointers
        for savepoint in effect.gone:
            log.info("a periodic savepoint was deleted by retention", job=job.job_id, path=savepoint.path)
            self._machines.chronicle.note(savepoint_notes.retired(job.job_id, savepoint))

    async def _delete(self, job: ManagedJob, effect: DeleteFiles) -> None:
        failure = ""
        async with self._deletions:
            try:
                await self._disposal.delete(effect.savepoint, effect.sibling)
            except EmberkeepError as error:
                failure = str(error)
        self._owner.tell(partial(self._deleted, job, effect.savepoint, failure))

    def _deleted(self, job: ManagedJob, savepoint: SavepointPointer, failure: str) -> None:
        if not failure:
            job.periodic.deleted(savepoint.path)
            return
        log.warning("a periodic savepoint cannot be deleted", job=job.job_id, path=savepoint.path, reason=failure)
        if job.periodic.not_deleted(failure, now=self._term.clock.now()):
            self._machines.chronicle.note(savepoint_notes.not_deleted(job.job_id, savepoint, failure))


def _is_free(job: ManagedJob) -> bool:
    """True if the job runs, and neither stops, leaves its node nor carries out a request."""
    state = job.state
    return (
        state.phase is Phase.RUNNING
        and state.status is JobStatus.RUNNING
        and not state.stopped
        and state.knows_jobmaster()
        and job.requests.phase is RequestPhase.IDLE
        and job.move.leaving(state.attempt) is None
    )


def _queries(job: ManagedJob) -> frozenset[str]:
    return frozenset(query.id for query in job.report.queries) if job.report is not None else frozenset()
