"""What the API says about data in the shared storage that no job needs."""

from __future__ import annotations

from emberkeep.jobs.damaged_leftovers import DamagedJob
from emberkeep.jobs.leftovers import Item, Kind, Mark, Periods
from emberkeep.protocol.rest_storage import StorageData


def stored_data(item: Item, mark: Mark | None, periods: Periods) -> StorageData:
    """Return the entry of an item. Without a mark, its deletion is not planned yet."""
    kind, job_id = item
    return StorageData(
        jobid=job_id,
        kind=kind.value,
        known=mark is not None and mark.ended,
        marked=-1 if mark is None else mark.since_ms,
        due=-1 if mark is None else periods.due_ms(mark),
    )


def data_of_damaged(job: DamagedJob, mark: Mark | None, periods: Periods) -> StorageData:
    """Return the entry of a damaged job's remains, which are deleted even if they have no mark yet."""
    return StorageData(
        jobid=job.job_id,
        kind=Kind.DAMAGED.value,
        known=True,
        marked=-1 if mark is None else mark.since_ms,
        due=job.since_ms + periods.damaged_ms if mark is None else periods.due_ms(mark),
    )
