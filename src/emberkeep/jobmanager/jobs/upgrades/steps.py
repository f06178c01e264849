"""Carries out what the state machines of upgrades decide: records, stops, submissions, cancellations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from emberkeep.base.actors import Actor, ActorPart
from emberkeep.base.errors import Conflict, EmberkeepError, InvalidInput, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.jobmanager.jobs.cancellations import Cancellations
from emberkeep.jobmanager.jobs.job_machines import JobMachines
from emberkeep.jobmanager.jobs.requests import JobRequests
from emberkeep.jobmanager.jobs.submissions import Submissions
from emberkeep.jobmanager.jobs.upgrades.facts import facts_of, pointers_of
from emberkeep.jobmanager.jobs.upgrades.known import KnownUpgrades
from emberkeep.jobmanager.notes.upgrade_notes import upgrade_entered
from emberkeep.jobmanager.steady_clock import SteadyClock
from emberkeep.jobmanager.store_writes import StoreWrites
from emberkeep.jobmanager.views.blobs import BlobServerGateway
from emberkeep.jobs.model import JobGraph
from emberkeep.jobs.upgrades.machine import UpgradeMachine
from emberkeep.jobs.upgrades.model import AskStop, CancelJob, Effect, SubmitJob, Upgrade, WriteUpgrade
from emberkeep.lifecycle.model import Procedure, ProcedureRequest

LOOK = 0.5  # seconds between two looks at the upgrades that go on
_PAUSE = 2.0  # seconds after a submission that did not succeed and may be tried again

log = structlog.get_logger(__name__)


class UpgradeSteps(ActorPart):
    """The steps of all upgrades that go on.

    ``recorded`` is called with each record that has become durable. A step may need most of the Dispatcher's parts, so
    there are many collaborators.
    """

    def __init__(
        self,
        owner: Actor,
        known: KnownUpgrades,
        machines: JobMachines,
        requests: JobRequests,
        submissions: Submissions,
        cancellations: Cancellations,
        writes: StoreWrites,
        blobs: BlobServerGateway,
        clock: SteadyClock,
        recorded: Callable[[Upgrade], None],
    ) -> None:
        super().__init__(owner)
        self._known = known
        self._machines = machines
        self._requests = requests
        self._submissions = submissions
        self._cancellations = cancellations
        self._writes = writes
        self._blobs = blobs
        self._clock = clock
        self._recorded = recorded
        self._some = asyncio.Event()

    async def run(self) -> None:
        """Look at the upgrades that go on, until cancelled."""
        while True:
            if not self._known.machines():
                self._some.clear()
                await self._some.wait()
            self.tell(self.look)
            await asyncio.sleep(LOOK)

    def wake(self) -> None:
        """Note that an upgrade goes on from now."""
        self._some.set()

    def look(self) -> None:
        """Take the next step of each upgrade."""
        creating = frozenset(graph.job_id for graph in self._submissions.creating())
        for machine in self._known.machines():
            upgrade = machine.upgrade
            pointers = pointers_of(upgrade.job_id, self._machines.table)
            stop = self._requests.end_of(upgrade.job_id, upgrade.upgrade_id, pointers)
            has_stopped = self._requests.has_stopped(upgrade.job_id, upgrade.upgrade_id)
            facts = facts_of(upgrade, self._machines.table, creating, stop, has_stopped=has_stopped)
            for effect in machine.looked(facts, now=self._clock.now(), ms=self._clock.now_ms()):
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

    # --- records ------------------------------------------------------------------------------------------------------

    async def _write(self, machine: UpgradeMachine, upgrade: Upgrade) -> None:
        """Raises Conflict, which ends the actor, if this JobManager is no longer the leader."""
        await self._writes.record_upgrade(upgrade)
        self.tell(partial(self._written, machine))

    def _written(self, machine: UpgradeMachine) -> None:
        before = machine.upgrade.phase
        machine.written()
        upgrade = machine.upgrade
        self._recorded(upgrade)
        if upgrade.phase is not before:
            log.info("upgrade", upgrade=upgrade.upgrade_id, phase=upgrade.phase.value, reason=upgrade.reason)
            for occurrence in upgrade_entered(upgrade):
                self._machines.chronicle.note(occurrence)
        if upgrade.phase.is_final:
            self._end(upgrade)
        self.look()

    def _end(self, upgrade: Upgrade) -> None:
        forgotten = self._known.end(upgrade)
        for job_id in (upgrade.new_id, upgrade.back_id):
            if self._machines.table.key_of(job_id) is None:  # it was never accepted, and never will be
                self._blobs.job_ended(job_id)
        if forgotten:
            self._owner.start_effect("forget upgrades", self._writes.remove_upgrades(forgotten), deadline=None)

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def _ask_stop(self, machine: UpgradeMachine) -> None:
        upgrade = machine.upgrade
        job = self._machines.table.active.get(upgrade.job_id)
        if job is None or job.graph is None:
            return  # its graph cannot be read now
        # The time for the stop begins now: copying files and waiting for other requests may have taken long.
        now = self._clock.now_ms()
        request = ProcedureRequest(
            trigger_id=upgrade.upgrade_id,
            procedure=Procedure.SUSPEND,
            target_directory=upgrade.target_directory,
            requested_ms=now,
            deadline_ms=now + upgrade.stop_deadline_ms - upgrade.began_ms,
        )
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
        self.look()

    async def _cancel_job(self, machine: UpgradeMachine, job_id: JobId) -> None:
        try:
            await self._cancellations.cancel(job_id)
        except EmberkeepError as error:  # it has just ended, or the store does not answer
            log.info("cannot cancel a job of an upgrade", job=job_id, reason=str(error))
            await asyncio.sleep(_PAUSE)
        self.tell(machine.cancel_recorded)
