"""Notices that a job gives slots back, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from emberkeep.chronicle.occurrence import Occurrence, What
from emberkeep.protocol.messages.job_master_reports import JobMasterStatus
from emberkeep.slots.model import Reclaim


class ReclaimNotes:
    """What was noted of one job. ``recovered``: the attempt that an earlier leader has begun; 0 if there is none."""

    def __init__(self, job_id: str, recovered: int) -> None:
        self._note = partial(Occurrence, job_id=job_id)
        self._recovered = recovered
        self._attempt = 0
        self._follows: Reclaim | None = None

    def reported(self, attempt: int, report: JobMasterStatus) -> Iterator[Occurrence]:
        """Yield an entry if the job has to give back slots, or more of them than before."""
        is_first = attempt != self._attempt
        before = None if is_first else self._follows
        self._attempt, self._follows = attempt, report.reclaim
        if report.reclaim is None or (is_first and attempt == self._recovered):
            return  # an earlier leader has noted what this attempt gave back
        ceiling = report.reclaim.ceiling
        if before is None or ceiling < before.ceiling or report.reclaim.whole > before.whole:
            yield self._note(
                what=What.SLOTS_RECLAIMED,
                message=f"the job {_what_it_gives(report.reclaim)}: {report.reclaim.reason}",
                attempt=attempt,
                details={"ceiling": str(ceiling), "reason": report.reclaim.reason},
            )


def _what_it_gives(reclaim: Reclaim) -> str:
    if reclaim.whole:
        return "is put back to waiting, and gives all its slots back"
    executors = "1 executor" if reclaim.ceiling == 1 else f"{reclaim.ceiling} executors"
    return f"gives slots back and keeps {executors}"
