"""Carries out what the state machines of upgrades decide: records, stops, submissions, cancellations."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

import msgspec
import structlog

from emberkeep.base.actors import Actor, ActorPart, asked
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Absent, Conflict, EmberkeepError, InvalidInput, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.base.request_context import caller
from emberkeep.jobmanager.answers import Answers
from emberkeep.jobmanager.jobs.cancellations import Cancellations
from emberkeep.jobmanager.jobs.job_machines import JobMachines
from emberkeep.jobmanager.jobs.job_table import ManagedJob
from emberkeep.jobmanager.jobs.procedure_defaults import with_defaults
from emberkeep.jobmanager.jobs.requests import JobRequests
from emberkeep.jobmanager.jobs.submissions import Submissions
from emberkeep.jobmanager.jobs.upgrades.beginning import UpgradeBeginning
from emberkeep.jobmanager.jobs.upgrades.facts import facts_of, pointers_of, queries_of
from emberkeep.jobmanager.jobs.upgrades.reserved import refuse_reserved
from emberkeep.jobmanager.notes.upgrade_notes import upgrade_begun, upgrade_entered
from emberkeep.jobmanager.store_writes import StoreWrites
from emberkeep.jobmanager.surroundings import Surroundings
from emberkeep.jobmanager.term import Term
from emberkeep.jobmanager.views.blobs import BlobServerGateway
from emberkeep.jobmanager.views.upgrades import UpgradeView, UpgradeWish
from emberkeep.jobs.model import JobGraph, JobStatus
from emberkeep.jobs.upgrades.machine import MAY_CANCEL, UpgradeMachine, too_late
from emberkeep.jobs.upgrades.model import (
    AskStop,
    CancelJob,
    Effect,
    SubmitJob,
    Upgrade,
    UpgradePhase,
    WriteUpgrade,
)
from emberkeep.jobs.upgrades.words import upgrade_text
from emberkeep.lifecycle.model import Procedure, ProcedureRequest
from emberkeep.lifecycle.requests.transitions import RequestPhase

LOOK = 0.5  # seconds between two looks at the upgrades that go on
ENDED_KEPT = 100  # the newest upgrades that have ended
_PAUSE = 2.0  # seconds after a submission that did not succeed and may be tried again

log = structlog.get_logger(__name__)


class Upgrades(ActorPart):
    """All upgrades: those that go on, and the newest that have ended.

    It connects what an upgrade needs, which is most of the Dispatcher's parts, so it has many collaborators.
    """

    def __init__(
        self,
        owner: Actor,
        configuration: Configuration,
        surroundings: Surroundings,
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
        self._machines = machines
        self._requests = requests
        self._submissions = submissions
        self._cancellations = cancellations
        self._writes = writes
        self._blobs = blobs
        self._answers = answers
        self._clock = term.clock
        self._beginning = UpgradeBeginning(writes, blobs)
        self._open: dict[str, UpgradeMachine] = {}  # by upgrade id
        self._ended: dict[str, Upgrade] = {}  # oldest first
        self._newest: dict[JobId, str] = {}  # by job: the newest upgrade that it is part of
        self._recording: dict[str, Upgrade] = {}  # asked for, and not recorded yet
        self._some = asyncio.Event()
        self._cancelling: dict[str, list[asyncio.Future[UpgradeView]]] = {}

    def recover(self, stored: Iterable[Upgrade]) -> None:
        """Take over the upgrades of the store. Call this once, when the jobs are recovered."""
        for upgrade in stored:
            if upgrade.phase.is_final:
                self._ended[upgrade.upgrade_id] = upgrade
                self._index(upgrade)
            else:
                self._continue(upgrade)

    async def run(self) -> None:
        """Look at the upgrades that go on, until cancelled."""
        while True:
            if not self._open:
                self._some.clear()
                await self._some.wait()
            self.tell(self._look)
            await asyncio.sleep(LOOK)

    def _continue(self, upgrade: Upgrade) -> None:
        self._open[upgrade.upgrade_id] = UpgradeMachine(upgrade)
        self._index(upgrade)
        self._some.set()

    def _index(self, upgrade: Upgrade) -> None:
        for job_id in upgrade.jobs:
            self._newest[job_id] = upgrade.upgrade_id

    def _forget(self, upgrade_id: str) -> None:
        for job_id in self._ended.pop(upgrade_id).jobs:
            if self._newest.get(job_id) == upgrade_id:
                del self._newest[job_id]

    # --- what others read ---------------------------------------------------------------------------------------------

    @asked
    def view(self, job_id: JobId) -> UpgradeView:
        """Return the newest upgrade that the job is part of. Raises Absent."""
        found = self.of_job(job_id)
        if found is None:
            self._machines.table.view(job_id)
            raise Absent(f"job {job_id} is part of no upgrade that is known", hint="`emberkeep upgrade JOB app.py`")
        return found

    def of_job(self, job_id: JobId) -> UpgradeView | None:
        """Return the newest upgrade that the job is part of; None if there is none."""
        upgrade_id = self._newest.get(job_id)
        if upgrade_id is None:
            return None
        machine = self._open.get(upgrade_id)
        return self._shown(self._ended[upgrade_id] if machine is None else machine.upgrade)

    def _shown(self, upgrade: Upgrade) -> UpgradeView:
        queries = queries_of(self._machines.table.active.get(upgrade.new_id))
        bare = msgspec.structs.replace(upgrade, new=None, back=None)
        return UpgradeView(upgrade=bare, text=upgrade_text(upgrade, queries))

    def between(self, namespace: str | None) -> int:
        """Return how many jobs have a place kept: between the end of one version and the acceptance of the next.

        ``namespace``: None for all.
        """
        table, creating = self._machines.table, {graph.job_id for graph in self._submissions.creating()}
        return sum(
            namespace in (None, upgrade.namespace)
            and not any(job_id in creating or table.is_running(job_id) for job_id in upgrade.jobs)
            for upgrade in (machine.upgrade for machine in self._open.values())
        )

    def refuse(self, graph: JobGraph) -> None:
        """Raise Conflict for a submitted job that an upgrade starts itself, by its id or its savepoint."""
        refuse_reserved(graph, self._ongoing(), self._machines.table)

    def _ongoing(self) -> list[Upgrade]:
        return [*self._recording.values(), *(machine.upgrade for machine in self._open.values())]

    def check_invariants(self) -> None:
        """Raise AssertionError if a state contradicts itself. For tests and the simulator."""
        for machine in self._open.values():
            machine.check_invariants()

    # --- what users ask for -------------------------------------------------------------------------------------------

    async def begin(self, job_id: JobId, wish: UpgradeWish) -> UpgradeView:
        """Record an upgrade durably; see UpgradeGateway."""
        answer = await self.ask(partial(self._begin, job_id, wish, caller()))
        return await answer

    def _begin(self, job_id: JobId, wish: UpgradeWish, by: str) -> asyncio.Future[UpgradeView]:
        answer: asyncio.Future[UpgradeView] = self._answers.new()
        known = self._known(wish.upgrade_id)
        if known is not None:
            if known.job_id != job_id:
                raise Conflict(f"the upgrade id {wish.upgrade_id} was used for another upgrade")
            answer.set_result(self._shown(known))
            return answer
        job = self._upgradable(job_id, wish)
        self._submissions.check(wish.new)
        upgrade = self._record(job, wish)
        self._recording[upgrade.upgrade_id] = upgrade
        work = self._record_begin(upgrade, by, answer)
        self._owner.start_effect(f"begin upgrade {upgrade.upgrade_id}", work, deadline=None)
        return answer

    def _known(self, upgrade_id: str) -> Upgrade | None:
        if upgrade_id in self._recording:
            raise RetryLater(f"the upgrade {upgrade_id} is being recorded", hint="try again in a second")
        machine = self._open.get(upgrade_id)
        return machine.upgrade if machine is not None else self._ended.get(upgrade_id)

    def _upgradable(self, job_id: JobId, wish: UpgradeWish) -> ManagedJob:
        """Return the job. Raises Absent, Conflict, RetryLater if it cannot be upgraded now."""
        view = self._machines.table.view(job_id)
        job = self._machines.table.active.get(job_id)
        for each in self._ongoing():
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
        return job

    def _record(self, job: ManagedJob, wish: UpgradeWish) -> Upgrade:
        assert job.graph is not None  # noqa: S101 - see _upgradable
        now = self._clock.now_ms()
        stop = self._stop_request(job, wish.upgrade_id, now, wish.target_directory, now + wish.limit_ms)
        back = msgspec.structs.replace(
            job.graph,
            job_id=wish.back.job_id,
            secrets=wish.back.secrets,
            idempotency_key=f"upgrade-{wish.upgrade_id}-back",
        )
        new = msgspec.structs.replace(wish.new, idempotency_key=f"upgrade-{wish.upgrade_id}-new")
        return Upgrade(
            upgrade_id=wish.upgrade_id,
            job_id=job.job_id,
            name=job.graph.name,
            new_id=new.job_id,
            back_id=back.job_id,
            batches=wish.batches,
            within_ms=wish.within_ms,
            restarts=wish.restarts,
            phase=UpgradePhase.STOPPING,
            phase_ms=now,
            began_ms=now,
            target_directory=stop.target_directory,
            stop_deadline_ms=stop.deadline_ms,
            new=new,
            back=back,
            owner=job.graph.owner,
            namespace=job.graph.namespace,
        )

    def _stop_request(
        self, job: ManagedJob, upgrade_id: str, now: int, target: str, deadline_ms: int
    ) -> ProcedureRequest:
        request = ProcedureRequest(
            trigger_id=upgrade_id,
            procedure=Procedure.SUSPEND,
            target_directory=target,
            requested_ms=now,
            deadline_ms=deadline_ms if deadline_ms > now else 0,
        )
        return with_defaults(request, self._configuration, job.graph, self._root)

    async def _record_begin(self, upgrade: Upgrade, by: str, answer: asyncio.Future[UpgradeView]) -> None:
        def refuse(error: EmberkeepError) -> None:
            if not answer.done():
                answer.set_exception(error)

        recorded = await self._beginning.record(upgrade, refuse)
        self.tell(partial(self._begun, upgrade, by, recorded, answer))

    def _begun(self, upgrade: Upgrade, by: str, recorded: bool, answer: asyncio.Future[UpgradeView]) -> None:
        self._recording.pop(upgrade.upgrade_id, None)
        if not recorded:
            return
        log.info("upgrade begins", upgrade=upgrade.upgrade_id, job=upgrade.job_id, new=upgrade.new_id)
        self._machines.chronicle.note(upgrade_begun(upgrade, by))
        self._continue(upgrade)
        self._look()
        if not answer.done():
            answer.set_result(self._shown(upgrade))

    async def cancel(self, job_id: JobId) -> UpgradeView:
        """Have the job's upgrade go back; see UpgradeGateway."""
        answer = await self.ask(partial(self._cancel, job_id, caller()))
        return await answer

    def _cancel(self, job_id: JobId, by: str) -> asyncio.Future[UpgradeView]:
        found = self.of_job(job_id)
        if found is None:
            raise Absent(f"job {job_id} is part of no upgrade that is known")
        machine = self._open.get(found.upgrade.upgrade_id)
        (machine or UpgradeMachine(found.upgrade)).cancel(by)
        answer: asyncio.Future[UpgradeView] = self._answers.new()
        if found.upgrade.canceled_by:  # durable: the reply to an earlier request may have been lost
            answer.set_result(found)
            return answer
        self._cancelling.setdefault(found.upgrade.upgrade_id, []).append(answer)
        self._look()
        return answer

    def _answer_cancelled(self, upgrade: Upgrade) -> None:
        """Answer those who wait as soon as the record decides: it was cancelled, or another phase came first."""
        if not upgrade.canceled_by and upgrade.phase in MAY_CANCEL:
            return
        for answer in self._cancelling.pop(upgrade.upgrade_id, []):
            if answer.done():
                continue
            if upgrade.canceled_by:
                answer.set_result(self._shown(upgrade))
            else:
                answer.set_exception(too_late(upgrade))

    # --- steps --------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        creating = frozenset(graph.job_id for graph in self._submissions.creating())
        for machine in list(self._open.values()):
            upgrade = machine.upgrade
            pointers = pointers_of(upgrade.job_id, self._machines.table)
            stop = self._requests.end_of(upgrade.job_id, upgrade.upgrade_id, pointers)
            facts = facts_of(upgrade, self._machines.table, creating, stop)
            for effect in machine.looked(facts, self._clock.now_ms()):
                self._carry_out(machine, effect)

    def _carry_out(self, machine: UpgradeMachine, effect: Effect) -> None:
        name, start = machine.upgrade.upgrade_id, partial(self._owner.start_effect, deadline=None)
        match effect:
            case WriteUpgrade(upgrade):
                start(f"record upgrade {name}", self._write(machine, upgrade))
            case AskStop():
                self._ask_stop(machine)
            case SubmitJob(graph):
                start(f"submit {graph.job_id} for upgrade {name}", self._submit(machine, graph))
            case CancelJob(job_id):
                start(f"cancel {job_id} for upgrade {name}", self._cancel_job(machine, job_id))

    async def _write(self, machine: UpgradeMachine, upgrade: Upgrade) -> None:
        """Raises Conflict, which ends the actor, if this JobManager is no longer the leader."""
        await self._writes.record_upgrade(upgrade)
        self.tell(partial(self._written, machine))

    def _written(self, machine: UpgradeMachine) -> None:
        before = machine.upgrade.phase
        machine.written()
        upgrade = machine.upgrade
        self._answer_cancelled(upgrade)
        if upgrade.phase is not before:
            log.info("upgrade", upgrade=upgrade.upgrade_id, phase=upgrade.phase.value, reason=upgrade.reason)
            for occurrence in upgrade_entered(upgrade):
                self._machines.chronicle.note(occurrence)
        if upgrade.phase.is_final:
            self._end(upgrade)
        self._look()

    def _end(self, upgrade: Upgrade) -> None:
        del self._open[upgrade.upgrade_id]
        self._ended[upgrade.upgrade_id] = upgrade
        for job_id in (upgrade.new_id, upgrade.back_id):
            if self._machines.table.key_of(job_id) is None:  # it was never accepted, and never will be
                self._blobs.job_ended(job_id)
        surplus = list(self._ended)[: max(0, len(self._ended) - ENDED_KEPT)]
        if surplus:
            for each in surplus:
                self._forget(each)
            self._owner.start_effect("forget upgrades", self._writes.remove_upgrades(surplus), deadline=None)

    def _ask_stop(self, machine: UpgradeMachine) -> None:
        upgrade = machine.upgrade
        job = self._machines.table.active.get(upgrade.job_id)
        if job is None or job.graph is None:
            return  # its graph cannot be read now
        # The time for the stop begins now: copying files and waiting for other requests may have taken long.
        now, limit_ms = self._clock.now_ms(), upgrade.stop_deadline_ms - upgrade.began_ms
        request = self._stop_request(job, upgrade.upgrade_id, now, upgrade.target_directory, now + limit_ms)
        try:
            self._requests.give(job, request)
        except RetryLater:
            return  # a periodic savepoint is being made
        except Conflict as error:
            newest = job.requests.newest
            if newest is not None and newest.procedure is Procedure.MOVE:
                return  # it is asked again when the move has ended
            machine.stop_refused(str(error))

    async def _submit(self, machine: UpgradeMachine, graph: JobGraph) -> None:
        rejection = ""
        try:
            await self._submissions.submit(graph, is_kept=True)
        except (InvalidInput, Conflict) as error:
            rejection = str(error)
        except EmberkeepError as error:  # such as a job store without space
            log.warning("cannot submit a job of an upgrade yet", job=graph.job_id, reason=str(error))
            await asyncio.sleep(_PAUSE)
        self.tell(partial(self._submitted, machine, rejection))

    def _submitted(self, machine: UpgradeMachine, rejection: str) -> None:
        machine.submitted(rejection)
        self._look()

    async def _cancel_job(self, machine: UpgradeMachine, job_id: JobId) -> None:
        try:
            await self._cancellations.cancel(job_id)
        except EmberkeepError as error:  # it has just ended, or the store does not answer
            log.info("cannot cancel a job of an upgrade", job=job_id, reason=str(error))
            await asyncio.sleep(_PAUSE)
        self.tell(machine.cancel_recorded)
