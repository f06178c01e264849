"""Bring the cluster to what a file declares.

The JobManager replaces a running job, by an upgrade. A client may crash between any two steps. The next ``apply`` reads
the cluster again and continues: an upgrade that goes on is followed, a job that a person has had stopped is continued
from its savepoint. A job has one successor, by its idempotency key or by the id of its upgrade.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from emberkeep.base.errors import Conflict, EmberkeepError, Fatal
from emberkeep.base.ids import JobId
from emberkeep.client.declarations.declaration import Wanted, keyed, record_in
from emberkeep.client.declarations.differences import differences
from emberkeep.client.declarations.plan import (
    Choice,
    Known,
    Plan,
    Step,
    Stop,
    make_plan,
    upgrade_id,
)
from emberkeep.client.declarations.policies import UpgradePolicy
from emberkeep.client.rest_client import RestClient
from emberkeep.client.savepoint_wait import until_completed
from emberkeep.client.submission.blob_upload import UploadProgress
from emberkeep.client.submission.job_submission import JobSubmitting
from emberkeep.client.submission.successor_key import successor_key
from emberkeep.client.upgrades.upgrading import UpgradeChoice, begun, until_ended
from emberkeep.jobs.upgrades.model import UpgradePhase
from emberkeep.lifecycle.model import Procedure, ProcedurePhase
from emberkeep.protocol.rest_jobs import JobDetailsInfo, ProcedureInfo
from emberkeep.protocol.rest_savepoints import SavepointStatus
from emberkeep.protocol.upgrades.rest_upgrades import UpgradeInfo


@dataclass(frozen=True)
class ApplyDisplay:
    """Shows the user what happens: lines, the progress of a stop, of an upload, and of an upgrade."""

    notice: Callable[[str], None]
    stopping: Callable[[SavepointStatus], None]
    upload: UploadProgress
    upgrading: Callable[[UpgradeInfo], None]


class Applying:
    """Apply one declaration. ``plan`` must be called first; ``carry_out`` does what it returned."""

    def __init__(self, client: RestClient, wanted: Wanted, choice: Choice) -> None:
        self._client, self._wanted, self._choice = client, wanted, choice
        self._known: Known | None = None
        self._namespace = ""

    async def plan(self) -> Plan:
        """Return what must be done. Changes nothing. Raises Conflict, InvalidInput, and what RestClient raises."""
        declaration = self._wanted.record.declaration
        self._namespace = declaration.namespace or (await self._client.tokens.caller()).namespace
        self._known = await find_known(self._client, self._namespace, declaration.name)
        plan = make_plan(self._wanted.record, self._known, self._choice)
        return plan if self._known is None else dataclasses.replace(plan, job_id=self._known.job_id)

    async def carry_out(self, plan: Plan, display: ApplyDisplay) -> JobId:
        """Do what the plan says, and return the id of the job that runs as declared.

        Raises Conflict (another client has changed the job in the meantime), Fatal (the changed job does not run), and
        what RestClient and JobSubmitting raise.
        """
        known, savepoint = self._known, plan.savepoint
        if plan.step is Step.NOTHING and known is not None:
            return JobId(known.job_id)
        if plan.step in (Step.UPGRADE, Step.FOLLOW) and known is not None:
            return await self._upgraded(known, plan, display)
        if plan.step is Step.WAIT_AND_START and known is not None:
            savepoint = await self._stopped(known, display)
        name, before = self._wanted.record.declaration.name, known.job_id if known else ""
        key = successor_key("declared", self._namespace, name, before)
        job = keyed(self._wanted, key, savepoint)
        job_id = await JobSubmitting(self._client, job, display.upload, display.notice).run()
        await self._check(job_id)
        return job_id

    async def _upgraded(self, known: Known, plan: Plan, display: ApplyDisplay) -> JobId:
        """Upgrade the job, or follow the upgrade that goes on; return the id of the job that runs as declared."""
        job_id = JobId(known.job_id)
        if plan.step is Step.UPGRADE:
            await begun(
                self._client,
                job_id,
                keyed(self._wanted, self._wanted.job.submission.idempotency_key, ""),
                self._choice_of(known),
                display.upload,
                display.notice,
            )
        state = await until_ended(self._client, job_id, display.upgrading, display.notice)
        if state.phase is not UpgradePhase.DONE:
            raise Fatal(
                f"the declared job does not run: {state.text}",
                hint=f"`emberkeep logs {state.new_job[:8]}` shows what it did; correct the file, and apply it again",
            )
        await self._check(state.new_job)
        return state.new_job

    def _choice_of(self, known: Known) -> UpgradeChoice:
        declaration = self._wanted.record.declaration
        policy = declaration.upgrade or UpgradePolicy()
        return UpgradeChoice(
            upgrade_id=upgrade_id(self._namespace, declaration.name, known),
            batches=policy.batches,
            within_ms=policy.within_ms(),
            restarts=policy.restarts,
        )

    async def _stopped(self, known: Known, display: ApplyDisplay) -> str:
        """Wait until the job, which is being stopped, has ended. Return the savepoint's location."""
        job_id, request = JobId(known.job_id), known.stop.request_id if known.stop is not None else ""
        state = await until_completed(self._client, job_id, request, display.stopping, display.notice)
        failure = None if state.operation is None else state.operation.failure_cause
        if failure is not None:
            raise Fatal(
                f"job {job_id[:8]} was not stopped, and continues as it was declared before: {failure.stack_trace}",
                hint=f"apply again, or `emberkeep cancel {job_id[:8]}` and apply with --again",
            )
        return state.emberkeep.location

    async def _check(self, job_id: JobId) -> None:
        """Raise Conflict unless the job runs as declared: another client may have submitted its successor first."""
        config = (await self._client.config(job_id)).emberkeep
        record = None if config is None else record_in(config.spark_conf)
        if record is not None and not differences(record, self._wanted.record):
            return
        raise Conflict(
            f"another client has started job {job_id[:8]} under this name in the meantime, with another declaration",
            hint="apply again if this one is right",
        )


