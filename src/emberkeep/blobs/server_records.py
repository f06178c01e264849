"""The BLOB server's records of one BLOB and of one owner: plain state that only the server's state machine changes."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import msgspec

from emberkeep.base.ids import JobId
from emberkeep.blobs.groups import Group
from emberkeep.blobs.model import BlobKey


class Deletion(msgspec.Struct, frozen=True, kw_only=True):
    """Files to delete in both stores. ``whole``: the owner's directory with everything in it (BLOB-11)."""

    owner: JobId
    keys: tuple[BlobKey, ...]
    whole: bool


class Condition(enum.Enum):
    """Whether a BLOB's bytes may be used."""

    KEPT = "kept"
    DELETING = "deleting"  # a deletion is in progress
    CONDEMNED = "condemned"  # the deletion failed or had to wait for a reader; the next turn tries again


@dataclass(eq=False)
class Record:
    """One BLOB. ``holders``: its references, which remain even if no store has the BLOB (damaged in both)."""

    permanent: bool
    size: int = 0  # bytes
    in_local: bool = False
    in_ha: bool = False
    holders: set[str] = field(default_factory=set)
    stored: int = 0  # number of uploads that have stored it
    uploads: int = 0  # uploads in progress
    readers: int = 0  # reads, and copies between the stores, in progress
    leftovers: bool = False  # a store may hold bytes that are not a sound copy
    condition: Condition = Condition.KEPT

    @property
    def is_stored(self) -> bool:
        """True if a store may hold the BLOB."""
        return self.in_local or self.in_ha

    @property
    def is_there(self) -> bool:
        """True if the BLOB can be relied on.

        A permanent BLOB that only the local store has does not count: its upload was never acknowledged.
        """
        return self.condition is Condition.KEPT and (self.in_ha if self.permanent else self.in_local)

    @property
    def is_busy(self) -> bool:
        return self.uploads > 0 or self.readers > 0


class OwnerState(enum.Enum):
    """What is known about the job that owns BLOBs."""

    KNOWN = "known"  # this cluster's
    RECOVERING = "recovering"  # it will be resubmitted: until then its permanent BLOBs need no reference (BLOB-17)
    UNKNOWN = "unknown"  # in the HA store, but of no known job: possibly another cluster's, so nothing is deleted
    OVER = "over"  # the job has ended permanently: everything is deleted


@dataclass(eq=False)
class OwnerRecord:
    """One job's BLOBs, and why they are kept even without references."""

    records: dict[BlobKey, Record] = field(default_factory=dict)
    group: Group | None = None
    claims: int = 0  # submissions in progress
    state: OwnerState = OwnerState.KNOWN
    sweeping: bool = False  # the whole directory is being deleted
    bare: bool = False  # a directory without BLOBs was found

    @property
    def announced(self) -> AbstractSet[BlobKey]:
        """Members of the group that nothing else is known of yet."""
        return frozenset() if self.group is None else self.group.missing - self.records.keys()

    @property
    def is_over(self) -> bool:
        return self.state is OwnerState.OVER

    @property
    def is_unknown(self) -> bool:
        return self.state is OwnerState.UNKNOWN

    @property
    def is_recovering(self) -> bool:
        return self.state is OwnerState.RECOVERING

    @property
    def is_busy(self) -> bool:
        return any(record.is_busy for record in self.records.values())

    @property
    def is_deleting(self) -> bool:
        return self.sweeping or any(record.condition is Condition.DELETING for record in self.records.values())

    @property
    def _waits(self) -> bool:
        return self.group is not None or self.claims > 0 or self.is_recovering

    @property
    def is_empty(self) -> bool:
        """True if nothing about the owner has to be remembered."""
        return not (self.records or self._waits or self.is_over or self.sweeping or self.bare)

    @property
    def is_wanted(self) -> bool:
        """True if the owner was named since this server started, or its job will be recovered."""
        return self._waits or any(record.holders or record.is_busy for record in self.records.values())

    def waits_for(self, key: BlobKey) -> bool:
        """True if the BLOB is kept even without references: for its group, or for its job that will be resubmitted."""
        return (self.group is not None and key in self.group.members) or (self.is_recovering and key.is_permanent)

    def may_go_whole(self, keys: Iterable[BlobKey]) -> bool:
        """True if nothing would be left without ``keys``."""
        return not self._waits and not self.sweeping and self.records.keys() <= set(keys)


@dataclass(eq=False)
class Upload:
    """One upload in progress.

    ``holders`` become references when it is stored. ``attempt``: the attempt for which it acts.
    """

    owner: JobId
    key: BlobKey
    holders: frozenset[str]
    attempt: int
