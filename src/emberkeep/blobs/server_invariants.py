"""Invariants of the BLOB server's state machine: true between any two events."""

from __future__ import annotations

from collections import Counter

from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobKey
from emberkeep.blobs.server_records import Condition, OwnerRecord, Record
from emberkeep.blobs.server_state import ServerState


def check(state: ServerState) -> None:
    """Raise AssertionError that names the broken invariant."""
    uploads = Counter((upload.owner, upload.key) for upload in state.uploads.values())
    for owner_id, owner in state.owners.items():
        _hold(not owner.is_empty, f"{owner_id} has a record only while the record says something")
        for key, record in owner.records.items():
            _check_record(state, owner_id, owner, key, record)
            _hold(record.uploads == uploads.pop((owner_id, key), 0), f"the uploads of {key} of {owner_id} are counted")
            _hold(owner_id in state.owners_of[key], f"the index of owners has {owner_id} for {key}")
    _hold(not uploads, f"every upload has a record: {uploads}")
    known = sum(len(owner.records) for owner in state.owners.values())
    _hold(sum(len(owners) for owners in state.owners_of.values()) == known, "only existing BLOBs have owners")
    staged = sum(_lists(state, owner_id, key) for owner_id, owner in state.owners.items() for key in owner.records)
    _hold(staged == len(state.staging), "only existing BLOBs are staged")


def _lists(state: ServerState, owner_id: JobId, key: BlobKey) -> int:
    return state.staging.is_staged((owner_id, key)) + state.staging.is_due((owner_id, key))


def _check_record(state: ServerState, owner_id: JobId, owner: OwnerRecord, key: BlobKey, record: Record) -> None:
    name, listed = f"{key} of {owner_id}", _lists(state, owner_id, key)
    kept = bool(record.holders or record.uploads or owner.waits_for(key) or owner.is_unknown)
    usable = record.condition is Condition.KEPT and not owner.is_over
    _hold(listed <= 1, f"{name} is on one list at most")
    _hold(not listed or (usable and not kept), f"{name} is not on a list while something keeps it")
    _hold(listed == 1 or not usable or kept, f"{name} is kept by something or on a list")
    _hold(record.uploads >= 0 and record.readers >= 0, f"{name} has no negative count of users")
    if record.condition is Condition.DELETING:
        _hold(not record.is_busy, f"{name} is not written or copied while it is deleted")
    _hold(record.condition is not Condition.CONDEMNED or not record.uploads, f"{name} is uploaded, so it is kept")


def _hold(truth: bool, what: str) -> None:
    if not truth:
        raise AssertionError(f"BLOB server: this does not hold: {what}")
