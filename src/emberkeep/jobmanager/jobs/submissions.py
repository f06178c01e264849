"""Accepts jobs: a submission is durable before it is acknowledged, and its repetitions have no further effect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import structlog

from emberkeep.base.actors import Actor, ActorPart, asked
from emberkeep.base.configuration.options.access import QUOTA_JOBS
from emberkeep.base.configuration.options.job_managers import MAX_JOBS
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Absent, Conflict, EmberkeepError, OverQuota, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.jobmanager.answers import Answers
from emberkeep.jobmanager.jobs.admission import artefact_contents, check_graph, job_configuration
from emberkeep.jobmanager.jobs.job_table import JobTable
from emberkeep.jobmanager.jobs.upgrades.known import KnownUpgrades
from emberkeep.jobmanager.jobs.upgrades.reserved import refuse_reserved
from emberkeep.jobmanager.store_writes import StoreWrites
from emberkeep.jobmanager.views.blobs import BlobServerGateway
from emberkeep.jobmanager.views.cluster import Submission
from emberkeep.jobs.model import JobGraph
from emberkeep.lifecycle.locations import is_same_place

_QUOTA_SECONDS = 10.0  # after which a client may try again: jobs take long

log = structlog.get_logger(__name__)


@dataclass(eq=False)
class Disposal:
    """A savepoint that is being deleted because somebody has asked for it.

    ``is_over``: set without a message, which an overloaded leader may refuse, and which nobody would repeat.
    """

    path: str
    is_over: bool = False


class Submissions(ActorPart):
    """Jobs that are being written to the store and are not in the table yet.

    ``add`` starts to manage a job that is in the store. ``upgrades`` start jobs themselves, and keep places for them.
    Accepting a job needs each of these collaborators, and no subset of them has a name.
    """

    def __init__(
        self,
        owner: Actor,
        configuration: Configuration,
        table: JobTable,
        writes: StoreWrites,
        blobs: BlobServerGateway,
        answers: Answers,
        add: Callable[[JobGraph], None],
        upgrades: KnownUpgrades,
    ) -> None:
        super().__init__(owner)
        self._configuration = configuration
        self._table = table
        self._writes = writes
        self._blobs = blobs
        self._answers = answers
        self._add = add
        self._upgrades = upgrades
        self._creating: dict[JobId, JobGraph] = {}
        self._disposals: list[Disposal] = []

    def creating(self) -> tuple[JobGraph, ...]:
        """Return the jobs that are being written to the store."""
        return tuple(self._creating.values())

    async def submit(self, graph: JobGraph, *, is_kept: bool = False) -> Submission:
        """Accept a job durably. ``is_kept``: an upgrade submits it, which keeps a place for it.

        Raises InvalidInput, NotUploaded (an artefact), Conflict (the id is taken, retention deletes the savepoint to
        start from, or an upgrade needs either of them), OverQuota (of its namespace), RetryLater, UnknownOutcome,
        Fatal.
        """
        answer = await self.ask(partial(self._submit, graph, is_kept))
        return await answer

    async def knows(self, graph: JobGraph) -> bool:
        """True if a job with this id or idempotency key was accepted, or is being accepted."""
        return await self.ask(lambda: self._is_taken(graph.job_id) or self._table.has_key(graph.idempotency_key))

    @asked
    def begin_disposal(self, disposal: Disposal) -> None:
        """Accept no job that starts from a savepoint until its disposal is over.

        Raises Conflict if such a job is being accepted.
        """
        for graph in self._creating.values():
            if graph.savepoint and is_same_place(graph.savepoint, disposal.path):
                raise Conflict(
                    f"job {graph.job_id} ({graph.name}), which starts from {disposal.path}, is being submitted",
                    hint="delete the savepoint when that job has ended",
                )
        self._disposals = [*self._ongoing_disposals(), disposal]

    def _ongoing_disposals(self) -> list[Disposal]:
        return [each for each in self._disposals if not each.is_over]

    def check(self, graph: JobGraph) -> None:
        """Raise InvalidInput unless the job can be accepted later; Conflict if its id is taken."""
        self._check_graph(graph)
        if self._is_taken(graph.job_id):
            raise _taken(graph.job_id)

    def _check_graph(self, graph: JobGraph) -> None:
        check_graph(graph)
        job_configuration(self._configuration, graph)

    def _is_taken(self, job_id: JobId) -> bool:
        return job_id in self._creating or self._table.key_of(job_id) is not None

    def _submit(self, graph: JobGraph, is_kept: bool) -> asyncio.Future[Submission]:
        self._check_graph(graph)
        if self._is_taken(graph.job_id):
            before = self._submitted_before(graph)
            known: asyncio.Future[Submission] = self._answers.new()
            known.set_result(before)
            return known
        try:
            self._check_new(graph, is_kept=is_kept)
        except EmberkeepError:
            if any(each.idempotency_key == graph.idempotency_key for each in self._creating.values()):
                raise _being_submitted() from None
            if not self._table.has_key(graph.idempotency_key):
                raise  # else it repeats a submission that was accepted, under an id that its sender may never have got
        answer: asyncio.Future[Submission] = self._answers.new()
        self._creating[graph.job_id] = graph
        self._owner.start_effect(f"create {graph.job_id}", self._create(graph, answer), deadline=None)
        return answer

    def _check_new(self, graph: JobGraph, *, is_kept: bool) -> None:
        """Raise the reason if a job that was not submitted before cannot be accepted now."""
        if not is_kept:
            refuse_reserved(graph, self._upgrades.ongoing(), self._table)
            self._check_room()
            self._check_quota(graph.namespace)
            self._check_disposals(graph.savepoint)
        if graph.savepoint and self._table.is_retiring(graph.savepoint):
            raise Conflict(
                f"the savepoint {graph.savepoint} is being deleted, because its job has newer ones",
                hint="start from a newer one: `emberkeep savepoint list` shows them",
            )

    def _check_disposals(self, path: str) -> None:
        """Raise RetryLater if somebody deletes the savepoint at ``path``, or tries to. "" is no savepoint."""
        if path and any(is_same_place(each.path, path) for each in self._ongoing_disposals()):
            raise RetryLater(
                f"the savepoint {path} is being deleted, as somebody has asked",
                hint="`emberkeep savepoint list` shows others",
            )

    def _check_room(self) -> None:
        """Raise RetryLater if the cluster has as many jobs as it accepts."""
        most = self._configuration[MAX_JOBS]
        if self._table.running() + len(self._creating) + self._kept_places(None) >= most:
            raise RetryLater(
                f"{most} jobs are running or waiting, the most that this cluster accepts",
                hint=f"see {MAX_JOBS.key}",
            )

    def _check_quota(self, namespace: str) -> None:
        """Raise OverQuota if the namespace has as many jobs as it may have."""
        most = self._configuration[QUOTA_JOBS]
        if not most or not namespace:
            return
        creating = sum(graph.namespace == namespace for graph in self._creating.values())
        found = self._table.running_in(namespace) + creating + self._kept_places(namespace)
        if found >= most:
            raise OverQuota(
                f"namespace {namespace!r} has {found} jobs that have not ended, and may have {most}",
                hint=f"wait until one has ended, or cancel one; the JobManager's {QUOTA_JOBS.key} is the quota",
                seconds=_QUOTA_SECONDS,
            )

    def _kept_places(self, namespace: str | None) -> int:
        return self._upgrades.kept_places(namespace, self._creating)

    def _submitted_before(self, graph: JobGraph) -> Submission:
        creating = self._creating.get(graph.job_id)
        key = creating.idempotency_key if creating else self._table.key_of(graph.job_id)
        if key != graph.idempotency_key:
            raise _taken(graph.job_id)
        if creating is not None:
            raise _being_submitted()
        self._check_namespace(graph, graph.job_id)
        return Submission(job_id=graph.job_id, created=False)

    async def _create(self, graph: JobGraph, answer: asyncio.Future[Submission]) -> None:
        def give_up(error: EmberkeepError) -> None:
            if not answer.done():
                answer.set_exception(error)

        job_id: JobId | None = None
        try:
            await self._blobs.claim(graph.job_id, artefact_contents(graph))
        except EmberkeepError as error:
            give_up(error)
        else:
            job_id = await self._writes.create(graph, give_up)
            if job_id != graph.job_id:
                self._blobs.withdraw(graph.job_id)
        self.tell(partial(self._created, graph, job_id, answer))

    def _created(self, graph: JobGraph, job_id: JobId | None, answer: asyncio.Future[Submission]) -> None:
        self._creating.pop(graph.job_id, None)
        if job_id is None:
            return
        created = job_id == graph.job_id
        # Another submission with the same key may have written the job without having learned of that yet. Add the job
        # now.
        written = graph if created else self._creating.pop(job_id, None)
        if written is not None and self._table.key_of(job_id) is None:
            log.info("job accepted", job=job_id, name=graph.name)
            self._add(written)
        if answer.done():
            return
        try:
            if not created:
                self._check_namespace(graph, job_id)
        except EmberkeepError as error:
            answer.set_exception(error)
        else:
            answer.set_result(Submission(job_id=job_id, created=created))

    def _check_namespace(self, graph: JobGraph, job_id: JobId) -> None:
        """Check that the job which was submitted before under the same key is in the same namespace.

        Who chooses keys by a rule may choose the key of another namespace, and must not take its job for their own.
        Raises Conflict if it is in another one, RetryLater if that cannot be read now.
        """
        try:
            view = self._table.view(job_id)
        except Absent:  # its result has expired
            return
        if not view.has_known_owner:
            raise RetryLater(f"the job of this idempotency key cannot be read now: {view.waiting}")
        if view.namespace != graph.namespace:
            raise Conflict(
                "a job of another namespace was submitted with this idempotency key",
                hint="choose a random key for each job",
            )


def _taken(job_id: JobId) -> Conflict:
    return Conflict(f"job id {job_id} is taken by another submission", hint="submit with a new job id")


def _being_submitted() -> RetryLater:
    return RetryLater("a job with this idempotency key is being submitted", hint="try again in a second")
