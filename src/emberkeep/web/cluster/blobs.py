"""The page of BLOBs: how many there are in which state, store and job, and when those that nobody needs go. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import JobId, parse_job_id
from emberkeep.blobs.model import NO_JOB
from emberkeep.jobmanager.views.blobs import BlobStatistics, BlobView
from emberkeep.web.formats import moment
from emberkeep.web.paging import page_address, page_count

PER_PAGE: Final = 100
MOST_JOBS: Final = 25  # in the table of jobs
MOST_HOLDERS: Final = 3  # of one BLOB

STATES: Final[Mapping[str, str]] = {
    "referenced": "it is kept because something holds it: a job its files, a receiver its message, a task on a node "
    "the files that it uses",
    "uploading": "it, or another file that was announced with it, is being uploaded; if the client goes away, it is "
    "cleaned up",
    "unreferenced": "nothing holds it yet: it is kept until its job is recovered or submitted, or has been unknown "
    "for a long time",
    "staged": "nothing holds it any more: it is deleted unless something needs it again in time",
    "deleting": "it is being deleted, or the next clean-up deletes it",
}


@dataclass(frozen=True)
class BlobFilter:
    """Which BLOBs are listed: "" and None select all. All of it is in the page's address."""

    state: str = ""
    job: JobId | None = None

    def with_state(self, state: str) -> BlobFilter:
        return replace(self, state=state)

    def with_job(self, job: JobId | None) -> BlobFilter:
        return replace(self, job=job)

    def path(self, page: int = 1) -> str:
        """Return the address of a page of the list."""
        return page_address("/blobs", page, job=self.job or "", state=self.state)


def parse_filter(query: Mapping[str, str]) -> BlobFilter:
    """Return the filter in an address. Raises InvalidInput."""
    state, job = query.get("state", ""), query.get("job", "").strip()
    if state and state not in STATES:
        raise InvalidInput(
            f"{state[:40]!r} is not the state of a BLOB", field="state", hint=f"one of {', '.join(STATES)}"
        )
    return BlobFilter(state, parse_job_id(job) if job else None)


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """A number of BLOBs, and their size in bytes."""

    count: int
    bytes: int


class StateLine(msgspec.Struct, frozen=True, kw_only=True):
    """The BLOBs of one state. ``due``: when they go, in words, or ""."""

    state: str
    amount: Amount
    meaning: str
    due: str


class JobLine(msgspec.Struct, frozen=True, kw_only=True):
    """The BLOBs of one owner. ``name``: the job's; "" if this cluster knows no such job. ``shared``: of no job."""

    job_id: JobId
    name: str
    shared: bool
    amount: Amount


class BlobLine(msgspec.Struct, frozen=True, kw_only=True):
    """One BLOB. ``holders``: the first of those that reference it; ``more_holders``: how many others do."""

    owner: JobLine
    key: str
    permanent: bool
    size: int
    stores: tuple[str, ...]
    state: str
    holders: tuple[str, ...]
    more_holders: int


class BlobOverview(msgspec.Struct, frozen=True, kw_only=True):
    """``lines``: one page of the list, the largest BLOB first. ``nowhere``: those that are held, but in no store."""

    total: Amount
    local: Amount
    ha: Amount
    nowhere: int
    states: tuple[StateLine, ...]
    jobs: tuple[JobLine, ...]
    jobs_hidden: int
    lines: tuple[BlobLine, ...]
    listed: int
    number: int
    pages: int


def blob_overview(
    blobs: Iterable[BlobView],
    names: Mapping[JobId, str],
    chosen: BlobFilter,
    number: int,
    dues: Mapping[str, str],
) -> BlobOverview:
    """Return what the page shows of ``blobs``.

    ``names``: of the known jobs. ``number``: of the page; one that is too large is the last one. ``dues``: when BLOBs
    of a state go, see ``due_texts``.
    """
    seen = [blob for blob in blobs if chosen.job in (None, blob.owner)]
    by_state = {state: [blob for blob in seen if blob.state == state] for state in STATES}
    listed = by_state[chosen.state] if chosen.state else seen
    listed = sorted(listed, key=lambda blob: (-blob.size, blob.owner, blob.key))
    pages = page_count(len(listed), PER_PAGE)
    number = min(number, pages)
    owners = _owners(listed, names)
    largest = sorted(owners.values(), key=lambda line: (-line.amount.bytes, -line.amount.count, line.job_id))
    return BlobOverview(
        total=_amount(seen),
        local=_amount([blob for blob in seen if blob.in_local_store]),
        ha=_amount([blob for blob in seen if blob.in_ha_store]),
        nowhere=sum(not (blob.in_local_store or blob.in_ha_store) for blob in by_state["referenced"]),
        states=tuple(
            StateLine(state=state, amount=_amount(of_state), meaning=STATES[state], due=dues.get(state, ""))
            for state, of_state in by_state.items()
        ),
        jobs=tuple(largest[:MOST_JOBS]),
        jobs_hidden=max(0, len(largest) - MOST_JOBS),
        lines=tuple(_line(blob, owners) for blob in listed[(number - 1) * PER_PAGE : number * PER_PAGE]),
        listed=len(listed),
        number=number,
        pages=pages,
    )


def due_texts(statistics: BlobStatistics, now_ms: int) -> dict[str, str]:
    """Return when the clean-up deletes BLOBs, by their state."""
    if statistics.cleanup_in is None:
        return {"staged": "by the clean-up after the next one", "deleting": "by the next clean-up at the latest"}
    following = now_ms + round(statistics.cleanup_in * 1000)
    after = following + round(statistics.cleanup_interval * 1000)
    return {
        "staged": f"by the clean-up at {moment(after)}",
        "deleting": f"by the clean-up at {moment(following)} at the latest",
    }


def _owners(blobs: Iterable[BlobView], names: Mapping[JobId, str]) -> dict[JobId, JobLine]:
    by_owner: dict[JobId, list[BlobView]] = {}
    for blob in blobs:
        by_owner.setdefault(blob.owner, []).append(blob)
    return {
        owner: JobLine(job_id=owner, name=names.get(owner, ""), shared=owner == NO_JOB, amount=_amount(theirs))
        for owner, theirs in by_owner.items()
    }


def _amount(blobs: Sequence[BlobView]) -> Amount:
    return Amount(count=len(blobs), bytes=sum(blob.size for blob in blobs))


def _line(blob: BlobView, owners: Mapping[JobId, JobLine]) -> BlobLine:
    stores = (("local", blob.in_local_store), ("HA", blob.in_ha_store))
    return BlobLine(
        owner=owners[blob.owner],
        key=str(blob.key),
        permanent=blob.key.is_permanent,
        size=blob.size,
        stores=tuple(name for name, has_it in stores if has_it),
        state=blob.state,
        holders=blob.references[:MOST_HOLDERS],
        more_holders=max(0, len(blob.references) - MOST_HOLDERS),
    )
