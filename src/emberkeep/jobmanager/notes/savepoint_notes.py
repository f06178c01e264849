"""What is noted about periodic savepoints: made, failed, impossible, deleted by retention. Pure."""

from __future__ import annotations

from emberkeep.chronicle.occurrence import Occurrence, What
from emberkeep.jobs.checkpoints import SavepointPointer
from emberkeep.lifecycle.requests.events import Ended


def made(job_id: str, savepoint: SavepointPointer) -> Occurrence:
    return _about(savepoint, job_id, What.PERIODIC_SAVEPOINT, "is complete")


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
    return _about(savepoint, job_id, What.SAVEPOINT_RETIRED, "was deleted, because newer ones exist")


def not_deleted(job_id: str, savepoint: SavepointPointer, reason: str) -> Occurrence:
    return _about(savepoint, job_id, What.SAVEPOINT_NOT_RETIRED, f"cannot be deleted: {reason}")


def _about(savepoint: SavepointPointer, job_id: str, what: What, news: str) -> Occurrence:
    return Occurrence(
        what=what,
        message=f"periodic savepoint {savepoint.path} {news}",
        job_id=job_id,
        details={"request": savepoint.trigger_id, "savepoint": savepoint.path},
    )
