"""What users ask about upgrades: to begin one, to cancel it, and how far it is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

import structlog

from emberkeep.base.actors import Actor, ActorPart, asked
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Absent, Conflict, EmberkeepError, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.base.request_context import caller
from emberkeep.jobmanager.answers import Answers
from emberkeep.jobmanager.jobs.cancellations import Cancellations
from emberkeep.jobmanager.jobs.job_machines import JobMachines
from emberkeep.jobmanager.jobs.requests import JobRequests
from emberkeep.jobmanager.jobs.submissions import Submissions
from emberkeep.jobmanager.jobs.upgrades.beginning import UpgradeBeginning
from emberkeep.jobmanager.jobs.upgrades.first_record import first_record
from emberkeep.jobmanager.jobs.upgrades.known import KnownUpgrades
from emberkeep.jobmanager.jobs.upgrades.steps import UpgradeSteps
from emberkeep.jobmanager.notes.upgrade_notes import upgrade_begun
from emberkeep.jobmanager.store_writes import StoreWrites
from emberkeep.jobmanager.surroundings import Surroundings
from emberkeep.jobmanager.term import Term
from emberkeep.jobmanager.views.blobs import BlobServerGateway
from emberkeep.jobmanager.views.upgrades import UpgradeView, UpgradeWish
from emberkeep.jobs.model import JobGraph, JobStatus
from emberkeep.jobs.upgrades.machine import MAY_CANCEL, UpgradeMachine, too_late
from emberkeep.jobs.upgrades.model import Upgrade
from emberkeep.lifecycle.model import Procedure
from emberkeep.lifecycle.requests.transitions import RequestPhase

log = structlog.get_logger(__name__)


class Upgrades(ActorPart):
    """Requests about upgrades. Each waits until the record that answers it is durable.

    It connects what an upgrade needs, which is most of the Dispatcher's parts, so it has many collaborators.
    """

    def __init__(
        self,
        owner: Actor,
        configuration: Configuration,
        surroundings: Surroundings,
        known: KnownUpgrades,
        machines: JobMachines,
        requests: JobRequests,
        submissions: Submissions,
        cancellations: Cancellations,
        writes: StoreWrites,
        blobs: BlobServerGateway,
        answers: Answers,
        term: Term,
    ) -> None:
        super().__init__(owner)
        self._configuration = configuration
        self._root = surroundings.savepoint_root
        self._known = known
        self._machines = machines
        self._requests = requests
        self._submissions = submissions
        self._answers = answers
        self._clock = term.clock
        self._beginning = UpgradeBeginning(writes, blobs)
        self._steps = UpgradeSteps(
            owner,
            known,
            machines,
            requests,
            submissions,
            cancellations,
            writes,
            blobs,
            term.clock,
            self._answer_cancelled,
        )
        self._cancelling: dict[str, list[asyncio.Future[UpgradeView]]] = {}

    def recover(self, stored: Iterable[Upgrade]) -> None:
        """Take over the upgrades of the store. Call this once, when the jobs are recovered."""
        for upgrade in stored:
            self._known.add(upgrade)
        self._steps.wake()

    async def run(self) -> None:
        """Carry on with the upgrades that go on, until cancelled."""
        await self._steps.run()

    @asked
    def view(self, job_id: JobId) -> UpgradeView:
        """Return the newest upgrade that the job is part of. Raises Absent."""
        found = self._known.of_job(job_id)
        if found is None:
            self._machines.table.view(job_id)
            raise Absent(f"job {job_id} is part of no upgrade that is known", hint="`emberkeep upgrade JOB app.py`")
        return found

    def check_invariants(self) -> None:
        """Raise AssertionError if a state contradicts itself. For tests and the simulator."""
        for machine in self._known.machines():
            machine.check_invariants()

    # --- begin --------------------------------------------------------------------------------------------------------

    async def begin(self, job_id: JobId, wish: UpgradeWish) -> UpgradeView:
        """Record an upgrade durably; see UpgradeGateway."""
        answer = await self.ask(partial(self._begin, job_id, wish, caller()))
        return await answer

    def _begin(self, job_id: JobId, wish: UpgradeWish, by: str) -> asyncio.Future[UpgradeView]:
        before = self._known.find(wish.upgrade_id)
        if before is not None:
            if before.job_id != job_id:
                raise Conflict(f"the upgrade id {wish.upgrade_id} was used for another upgrade")
            repeated: asyncio.Future[UpgradeView] = self._answers.new()
            repeated.set_result(self._known.view(before))
            return repeated
        old = self._upgradable(job_id, wish)
        self._submissions.check(wish.new)
        upgrade = first_record(old, wish, self._clock.now_ms(), self._configuration, self._root)
        self._known.add_asked(upgrade)
        answer: asyncio.Future[UpgradeView] = self._answers.new()
        work = self._record_begin(upgrade, by, answer)
        self._owner.start_effect(f"begin upgrade {upgrade.upgrade_id}", work, deadline=None)
        return answer

    def _upgradable(self, job_id: JobId, wish: UpgradeWish) -> JobGraph:
        """Return the job's graph. Raises Absent, Conflict, RetryLater if the job cannot be upgraded now."""
        view = self._machines.table.view(job_id)
        job = self._machines.table.active.get(job_id)
        for each in self._known.ongoing():
            if {job_id, wish.new.job_id, wish.back.job_id} & set(each.jobs):
                raise Conflict(
                    f"job {job_id} is part of the upgrade {each.upgrade_id}, which goes on",
                    hint=f"`emberkeep upgrade {job_id[:8]}` follows it; --cancel goes back to the old code",
                )
        if self._requests.end_of(job_id, wish.upgrade_id, view.pointers) is not None:
            raise Conflict(
                f"the upgrade id {wish.upgrade_id} was used for another request to job {job_id}",
                hint="choose a new one: 32 random hex digits",
            )
        if job is None or view.status.is_globally_terminal:
            raise Conflict(
                f"job {job_id} has ended: it is {view.status.value}",
                hint="start the new code from its savepoint: `emberkeep savepoint restore PATH app.py`",
            )
        if view.status in (JobStatus.CANCELLING, JobStatus.FAILING):
            raise Conflict(f"job {job_id} is ending: it is {view.status.value}")
        if job.graph is None:
            raise RetryLater(f"job {job_id} waits for {view.waiting}", hint="its driver continues to run; try again")
        if job.requests.phase is RequestPhase.STOPPED or (
            job.requests.newest is not None
            and not job.requests.newest.periodic
            and job.requests.newest.procedure is not Procedure.MOVE
        ):
            raise Conflict(
                f"job {job_id} is busy with a savepoint or a stop", hint="wait until that has ended, then try again"
            )
        return job.graph

    async def _record_begin(self, upgrade: Upgrade, by: str, answer: asyncio.Future[UpgradeView]) -> None:
        def refuse(error: EmberkeepError) -> None:
            if not answer.done():
                answer.set_exception(error)

        recorded = await self._beginning.record(upgrade, refuse)
        self.tell(partial(self._begun, upgrade, by, recorded, answer))

    def _begun(self, upgrade: Upgrade, by: str, recorded: bool, answer: asyncio.Future[UpgradeView]) -> None:
        self._known.drop_asked(upgrade)
        if not recorded:
            return
        log.info("upgrade begins", upgrade=upgrade.upgrade_id, job=upgrade.job_id, new=upgrade.new_id)
        self._machines.chronicle.note(upgrade_begun(upgrade, by))
        self._known.add(upgrade)
        self._steps.wake()
        self._steps.look()
        if not answer.done():
            answer.set_result(self._known.view(upgrade))

    # --- cancel -------------------------------------------------------------------------------------------------------

    async def cancel(self, job_id: JobId) -> UpgradeView:
        """Have the job's upgrade go back; see UpgradeGateway."""
        answer = await self.ask(partial(self._cancel, job_id, caller()))
        return await answer

    def _cancel(self, job_id: JobId, by: str) -> asyncio.Future[UpgradeView]:
        found = self._known.of_job(job_id)
        if found is None:
            raise Absent(f"job {job_id} is part of no upgrade that is known")
        machine = self._known.machine(found.upgrade.upgrade_id)
        (machine or UpgradeMachine(found.upgrade)).cancel(by)
        answer: asyncio.Future[UpgradeView] = self._answers.new()
        if found.upgrade.canceled_by:  # durable: the reply to an earlier request may have been lost
            answer.set_result(found)
            return answer
        self._cancelling.setdefault(found.upgrade.upgrade_id, []).append(answer)
        self._steps.look()
        return answer

    def _answer_cancelled(self, upgrade: Upgrade) -> None:
        """Answer those who wait as soon as the record decides: it was cancelled, or another phase came first."""
        if not upgrade.canceled_by and upgrade.phase in MAY_CANCEL:
            return
        for answer in self._cancelling.pop(upgrade.upgrade_id, []):
            if answer.done():
                continue
            if upgrade.canceled_by:
                answer.set_result(self._known.view(upgrade))
            else:
                answer.set_exception(too_late(upgrade))
