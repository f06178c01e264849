"""What is noted about periodic savepoints: made, failed, impossible, deleted by retention. Pure."""

from __future__ import annotations

from emberkeep.chronicle.occurrence import Occurrence, What
from emberkeep.jobs.checkpoints import SavepointPointer
from emberkeep.lifecycle.requests.events import Ended


def made(job_id: str, savepoint: SavepointPointer) -> Occurrence:
    return Occurrence(
        what=What.PERIODIC_SAVEPOINT,
        message=f"periodic savepoint {savepoint.path} is complete",
        job_id=job_id,
        details={"request": savepoint.trigger_id, "savepoint": savepoint.path},
    )


def failed(job_id: str, ended: Ended) -> Occurrence:
    return Occurrence(
        what=What.PERIODIC_SAVEPOINT_FAILED,
        message=f"a periodic savepoint failed: {ended.failure}",
        job_id=job_id,
        details={"request": ended.trigger_id},
    )


def impossible(job_id: str, reason: str) -> Occurrence:
    return Occurrence(
        what=What.NO_PERIODIC_SAVEPOINTS,
        message=f"the job gets no periodic savepoints: {reason}",
        job_id=job_id,
    )


def retired(job_id: str, savepoint: SavepointPointer) -> Occurrence:
    return Occurrence(
        what=What.SAVEPOINT_RETIRED,
        message=f"periodic savepoint {savepoint.path} was deleted, because newer ones exist",
        job_id=job_id,
        details={"request": savepoint.trigger_id, "savepoint": savepoint.path},
    )


def not_deleted(job_id: str, savepoint: SavepointPointer, reason: str) -> Occurrence:
    return Occurrence(
        what=What.SAVEPOINT_NOT_RETIRED,
        message=f"periodic savepoint {savepoint.path} cannot be deleted: {reason}",
        job_id=job_id,
        details={"request": savepoint.trigger_id, "savepoint": savepoint.path},
    )
