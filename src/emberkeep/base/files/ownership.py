"""Ownership of the places that contain data: a storage directory, a ZooKeeper root, local state, a working directory.

A place carries an ownership record. The first start on an empty place writes it. Only the cluster that the record names
may delete anything there. A process that finds another owner's record, or data without a record, deletes nothing.

Encoding the record (``encode_owner``, ``decode_owner``) is separate from files, so that a ZooKeeper node can hold it
too.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Absent, Conflict, Damaged, EmberkeepError, NewerFormat, Unavailable
from emberkeep.base.files.durable import create_file, decode_record, write_file
from emberkeep.base.files.errors import read_if_there
from emberkeep.base.files.kept_fields import encode_over
from emberkeep.base.files.operations import SYSTEM_FILES, FileOps

OWNER_FILE = ".emberkeep-owner"
_RECORD_KIND, _RECORD_VERSION = "ownership", 1

# Entries that file systems themselves create in an empty directory.
_NO_DATA = frozenset({"lost+found", ".snapshot"})


class OwnedPlaceKind(enum.Enum):
    STORAGE = "storage"
    ZOOKEEPER = "zookeeper"
    LOCAL_STATE = "local-state"
    WORKING_DIRECTORY = "working-directory"
    BLOBS = "blobs"  # a BLOB store outside the storage directory


class Owner(Compatible, frozen=True, kw_only=True):
    """The ownership record of one place. Persisted (kind "ownership", version 1)."""

    cluster_id: str
    kind: OwnedPlaceKind
    created_at_ms: int
    holder: str = ""  # the process of the cluster that holds the place, if that matters: a task manager's id
    place_id: str = ""  # random, drawn at the claim: distinguishes the place from another one with the same path
    belongs_to: str = ""  # place_id of another place of this cluster, without which this place is incomplete
    parts: tuple[str, ...] = ()  # directories that also carry this record, because they may be separate mounts
    replaced: tuple[str, ...] = ()  # place_ids of job stores that a restore from a backup has replaced

    def is_same_owner(self, other: Owner) -> bool:
        return (self.cluster_id, self.kind, self.holder) == (other.cluster_id, other.kind, other.holder)

    def describe(self) -> str:
        return f"{self.kind.value} of cluster {self.cluster_id!r}" + (f", {self.holder!r}" if self.holder else "")


def encode_owner(owner: Owner, over: bytes | None = None) -> bytes:
    """Return the encoded record, with the fields that a newer release added to the record ``over`` that it replaces.

    Raises NewerFormat.
    """
    return encode_over(_RECORD_KIND, _RECORD_VERSION, owner, over)


def decode_owner(data: bytes, *, where: str) -> Owner:
    """Return the decoded record. Raises Damaged or NewerFormat naming ``where``."""
    try:
        return from_json(decode_record(data, _RECORD_KIND, _RECORD_VERSION, where=where), Owner)
    except msgspec.DecodeError as error:
        raise Damaged(f"{where}: {error}") from None


class OwnedByAnother(Conflict):
    """The place belongs to another cluster, or to another process of this cluster. ``owner``: its ownership record."""

    def __init__(self, where: str, owner: Owner, mine: Owner) -> None:
        super().__init__(
            f"{where} is {owner.describe()}, not {mine.describe()}",
            hint=f"give each a place of its own; if {owner.describe()} no longer exists, remove {OWNER_FILE} there",
        )
        self.owner = owner


class HasNoOwner(Conflict):
    """The place has data but no ownership record, so no process may delete that data."""

    def __init__(self, where: str, found: Collection[str]) -> None:
        names = ", ".join(sorted(found)[:3]) + (", …" if len(found) > 3 else "")
        super().__init__(
            f"{where} has data ({names}) but no ownership record",
            hint="choose an empty place, or confirm that the data belongs here",
        )


class Unclaimed(Conflict):
    """The place has data that may belong to another job store: nothing there may be deleted."""


class PlaceStanding(enum.Enum):
    """The relation of one cluster to one place."""

    EMPTY = "EMPTY"
    OWNED = "OWNED"
    ANOTHERS = "ANOTHERS"
    UNRECORDED = "UNRECORDED"  # data without a record
    UNAVAILABLE = "UNAVAILABLE"  # the record cannot be read, is damaged, or was written by a newer release


@dataclass(frozen=True)
class Finding:
    """The result of ``check``.

    ``owner``: the record, if there is a readable one. ``problem``: why this cluster may not delete anything there; None
    only if it may.
    """

    standing: PlaceStanding
    owner: Owner | None = None
    problem: EmberkeepError | None = None


def claim(place: Path, mine: Owner, *, ignoring: Collection[str] = (), files: FileOps = SYSTEM_FILES) -> Owner:
    """Return the ownership record of an existing directory; if the directory is empty, write ``mine`` as its record.

    Of several processes that claim an empty place at once, one gets it. ``ignoring``: names that do not count as data.
    Raises OwnedByAnother (than the owner in ``mine``), HasNoOwner, Unavailable, Damaged, NewerFormat, Fatal (no space).
    """
    finding = check(place, mine, ignoring=ignoring)
    if finding.standing is PlaceStanding.EMPTY:
        return adopt(place, mine, files=files)
    return _owned(finding)


def adopt(place: Path, mine: Owner, *, files: FileOps = SYSTEM_FILES) -> Owner:
    """Write ``mine`` as the record of a directory that has none, whatever data it holds, and return the record.

    For an operator's decision, and for data that certainly belongs to this cluster. If another process writes its
    record first, act as ``claim`` does then. Raises what ``claim`` raises, except HasNoOwner.
    """
    try:
        create_file(place / OWNER_FILE, encode_owner(mine), mode=0o644, files=files)
    except Conflict:
        return _owned(check(place, mine))
    return mine


def rewrite(place: Path, owner: Owner) -> None:
    """Write ``owner`` as the record of a place, replacing an existing one, damaged or not.

    Raises Unavailable, Fatal, NewerFormat.
    """
    write_file(place / OWNER_FILE, encode_owner(owner, read_if_there(place / OWNER_FILE)), mode=0o644)


def check(place: Path, mine: Owner, *, ignoring: Collection[str] = ()) -> Finding:
    """Return the relation of the owner in ``mine`` to a directory. Blocks; raises nothing."""
    where = place / OWNER_FILE
    try:
        owner = read_owner(place)
        names = () if owner is not None else _names(place, ignoring)
    except (Unavailable, Damaged, NewerFormat) as error:
        return Finding(PlaceStanding.UNAVAILABLE, problem=error)
    if owner is None:
        if not names:
            return Finding(PlaceStanding.EMPTY, problem=Absent(f"{where} does not exist"))
        return Finding(PlaceStanding.UNRECORDED, problem=HasNoOwner(str(place), names))
    if not owner.is_same_owner(mine):
        return Finding(PlaceStanding.ANOTHERS, owner, OwnedByAnother(str(place), owner, mine))
    return Finding(PlaceStanding.OWNED, owner)


def read_owner(place: Path) -> Owner | None:
    """Return the ownership record of a directory, or None if it has none. Raises Unavailable, Damaged, NewerFormat."""
    data = read_if_there(place / OWNER_FILE)
    return None if data is None else decode_owner(data, where=str(place / OWNER_FILE))


def is_owner_file(name: str) -> bool:
    """True if the file is an ownership record, or the leftover of a crash while one was written."""
    return name == OWNER_FILE or name.startswith(f".{OWNER_FILE}.")


def _names(place: Path, ignoring: Collection[str]) -> tuple[str, ...]:
    """Return the names of the data at a place. Raises Unavailable."""
    try:
        found = sorted(path.name for path in place.iterdir())
    except OSError as error:
        raise Unavailable(
            f"{place} cannot be listed now: {error.strerror or error}",
            hint="check that its file system is mounted and that this user may read it",
        ) from error
    return tuple(name for name in found if name not in _NO_DATA and name not in ignoring and not is_owner_file(name))


def _owned(finding: Finding) -> Owner:
    if finding.problem is not None or finding.owner is None:
        raise finding.problem or AssertionError("an owned place has a record")
    return finding.owner
