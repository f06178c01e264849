"""The file of marks beside a storage's ownership record: what is to be deleted, and since when."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import structlog

from emberkeep.base.durable import decode_record, encode_record, write_file
from emberkeep.base.errors import Absent, Fatal, NewerFormat
from emberkeep.base.file_errors import cannot_read
from emberkeep.jobs.leftovers import Mark

MARKS_FILE = ".emberkeep-deletions"
_MARKS_KIND, _MARKS_VERSION = "storage-deletions", 1

log = structlog.get_logger(__name__)


class _Marks(msgspec.Struct, frozen=True, kw_only=True):
    """Persisted (kind "storage-deletions", version 1); unknown fields are ignored."""

    marks: tuple[Mark, ...] = ()


def read_marks(path: Path) -> tuple[Mark, ...]:
    """Raises Unavailable, NewerFormat. Marks that are damaged count as none: their periods begin anew."""
    try:
        data = path.read_bytes()
    except OSError as error:
        problem = cannot_read(path, error)
        if isinstance(problem, Absent):
            return ()
        raise problem from error
    try:
        payload = decode_record(data, _MARKS_KIND, _MARKS_VERSION, where=str(path))
        return msgspec.json.decode(payload, type=_Marks).marks
    except NewerFormat:
        raise
    except (Fatal, msgspec.DecodeError) as error:
        log.warning("marks of data to be deleted are made anew", reason=str(error))
        return ()


def write_marks(path: Path, marks: Iterable[Mark]) -> None:
    """Replace all. Raises Fatal."""
    data = msgspec.json.encode(_Marks(marks=tuple(marks)))
    write_file(path, encode_record(_MARKS_KIND, _MARKS_VERSION, data))
