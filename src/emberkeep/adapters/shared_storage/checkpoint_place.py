"""The directory below which all jobs keep their default checkpoints.

The leader makes it at the first start of a cluster, with a copy of the storage's ownership record. Nobody else makes
it: a node where it is missing, or is empty, does not have its file system.
"""

from __future__ import annotations

from pathlib import Path

from emberkeep.base.errors import Damaged, NewerFormat, Unavailable
from emberkeep.base.files.durable import sync_directory
from emberkeep.base.files.errors import is_directory
from emberkeep.base.files.ownership import OWNER_FILE, OwnedByAnother, Owner, read_owner, rewrite

CHECKPOINTS = "checkpoints"  # among the parts of a storage's ownership record


def make_checkpoint_place(place: Path) -> None:
    """Raises OSError."""
    missing = [place]
    while not missing[-1].parent.is_dir():
        missing.append(missing[-1].parent)
    for directory in reversed(missing):
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)


def record_checkpoint_place(place: Path, owner: Owner) -> None:
    """Make the place, and give it the record of its storage. Raises OwnedByAnother, Unavailable, Fatal, OSError."""
    make_checkpoint_place(place)
    found = read_owner(place)
    if found is not None and not found.is_same_owner(owner):
        raise OwnedByAnother(str(place), found, owner)
    rewrite(place, owner)


def require_checkpoint_place(place: Path, node: str, *, is_recorded: bool) -> None:
    """Raises Unavailable, naming ``node``, where its file system is not there. ``is_recorded``: it carries a record."""
    hint = "check that the shared storage is mounted; if it was emptied on purpose, `emberkeep storage adopt`"
    if not is_directory(place):
        raise Unavailable(f"{place} is not there on {node}, but the jobs' checkpoints are kept in it", hint=hint)
    try:
        if is_recorded and read_owner(place) is None:
            raise Unavailable(f"{place} has no {OWNER_FILE} on {node}, but it has one elsewhere", hint=hint)
    except (Damaged, NewerFormat):
        return  # it can be read