async def find_known(client: RestClient, namespace: str, name: str) -> Known | None:
    """Return the unfinished job of this name, else the newest; None if there is none. Raises Conflict (several)."""
    jobs = [
        job
        for job in await client.jobs(namespace=namespace)
        if job.name == name and job.emberkeep.namespace == namespace
    ]
    unfinished = [job for job in jobs if not job.state.is_globally_terminal]
    if len(unfinished) > 1:
        shown = ", ".join(job.jid[:8] for job in unfinished)
        raise Conflict(f"{len(unfinished)} jobs have the name {name!r}: {shown}", hint="end all but the declared one")
    chosen = unfinished or jobs[:1]
    return await _known(client, await client.job(chosen[0].jid)) if chosen else None


async def _known(client: RestClient, job: JobDetailsInfo) -> Known:
    config, upgrade = (await client.config(job.jid)).emberkeep, job.emberkeep.upgrade
    if job.state.is_globally_terminal:
        stop = await _stop_of_ended(client, job.jid)
    else:
        stop = _stop_of_running(job.emberkeep.procedure)
    return Known(
        job_id=job.jid,
        state=job.state,
        is_readable=config is not None,
        record=None if config is None else record_in(config.spark_conf),
        stop=stop,
        upgrade_id="" if upgrade is None else upgrade.upgrade_id,
        is_upgrading=upgrade is not None and not upgrade.phase.is_final,
        replaced_by=replaced_by(job.jid, upgrade),
    )


def replaced_by(job_id: JobId, upgrade: UpgradeInfo | None) -> str:
    """Return the job that an upgrade has put in this one's place; "" if none has been."""
    if upgrade is None or upgrade.old_job != job_id:
        return ""
    return {UpgradePhase.DONE: upgrade.new_job, UpgradePhase.RETURNED: upgrade.back_job}.get(upgrade.phase, "")


def _stop_of_running(asked: ProcedureInfo | None) -> Stop | None:
    if asked is None or asked.procedure is None or not asked.procedure.stops_job:
        return None
    return Stop(asked.procedure, asked.phase, asked.trigger_id, asked.location)


async def _stop_of_ended(client: RestClient, job_id: JobId) -> Stop | None:
    """Return the stop that ended the job, by its newest savepoint; None if the job ended in another way."""
    made = [each for each in (await client.savepoints.all()).savepoints if each.job_id == job_id]
    newest = max(made, key=lambda each: each.created, default=None)
    if newest is None:
        return None
    procedure = (await client.savepoints.status(job_id, newest.trigger_id)).emberkeep.procedure
    if procedure is None:  # an earlier leader got the request
        try:
            procedure = (await client.savepoints.manifest(newest.path)).procedure
        except EmberkeepError:
            procedure = Procedure.DRAIN  # it may have been one, and then a person must decide
    return Stop(procedure, ProcedurePhase.COMPLETED, newest.trigger_id, newest.path) if procedure.stops_job else None
