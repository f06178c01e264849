"""The record of Slurm jobs with which the resource driver is done: they were ended, or replaced by a newer job.

Slurm lists a job for some minutes after its end. Without the record, a new leader could not tell one that its
predecessor has ended from one that has failed in between, and would submit the former again.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import structlog

from emberkeep.base.compatible import Compatible
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Damaged, EmberkeepError
from emberkeep.base.files.durable import decode_record, encode_record, write_file
from emberkeep.base.files.errors import read_if_there

log = structlog.get_logger(__name__)

_KIND, _VERSION = "ended-slurm-jobs", 1


class EndedJobs(Compatible, frozen=True, kw_only=True):
    """Persisted (kind "ended-slurm-jobs", version 1). Job ids of Slurm, in ascending order."""

    jobs: tuple[int, ...] = ()


def read_ended(path: Path) -> frozenset[int]:
    """Return the ids; none if there is no record. Blocks. Raises Unavailable, NewerFormat.

    A damaged record counts as none: a submission too many costs less than task managers that never come.
    """
    data = read_if_there(path)
    if data is None:
        return frozenset()
    try:
        return frozenset(from_json(decode_record(data, _KIND, _VERSION, where=str(path)), EndedJobs).jobs)
    except (Damaged, msgspec.DecodeError) as error:
        log.warning("the record of ended Slurm jobs is damaged; going on without it", path=str(path), reason=str(error))
        return frozenset()


def write_ended(path: Path, jobs: Iterable[int]) -> None:
    """Replace the record. Blocks. A failure is logged: see ``read_ended`` for what a missing record costs."""
    record = EndedJobs(jobs=tuple(sorted(jobs)))
    try:
        write_file(path, encode_record(_KIND, _VERSION, msgspec.json.encode(record)))
    except EmberkeepError as error:
        log.warning("cannot record which Slurm jobs have ended", path=str(path), reason=str(error))
