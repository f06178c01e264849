"""Uploads to the BLOB server: groups of announced BLOBs, and each upload from beginning to end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from emberkeep.base.errors import Conflict, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.blobs.attempt_fences import NO_ATTEMPT, AttemptFences
from emberkeep.blobs.clean_up import StagedCleanUp
from emberkeep.blobs.groups import Group
from emberkeep.blobs.model import BlobContent, BlobKey, key_of
from emberkeep.blobs.server_records import Condition, OwnerRecord, Upload
from emberkeep.blobs.server_state import ServerState

OPEN_GROUPS = 10_000


class ServerUploads:
    """Uploads in progress, and the number of open groups. Part of the ServerMachine."""

    def __init__(self, state: ServerState, clean_up: StagedCleanUp, fences: AttemptFences, most: int) -> None:
        """``most``: number of BLOBs beyond which clients can add none."""
        self._state = state
        self._most = most
        self._clean_up = clean_up
        self._fences = fences
        self._upload_numbers = 0
        self._groups = 0

    def open_group(self, owner_id: JobId, contents: Sequence[BlobContent]) -> tuple[BlobKey, ...]:
        """Open a group: a client announces what it will upload. Return what is missing.

        Replaces the owner's earlier group. Members that are stored already are kept until the group is complete. Raises
        Conflict if the job has ended, RetryLater if too many groups are open, or there are too many BLOBs.
        """
        self._refuse_ended(owner_id)
        self.refuse_surplus(owner_id, map(key_of, contents))
        owner = self._state.owner(owner_id)
        if owner.group is None and self._groups >= OPEN_GROUPS:
            self._clean_up.forget_if_empty(owner_id)
            raise RetryLater(f"{OPEN_GROUPS} groups of BLOBs are being uploaded", hint="try again in a minute")
        sizes = {key_of(content): content.size for content in contents}
        missing = tuple(key for key, size in sizes.items() if not _has(owner, key, size))
        self._clean_up.make_known(owner_id)
        owner = self._state.owner(owner_id)
        before, owner.group = owner.group, Group(sizes, missing)
        self._groups += before is None
        self._clean_up.settle_all(owner_id, [*sizes, *(before.members if before is not None else ())])
        self._close_group_if_complete(owner_id, owner)
        return missing

    def refuse_surplus(self, owner_id: JobId, keys: Iterable[BlobKey]) -> None:
        """Raise RetryLater if so many BLOBs are known or announced that these cannot be added."""
        owner = self._state.owners.get(owner_id)
        new = set(keys)
        if owner is not None:
            new -= owner.records.keys() | owner.announced
        count = self._state.count() if new else 0
        if new and count + len(new) > self._most:
            raise RetryLater(
                f"the cluster has {count} BLOBs, and {len(new)} more exceed the {self._most} that it accepts",
                hint="cancel jobs that are not needed, or raise the JobManager's blob.max-count",
            )

    def begin(self, owner_id: JobId, key: BlobKey, holders: Iterable[str] = (), attempt: int = NO_ATTEMPT) -> int:
        """Begin an upload and return its number, for ``stored`` or ``failed``. Not allowed while ``is_blocked``.

        Raises Conflict if the job has ended, or the attempt for which the upload acts.
        """
        self._refuse_ended(owner_id)
        self._fences.refuse_over(owner_id, attempt)
        if self._state.is_blocked(owner_id, key):
            raise AssertionError(f"upload of {key} for {owner_id} while its deletion is under way")
        record = self._state.record(owner_id, key)
        if record.condition is Condition.CONDEMNED:
            record.condition, record.leftovers = Condition.KEPT, True
            record.in_local = record.in_ha = False
        record.uploads += 1
        self._clean_up.make_known(owner_id)
        self._upload_numbers += 1
        self._state.uploads[self._upload_numbers] = Upload(owner_id, key, frozenset(holders), attempt)
        self._clean_up.settle(owner_id, key)
        return self._upload_numbers

    def stored(self, number: int, size: int) -> bool:
        """End an upload whose BLOB is now in every store where it belongs.

        Returns False if the upload is refused, because its job, or the attempt for which it acts, has ended.
        """
        upload = self._state.uploads[number]
        if self._fences.is_over(upload.owner, upload.attempt):
            self.failed(number, leftovers=True)
            return False
        del self._state.uploads[number]
        owner = self._state.owners[upload.owner]
        record = owner.records[upload.key]
        record.uploads -= 1
        if owner.is_over:
            self._clean_up.sweep_if_over(upload.owner)
            return False
        record.size, record.in_local, record.in_ha = size, True, upload.key.is_permanent
        record.stored, record.leftovers = record.stored + 1, False
        record.holders |= upload.holders
        if owner.group is not None:
            owner.group.arrived(upload.key)
        self._clean_up.settle(upload.owner, upload.key)
        self._close_group_if_complete(upload.owner, owner)
        return True

    def failed(self, number: int, *, leftovers: bool) -> None:
        """End an upload that failed. ``leftovers``: a store may hold part of its bytes; they are deleted."""
        upload = self._state.uploads.pop(number)
        owner = self._state.owners[upload.owner]
        record = owner.records[upload.key]
        record.uploads -= 1
        record.leftovers = record.leftovers or leftovers
        if record.leftovers and not record.is_busy and not record.is_there and not owner.is_over:
            self._clean_up.delete(upload.owner, (upload.key,), whole=False)
        self._clean_up.settle(upload.owner, upload.key)
        self._clean_up.sweep_if_over(upload.owner)

    def turn(self) -> None:
        """End one retention interval: close the groups that have made no progress in it."""
        for owner_id, owner in list(self._state.owners.items()):
            group = owner.group
            if group is None:
                continue
            if any(key in owner.records and owner.records[key].uploads for key in group.members):
                group.stir()
            if group.turn():
                self.close_group(owner_id, owner)

    def _close_group_if_complete(self, owner_id: JobId, owner: OwnerRecord) -> None:
        if owner.group is not None and owner.group.is_complete:
            self.close_group(owner_id, owner)

    def close_group(self, owner_id: JobId, owner: OwnerRecord) -> None:
        """Close a group that is complete or abandoned, or whose job is submitted.

        Stage its unreferenced BLOBs together.
        """
        group, owner.group = owner.group, None
        if group is not None:
            self._groups -= 1
            self._clean_up.settle_all(owner_id, group.members)

    def _refuse_ended(self, owner_id: JobId) -> None:
        if self._state.has_ended(owner_id):
            raise Conflict(f"job {owner_id} has ended and takes no more uploads", hint="submit under a new job id")


def _has(owner: OwnerRecord, key: BlobKey, size: int) -> bool:
    record = owner.records.get(key)
    return record is not None and record.is_there and record.size == size
