"""The file of marks, next to a storage's ownership record: which data will be deleted, and when it was marked."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import structlog

from emberkeep.base.compatible import Compatible
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Fatal, NewerFormat
from emberkeep.base.files.durable import decode_record, write_file
from emberkeep.base.files.errors import read_if_there
from emberkeep.base.files.kept_fields import encode_over
from emberkeep.jobs.leftovers import Mark

MARKS_FILE = ".emberkeep-deletions"
_MARKS_KIND, _MARKS_VERSION = "storage-deletions", 1

log = structlog.get_logger(__name__)


class _Marks(Compatible, frozen=True, kw_only=True):
    """Persisted (kind "storage-deletions", version 1)."""

    marks: tuple[Mark, ...] = ()


def read_marks(path: Path) -> tuple[Mark, ...]:
    """Return the marks in a file. Raises Unavailable, NewerFormat.

    Damaged marks are treated as missing: their periods begin again.
    """
    data = read_if_there(path)
    if data is None:
        return ()
    try:
        payload = decode_record(data, _MARKS_KIND, _MARKS_VERSION, where=str(path))
        return from_json(payload, _Marks).marks
    except NewerFormat:
        raise
    except (Fatal, msgspec.DecodeError) as error:
        log.warning("cannot read the marks of data to delete, starting again without marks", reason=str(error))
        return ()


def write_marks(path: Path, marks: Iterable[Mark]) -> None:
    """Replace all marks in a file. Raises Unavailable, NewerFormat, Fatal."""
    write_file(path, encode_over(_MARKS_KIND, _MARKS_VERSION, _Marks(marks=tuple(marks)), read_if_there(path)))
