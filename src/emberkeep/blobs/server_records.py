"""What the BLOB server knows of one BLOB and of one owner: plain state, changed by the server's machine alone."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from emberkeep.base.ids import JobId
from emberkeep.blobs.groups import Group
from emberkeep.blobs.model import BlobKey


class Deletion(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be deleted in both stores. ``whole``: the owner's directory with everything in it (BLOB-11)."""

    owner: JobId
    keys: tuple[BlobKey, ...]
    whole: bool


class Condition(enum.Enum):
    """Whether a record's bytes may still be used."""

    KEPT = "kept"
    DELETING = "deleting"  # a deletion is under way
    CONDEMNED = "condemned"  # it failed, or had to wait for a reader: it is tried again at the next turn


@dataclass(eq=False)
class Record:
    """One BLOB. ``holders``: who references it; there may be some although no store has it (it was damaged in both)."""

    permanent: bool
    size: int = 0  # bytes
    in_local: bool = False
    in_ha: bool = False
    holders: set[str] = field(default_factory=set)
    stored: int = 0  # how often an upload has stored it
    uploads: int = 0  # under way
    readers: int = 0  # copies between the stores that are under way
    leftovers: bool = False  # a store may hold something of it that is no sound copy
    condition: Condition = Condition.KEPT

    @property
    def is_stored(self) -> bool:
        """Whether a store may hold it."""
        return self.in_local or self.in_ha

    @property
    def is_there(self) -> bool:
        """Whether somebody may rely on it: a permanent BLOB that is in the local store alone was never acknowledged."""
        return self.condition is Condition.KEPT and (self.in_ha if self.permanent else self.in_local)

    @property
    def is_busy(self) -> bool:
        return self.uploads > 0 or self.readers > 0


@dataclass(eq=False)
class Owner:
    """One job's BLOBs and why they are kept beyond their references."""

    records: dict[BlobKey, Record] = field(default_factory=dict)
    group: Group | None = None
    claims: int = 0  # submissions under way
    recovering: bool = False  # it is to be resubmitted: permanent BLOBs wait for that uncounted (BLOB-17)
    over: bool = False  # the job has ended for good: everything goes
    sweeping: bool = False  # the deletion of the whole directory is under way
    bare: bool = False  # there is a directory without BLOBs
    strange: bool = False  # found in the HA store, of no known job: perhaps another cluster's, and not to be deleted

    @property
    def is_busy(self) -> bool:
        return any(record.is_busy for record in self.records.values())

    @property
    def is_deleting(self) -> bool:
        return self.sweeping or any(record.condition is Condition.DELETING for record in self.records.values())

    @property
    def _waits(self) -> bool:
        return self.group is not None or self.claims > 0 or self.recovering

    @property
    def is_empty(self) -> bool:
        """Nothing has to be remembered of it."""
        return not (self.records or self._waits or self.over or self.sweeping or self.bare)

    @property
    def is_wanted(self) -> bool:
        """Whether somebody has named it since this server started, or its job is to be recovered."""
        return self._waits or any(record.holders or record.is_busy for record in self.records.values())

    def waits_for(self, key: BlobKey) -> bool:
        """Whether a BLOB without references is kept: for its group, or for its job that will be resubmitted."""
        return (self.group is not None and key in self.group.members) or (self.recovering and key.is_permanent)

    def may_go_whole(self, keys: Iterable[BlobKey]) -> bool:
        """Whether nothing would be left but ``keys``."""
        return not self._waits and not self.sweeping and self.records.keys() <= set(keys)


@dataclass(eq=False)
class Upload:
    """One upload under way. ``holders`` are counted when it is stored. ``attempt``: of the job, that it acts for."""

    owner: JobId
    key: BlobKey
    holders: frozenset[str]
    attempt: int
