"""The BLOB server's state, and queries on it. The state machine that changes it is in ``server_machine``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from emberkeep.base.errors import Absent
from emberkeep.base.ids import JobId
from emberkeep.blobs.deliveries import Reference
from emberkeep.blobs.model import BlobKey
from emberkeep.blobs.server_records import Condition, Deletion, OwnerRecord, Record, Upload
from emberkeep.blobs.staging import Staging

ENDED_REMEMBERED = 10_000  # jobs
MOST_BLOBS = 500_000


@dataclass(eq=False, kw_only=True)
class ServerState:
    """The BLOB server's state. Only the state machine and its parts change it.

    ``remembered``: number of ended jobs that are remembered, so that nothing can be uploaded for them.
    """

    remembered: int = ENDED_REMEMBERED
    owners: dict[JobId, OwnerRecord] = field(default_factory=dict)
    staging: Staging[tuple[JobId, BlobKey]] = field(default_factory=Staging)
    uploads: dict[int, Upload] = field(default_factory=dict)  # in progress
    owners_of: dict[BlobKey, set[JobId]] = field(default_factory=dict)
    ha_listed: bool = False  # True once the contents of the HA store are known
    ended: dict[JobId, None] = field(default_factory=dict)  # oldest first
    deletions: list[Deletion] = field(default_factory=list)  # decided, not fetched yet

    def count(self) -> int:
        """Return the number of BLOBs that are known or announced."""
        return sum(len(owner.records) + len(owner.announced) for owner in self.owners.values())

    def get(self, owner_id: JobId, key: BlobKey) -> Record:
        """Return the record of a BLOB that may be read. Raises Absent."""
        owner = self.owners.get(owner_id)
        record = None if owner is None or owner.is_over else owner.records.get(key)
        if record is None or record.condition is not Condition.KEPT or not (record.holders or record.is_there):
            raise Absent(f"there is no BLOB {key} of job {owner_id}", hint="it was not uploaded, or its job has ended")
        return record

    def is_blocked(self, owner_id: JobId, key: BlobKey) -> bool:
        """True if a deletion in progress forbids an upload."""
        owner = self.owners.get(owner_id)
        if owner is None:
            return False
        record = owner.records.get(key)
        return owner.sweeping or (record is not None and record.condition is Condition.DELETING)

    def is_elsewhere(self, owner_id: JobId, key: BlobKey, size: int) -> bool:
        """True if another owner has the same content in the local store (BLOB-21)."""
        records = (self.owners[other].records[key] for other in self.owners_of.get(key, ()) if other != owner_id)
        return any(record.is_there and record.in_local and record.size == size for record in records)

    def has_ended(self, owner_id: JobId) -> bool:
        """True if the job is known to have ended permanently."""
        owner = self.owners.get(owner_id)
        return owner_id in self.ended or (owner is not None and owner.is_over)

    def state_of(self, owner_id: JobId, key: BlobKey) -> str:
        """Return the BLOB's state, as ``rest_blobs.BlobInfo.state`` names it."""
        owner = self.owners[owner_id]
        record, place = owner.records[key], (owner_id, key)
        if owner.is_over or record.condition is not Condition.KEPT or self.staging.is_due(place):
            return "deleting"
        if record.holders:
            return "referenced"
        if record.uploads or (owner.group is not None and key in owner.group.members):
            return "uploading"
        return "staged" if self.staging.is_staged(place) else "unreferenced"

    def references(self) -> Iterator[Reference]:
        """Yield all references."""
        for owner_id, owner in self.owners.items():
            for key, record in owner.records.items():
                for holder in record.holders:
                    yield owner_id, key, holder

    def needless(self) -> dict[JobId, list[BlobKey]]:
        """Return permanent BLOBs in the HA store that nothing has needed for a whole interval (BLOB-16).

        BLOBs that arrived or lost their last reference within that interval are left out: their client may submit the
        job to the next leader.
        """
        found: dict[JobId, list[BlobKey]] = {}
        for owner_id, owner in self.owners.items():
            keys = [key for key, record in owner.records.items() if record.in_ha and self._is_given_up(owner_id, key)]
            if keys and self.ha_listed and not owner.is_recovering:
                found[owner_id] = keys
        return found

    def _is_given_up(self, owner_id: JobId, key: BlobKey) -> bool:
        """True if the next turn would delete the BLOB."""
        record = self.owners[owner_id].records[key]
        return self.staging.is_due((owner_id, key)) or (record.condition is Condition.CONDEMNED and not record.is_busy)

    @property
    def unknown_owners(self) -> set[JobId]:
        """Owners of BLOBs in the HA store that belong to no known job.

        Nothing of theirs is deleted before ``give_up``.
        """
        return {owner_id for owner_id, owner in self.owners.items() if owner.is_unknown}

    def owner(self, owner_id: JobId) -> OwnerRecord:
        """Return the record of an owner. Create the record if it does not exist."""
        return self.owners.setdefault(owner_id, OwnerRecord())

    def record(self, owner_id: JobId, key: BlobKey) -> Record:
        """Return the record of a BLOB. Create the record if it does not exist."""
        self.owners_of.setdefault(key, set()).add(owner_id)
        return self.owner(owner_id).records.setdefault(key, Record(key.is_permanent))

    def remember_end(self, owner_id: JobId) -> None:
        """Note that a job has ended permanently. Beyond ``remembered`` jobs, forget the oldest."""
        self.ended[owner_id] = None
        while len(self.ended) > self.remembered:
            del self.ended[next(iter(self.ended))]
