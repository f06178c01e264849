"""What is noted about the requests to a job: savepoints, stops and moves. Pure."""

from __future__ import annotations

from typing import Final

from emberkeep.chronicle.occurrence import Occurrence, What
from emberkeep.jobs.model import DriverHome
from emberkeep.lifecycle.model import Procedure, ProcedureRequest
from emberkeep.lifecycle.requests.events import Ended

_NAMES: Final = {
    Procedure.SAVEPOINT: "a savepoint",
    Procedure.SUSPEND: "a stop with a savepoint",
    Procedure.DRAIN: "a drain with a savepoint",
    Procedure.MOVE: "a move to another node",
}


def request_recorded(job_id: str, request: ProcedureRequest, by: str, home: DriverHome | None) -> Occurrence:
    """``by``: the identity that asks; "" if the JobManager itself does. ``home``: where the driver runs, if it does.

    A move names that place, at whose events users find why it has to be left, and who said so.
    """
    name, left = _NAMES[request.procedure], home if request.procedure is Procedure.MOVE else None
    return Occurrence(
        what=What.REQUESTED,
        message=f"{by or 'the JobManager'} asked for {name}" + (f" than {left.node_id}" if left is not None else ""),
        by=by,
        job_id=job_id,
        task_manager="" if left is None else left.task_manager,
        node="" if left is None else left.node_id,
        details={"request": request.trigger_id, "procedure": request.procedure.value},
    )


def request_ended(job_id: str, ended: Ended) -> Occurrence:
    details = {"request": ended.trigger_id}
    name = "the request" if ended.request is None else _NAMES[ended.request.procedure]
    if ended.failure:
        return Occurrence(
            what=What.REQUEST_FAILED, message=f"{name} failed: {ended.failure}", job_id=job_id, details=details
        )
    if ended.savepoint:
        return Occurrence(
            what=What.SAVEPOINT,
            message=f"savepoint {ended.savepoint} is complete",
            job_id=job_id,
            details={**details, "savepoint": ended.savepoint},
        )
    return Occurrence(what=What.REQUEST_ENDED, message=f"{name} is done", job_id=job_id, details=details)
