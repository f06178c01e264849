"""The directory below which all jobs keep their default checkpoints.

Only the leader creates it, at a cluster's first start, with a copy of the storage's ownership record. So if the
directory is missing or empty on a node, its file system is not mounted there.
"""

from __future__ import annotations

from pathlib import Path

from emberkeep.base.errors import Damaged, NewerFormat, Unavailable
from emberkeep.base.files.durable import sync_directory
from emberkeep.base.files.errors import is_directory
from emberkeep.base.files.ownership import OWNER_FILE, OwnedByAnother, Owner, read_owner, rewrite
from emberkeep.base.files.private import NOT_FOR_ALL

CHECKPOINTS = "checkpoints"  # among the parts of a storage's ownership record


def make_checkpoint_place(place: Path) -> None:
    """Create the directory and its parents, durably. Raises OSError."""
    missing = [place]
    while not missing[-1].parent.is_dir():
        missing.append(missing[-1].parent)
    for directory in reversed(missing):
        directory.mkdir(mode=NOT_FOR_ALL, exist_ok=True)
        sync_directory(directory.parent)


def record_checkpoint_place(place: Path, owner: Owner) -> None:
    """Create the directory, and write its storage's ownership record into it.

    Raises OwnedByAnother, Unavailable, Fatal, OSError.
    """
    make_checkpoint_place(place)
    found = read_owner(place)
    if found is not None and not found.is_same_owner(owner):
        raise OwnedByAnother(str(place), found, owner)
    rewrite(place, owner)


def require_checkpoint_place(place: Path, node: str, *, is_recorded: bool) -> None:
    """Raise Unavailable, naming ``node``, if the directory's file system is missing there.

    ``is_recorded``: the directory is known to carry a record.
    """
    hint = "check that the shared storage is mounted; if it was emptied on purpose, run `emberkeep storage adopt`"
    if not is_directory(place):
        raise Unavailable(f"{place} does not exist on {node}, but the jobs' checkpoints are in it", hint=hint)
    try:
        if is_recorded and read_owner(place) is None:
            raise Unavailable(f"{place} has no {OWNER_FILE} on {node}, but it has one elsewhere", hint=hint)
    except (Damaged, NewerFormat):
        return  # the file system can be read
