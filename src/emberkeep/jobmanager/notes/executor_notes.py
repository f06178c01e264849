"""Says which executors of an attempt have registered or ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from emberkeep.chronicle.occurrence import Occurrence, What
from emberkeep.protocol.messages.job_master_reports import JobMasterStatus


def registered(report: JobMasterStatus) -> dict[str, str]:
    """Return the executors that Spark knows, and where they run."""
    return {each.executor_id: each.task_manager for each in report.executors if each.registered}


def executors_changed(
    job_id: str, what: What, places: Mapping[str, str], *, attempt: int, present: int, wanted: int
) -> Occurrence:
    """Return the entry about executors, each with its place. ``present``: those that are there now."""
    names = sorted(places, key=lambda name: (len(name), name))
    verb = "registered" if what is What.EXECUTORS_REGISTERED else "ended"
    plural = "executor" if len(names) == 1 else "executors"
    where = ", ".join(sorted(set(places.values())))
    return Occurrence(
        job_id=job_id,
        what=what,
        message=f"{plural} {', '.join(names)} {verb} on {where}: {present} of {wanted}",
        attempt=attempt,
        task_manager=where if len(set(places.values())) == 1 else "",
        details={"executors": " ".join(names), "present": str(present), "wanted": str(wanted)},
    )
