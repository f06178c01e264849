"""The BLOB server's state, and the one rule that stages, forgets or deletes a BLOB."""

from __future__ import annotations

from collections.abc import Iterable

from emberkeep.base.errors import Absent
from emberkeep.base.ids import JobId
from emberkeep.blobs.attempt_fences import AttemptFences
from emberkeep.blobs.model import BlobKey
from emberkeep.blobs.server_records import Condition, Deletion, Owner, Record, Upload
from emberkeep.blobs.staging import Staging


class ServerState:
    """``remembered``: number of ended jobs that are remembered, so that nothing can be uploaded for them."""

    def __init__(self, remembered: int) -> None:
        self.owners: dict[JobId, Owner] = {}
        self.staging: Staging[tuple[JobId, BlobKey]] = Staging()
        self.uploads: dict[int, Upload] = {}
        self.owners_of: dict[BlobKey, set[JobId]] = {}
        self.ha_listed = False  # True once the contents of the HA store are known
        self._remembered = remembered
        self._ended: dict[JobId, None] = {}  # oldest first
        self._fences = AttemptFences()
        self._deletions: list[Deletion] = []

    # --- questions ----------------------------------------------------------------------------------------------------

    def get(self, owner_id: JobId, key: BlobKey) -> Record:
        """Return the record of a BLOB that may be read. Raises Absent."""
        owner = self.owners.get(owner_id)
        record = None if owner is None or owner.over else owner.records.get(key)
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
        return owner_id in self._ended or (owner is not None and owner.over)

    def state_of(self, owner_id: JobId, key: BlobKey) -> str:
        """Return the BLOB's state, as ``rest_blobs.BlobInfo.state`` names it."""
        owner = self.owners[owner_id]
        record, place = owner.records[key], (owner_id, key)
        if owner.over or record.condition is not Condition.KEPT or self.staging.is_due(place):
            return "deleting"
        if record.holders:
            return "referenced"
        if record.uploads or (owner.group is not None and key in owner.group.members):
            return "uploading"
        return "staged" if self.staging.is_staged(place) else "unreferenced"

    def needless(self) -> dict[JobId, list[BlobKey]]:
        """Return permanent BLOBs in the HA store that nothing has needed for a whole interval (BLOB-16).

        BLOBs that have arrived or lost their last reference since then are left out: their client may submit the job to
        the next leader.
        """
        found: dict[JobId, list[BlobKey]] = {}
        for owner_id, owner in self.owners.items():
            keys = [key for key, record in owner.records.items() if record.in_ha and self._is_given_up(owner_id, key)]
            if keys and self.ha_listed and not owner.recovering:
                found[owner_id] = keys
        return found

    def _is_given_up(self, owner_id: JobId, key: BlobKey) -> bool:
        """True if the next turn would delete the BLOB."""
        record = self.owners[owner_id].records[key]
        return self.staging.is_due((owner_id, key)) or (record.condition is Condition.CONDEMNED and not record.is_busy)

    @property
    def strangers(self) -> set[JobId]:
        """Unknown owners in the HA store: none of their BLOBs is deleted until ``give_up`` names the owner."""
        return {owner_id for owner_id, owner in self.owners.items() if owner.strange}

    def take(self) -> list[Deletion]:
        """Return the deletions that result from the events since the last call."""
        deletions, self._deletions = self._deletions, []
        return deletions

    def check_invariants(self) -> None:
        """Raise AssertionError if the state contradicts itself. For tests and the simulator."""
        from emberkeep.blobs.server_invariants import check

        check(self)

    # --- the rule -----------------------------------------------------------------------------------------------------

    def _settle(self, owner_id: JobId, key: BlobKey) -> None:
        """Stage, un-stage, forget or delete a BLOB, as its record demands. Called after each change to the record."""
        owner = self.owners.get(owner_id)
        record = None if owner is None else owner.records.get(key)
        if owner is None or record is None:
            return
        usable = record.condition is Condition.KEPT and not owner.over
        if not usable or record.holders or record.uploads or owner.waits_for(key) or owner.strange:
            self.staging.unstage((owner_id, key))
        elif record.leftovers and not record.is_there and not record.is_busy:
            self._delete(owner_id, (key,), whole=False)
        elif record.is_stored or record.readers:
            self.staging.stage((owner_id, key))
        else:
            self._forget(owner_id, key)

    def _delete(self, owner_id: JobId, keys: tuple[BlobKey, ...], *, whole: bool) -> None:
        owner = self.owners[owner_id]
        owner.sweeping = owner.sweeping or whole
        for key in keys:
            owner.records[key].condition = Condition.DELETING
            self.staging.unstage((owner_id, key))
        self._deletions.append(Deletion(owner=owner_id, keys=keys, whole=whole))

    def _sweep_if_over(self, owner_id: JobId) -> None:
        """Delete an ended job's directory as soon as no upload, read or deletion is in progress there."""
        owner = self.owners.get(owner_id)
        if owner is not None and owner.over and not owner.is_busy and not owner.is_deleting:
            self._delete(owner_id, tuple(sorted(owner.records)), whole=True)

    # --- owners and records -------------------------------------------------------------------------------------------

    def _owner(self, owner_id: JobId) -> Owner:
        return self.owners.setdefault(owner_id, Owner())

    def _record(self, owner_id: JobId, key: BlobKey) -> Record:
        self.owners_of.setdefault(key, set()).add(owner_id)
        return self._owner(owner_id).records.setdefault(key, Record(key.is_permanent))

    def _settle_all(self, owner_id: JobId, keys: Iterable[BlobKey]) -> None:
        for key in list(keys):
            self._settle(owner_id, key)
        self._forget_if_empty(owner_id)

    def _forget(self, owner_id: JobId, key: BlobKey) -> None:
        del self.owners[owner_id].records[key]
        self.staging.unstage((owner_id, key))
        owners = self.owners_of[key]
        owners.discard(owner_id)
        if not owners:
            del self.owners_of[key]
        self._forget_if_empty(owner_id)

    def _forget_if_empty(self, owner_id: JobId) -> None:
        owner = self.owners.get(owner_id)
        if owner is not None and owner.is_empty:
            del self.owners[owner_id]

    def _remember_end(self, owner_id: JobId) -> None:
        self._ended[owner_id] = None
        while len(self._ended) > self._remembered:
            del self._ended[next(iter(self._ended))]
