"""Staged clean-up of the BLOB server: the one rule that stages, forgets or deletes a BLOB, and the deletions."""

from __future__ import annotations

from collections.abc import Iterable

from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobKey
from emberkeep.blobs.server_records import Condition, Deletion, OwnerState
from emberkeep.blobs.server_state import ServerState


class StagedCleanUp:
    """Stages and deletes BLOBs that nothing keeps. Part of the ServerMachine."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    def settle(self, owner_id: JobId, key: BlobKey) -> None:
        """Stage, un-stage, forget or delete a BLOB, as its record demands. Called after each change to the record."""
        owner = self._state.owners.get(owner_id)
        record = None if owner is None else owner.records.get(key)
        if owner is None or record is None:
            return
        usable = record.condition is Condition.KEPT and not owner.is_over
        if not usable or record.holders or record.uploads or owner.waits_for(key) or owner.is_unknown:
            self._state.staging.unstage((owner_id, key))
        elif record.leftovers and not record.is_there and not record.is_busy:
            self.delete(owner_id, (key,), whole=False)
        elif record.is_stored or record.readers:
            self._state.staging.stage((owner_id, key))
        else:
            self._forget(owner_id, key)

    def settle_all(self, owner_id: JobId, keys: Iterable[BlobKey]) -> None:
        for key in list(keys):
            self.settle(owner_id, key)
        self.forget_if_empty(owner_id)

    def make_known(self, owner_id: JobId) -> None:
        """Note that the owner is a job of this cluster: its unreferenced BLOBs may be deleted from now on."""
        owner = self._state.owners[owner_id]
        if owner.is_unknown:
            owner.state = OwnerState.KNOWN
            self.settle_all(owner_id, owner.records)

    def turn(self) -> None:
        """End one retention interval (BLOB-10): delete what is due and what could not be deleted before."""
        due: dict[JobId, list[BlobKey]] = {
            owner_id: [] for owner_id, owner in self._state.owners.items() if owner.bare and not owner.is_unknown
        }
        for owner_id, key in [*self._state.staging.turn(), *self._condemned()]:
            record = self._state.owners[owner_id].records[key]
            if record.is_busy:
                record.condition = Condition.CONDEMNED
            elif key.is_permanent and not self._state.ha_listed:
                self.settle(owner_id, key)
            else:
                due.setdefault(owner_id, []).append(key)
        for owner_id, keys in due.items():
            whole = self._state.ha_listed and self._state.owners[owner_id].may_go_whole(keys)
            if keys or whole:
                self.delete(owner_id, tuple(keys), whole=whole)

    def _condemned(self) -> list[tuple[JobId, BlobKey]]:
        return [
            (owner_id, key)
            for owner_id, owner in self._state.owners.items()
            if not owner.is_over
            for key, record in owner.records.items()
            if record.condition is Condition.CONDEMNED
        ]

    def sweep_if_over(self, owner_id: JobId) -> None:
        """Delete an ended job's directory as soon as no upload, read or deletion is in progress there."""
        owner = self._state.owners.get(owner_id)
        if owner is not None and owner.is_over and not owner.is_busy and not owner.is_deleting:
            self.delete(owner_id, tuple(sorted(owner.records)), whole=True)

    def delete(self, owner_id: JobId, keys: tuple[BlobKey, ...], *, whole: bool) -> None:
        owner = self._state.owners[owner_id]
        owner.sweeping = owner.sweeping or whole
        for key in keys:
            owner.records[key].condition = Condition.DELETING
            self._state.staging.unstage((owner_id, key))
        self._state.deletions.append(Deletion(owner=owner_id, keys=keys, whole=whole))

    def take(self) -> list[Deletion]:
        """Return the deletions that result from the events since the last call."""
        deletions, self._state.deletions = self._state.deletions, []
        return deletions

    def deleted(self, deletion: Deletion) -> None:
        """Record that a deletion is done, in both stores."""
        owner = self._state.owners[deletion.owner]
        if deletion.whole:
            owner.sweeping = owner.bare = False
            if owner.is_over:
                owner.state = OwnerState.KNOWN
        for key in deletion.keys:
            record = owner.records[key]
            record.in_local = record.in_ha = record.leftovers = False
            record.condition = Condition.KEPT
        self.settle_all(deletion.owner, deletion.keys)
        self.sweep_if_over(deletion.owner)

    def not_deleted(self, deletion: Deletion) -> None:
        """Record that a deletion failed, possibly half-way. The next turn repeats it."""
        owner = self._state.owners[deletion.owner]
        for key in deletion.keys:
            owner.records[key].condition = Condition.CONDEMNED
        if deletion.whole:
            owner.sweeping = False
        else:
            self.sweep_if_over(deletion.owner)

    def _forget(self, owner_id: JobId, key: BlobKey) -> None:
        del self._state.owners[owner_id].records[key]
        self._state.staging.unstage((owner_id, key))
        owners = self._state.owners_of[key]
        owners.discard(owner_id)
        if not owners:
            del self._state.owners_of[key]
        self.forget_if_empty(owner_id)

    def forget_if_empty(self, owner_id: JobId) -> None:
        owner = self._state.owners.get(owner_id)
        if owner is not None and owner.is_empty:
            del self._state.owners[owner_id]
