"""Decide what ``apply`` must do: a pure function of what is declared and what the cluster knows."""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass

from emberkeep.base.errors import Conflict, InvalidInput
from emberkeep.client.declarations.declaration import DeclaredJob
from emberkeep.client.declarations.differences import Change, differences
from emberkeep.jobs.model import JobStatus
from emberkeep.lifecycle.model import Procedure, ProcedurePhase


class Step(enum.Enum):
    NOTHING = "nothing"
    START = "start"
    UPGRADE = "upgrade"  # the JobManager stops the job, starts the changed one, and goes back if it is not good
    FOLLOW = "follow"  # an upgrade of the job goes on already
    WAIT_AND_START = "wait and start"  # a person has had the job stopped


@dataclass(frozen=True)
class Stop:
    """A request to stop a job. ``location``: its savepoint, "" until it is complete."""

    procedure: Procedure
    phase: ProcedurePhase | None
    request_id: str
    location: str


@dataclass(frozen=True)
class Known:
    """The job that has the declared name: the unfinished one, else the newest. ``stop``: what stops or has stopped it.

    ``is_readable``: what it was submitted with is known; else ``record`` says nothing. ``record``: None if the job was
    not declared. ``upgrade_id``: of the newest upgrade that the job is part of, or ""; ``is_upgrading``: it goes on.
    ``replaced_by``: the job that an upgrade has put in this one's place, or "".
    """

    job_id: str
    state: JobStatus
    is_readable: bool
    record: DeclaredJob | None
    stop: Stop | None
    upgrade_id: str = ""
    is_upgrading: bool = False
    replaced_by: str = ""


@dataclass(frozen=True)
class Choice:
    """What the user has said about the state that the job starts with, if it has ended before."""

    from_savepoint: str = ""
    again: bool = False


@dataclass(frozen=True)
class Plan:
    """What to do, with the reason in words.

    ``changes``: what differs from the declaration that runs. ``job_id``: the job that has the declared name, or "".
    """

    step: Step
    reason: str
    savepoint: str = ""
    changes: tuple[Change, ...] = ()
    job_id: str = ""


def make_plan(wanted: DeclaredJob, known: Known | None, choice: Choice) -> Plan:
    """Return what to do. Raises Conflict and InvalidInput if a person must decide first."""
    if known is None:
        return Plan(Step.START, "no job of this name exists", choice.from_savepoint)
    if known.is_upgrading:
        return _while_upgrading(wanted, known, choice)
    if known.state.is_globally_terminal:
        return _after_end(wanted, known, choice)
    return _while_running(wanted, known, choice)


def upgrade_id(namespace: str, name: str, known: Known) -> str:
    """Return the id under which the job is upgraded.

    All clients that replace the same job use the same id, so one upgrade begins. After an upgrade that has left the job
    as it was, the next one has another id.
    """
    identity = "\n".join((namespace, name, known.job_id, known.upgrade_id))
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


def _while_upgrading(wanted: DeclaredJob, known: Known, choice: Choice) -> Plan:
    shown = f"job {known.job_id[:8]} ({wanted.declaration.name})"
    if choice != Choice():
        raise Conflict(f"{shown} is part of an upgrade that goes on", hint=f"`emberkeep upgrade {known.job_id[:8]}`")
    return Plan(Step.FOLLOW, f"an upgrade of {shown} goes on; wait for its end")


def _while_running(wanted: DeclaredJob, known: Known, choice: Choice) -> Plan:
    shown = f"job {known.job_id[:8]} ({wanted.declaration.name})"
    if known.record is None:
        raise Conflict(
            f"{shown} is {known.state.value} and was not declared by a file",
            hint="stop or cancel it first, or declare another name",
        )
    if known.state in (JobStatus.CANCELLING, JobStatus.FAILING):
        raise Conflict(f"{shown} is {known.state.value}", hint="apply again when it has ended")
    if choice != Choice():
        raise InvalidInput(
            f"--from-savepoint and --again are for jobs that have ended; {shown} is {known.state.value}",
            hint="without them, a changed declaration continues from a savepoint that apply makes",
        )
    changes = tuple(differences(known.record, wanted))
    stop = known.stop
    if stop is not None and stop.phase is not ProcedurePhase.FAILED:
        if stop.procedure is Procedure.DRAIN:
            raise Conflict(f"{shown} is being drained", hint="apply again when it has ended")
        reason = f"{shown} is being stopped with a savepoint, from which the declared job will start"
        return Plan(Step.WAIT_AND_START, reason, changes=changes)
    if not changes:
        return Plan(Step.NOTHING, f"{shown} is {known.state.value} as declared")
    how = "stop it with a savepoint, start from it, and go back if that is not good"
    return Plan(Step.UPGRADE, f"upgrade {shown}: {how}", changes=changes)


def _after_end(wanted: DeclaredJob, known: Known, choice: Choice) -> Plan:
    shown = f"job {known.job_id[:8]} ({wanted.declaration.name})"
    changes = () if known.record is None else tuple(differences(known.record, wanted))
    if choice != Choice():
        how = f"from {choice.from_savepoint}" if choice.from_savepoint else "again, without a savepoint"
        return Plan(Step.START, f"{shown} is {known.state.value}; start {how}", choice.from_savepoint, changes)
    location = "" if known.stop is None else known.stop.location
    decide = "--again starts it without a savepoint; --from-savepoint PATH from one"
    if location:
        decide = f"--from-savepoint {location} continues; --again starts it without a savepoint"
    if known.replaced_by:  # under another name, or it would be the newest of this one
        raise Conflict(f"{shown} was upgraded: job {known.replaced_by[:8]} has taken its place", hint=decide)
    if not known.is_readable:
        raise Conflict(f"{shown} has ended, and this JobManager no longer knows how it was declared", hint=decide)
    if known.record is None:
        if location:
            raise Conflict(f"{shown} was stopped with a savepoint, and was not declared by a file", hint=decide)
        return Plan(Step.START, f"{shown} has ended, and was not declared by a file")
    if known.stop is not None and known.stop.procedure is Procedure.SUSPEND and location:
        return Plan(Step.START, f"{shown} was stopped; start from its savepoint {location}", location, changes)
    if known.state is JobStatus.FINISHED and not changes:
        return Plan(Step.NOTHING, f"{shown} is FINISHED as declared; --again runs it again")
    if known.state is JobStatus.FINISHED and not location:
        return Plan(Step.START, f"{shown} is FINISHED; start the changed job", changes=changes)
    how = ", and was drained" if location else ""
    raise Conflict(f"{shown} is {known.state.value}{how}", hint=decide)
