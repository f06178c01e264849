"""References and staged clean-up of the BLOB server (BLOB-6, 9 … 11, 14 … 19).

Pure: the server carries the decisions out.

A reference is a named holder of one BLOB of one owner; the reference count is the number of holders. Adding or
releasing the same reference twice therefore changes nothing. A BLOB without references is on one of the two lists of
staged clean-up, unless something else keeps it: an upload of it, an incomplete group, or a job that is still to be
recovered.

Every method is one event. The resulting deletions are collected and fetched with ``take``; each must be answered with
``deleted`` or ``not_deleted``. While a deletion is in progress its BLOBs cannot be read, and uploads of them must wait
(``is_blocked``). So a deletion never removes bytes that arrived after it was decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from emberkeep.base.errors import Conflict, InvalidInput, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.blobs.attempt_fences import NO_ATTEMPT
from emberkeep.blobs.deliveries import Reference
from emberkeep.blobs.errors import NotUploaded
from emberkeep.blobs.groups import Group
from emberkeep.blobs.model import BlobContent, BlobKey, StoredBlob
from emberkeep.blobs.server_records import Condition, Deletion, Owner, Upload
from emberkeep.blobs.server_state import ServerState

JOB = "job"  # holder of a submitted job's artefacts
SUBMISSION = "submission"  # holder of the artefacts that a submission in progress names
ENDED_REMEMBERED = 10_000  # jobs
OPEN_GROUPS = 10_000


class ServerMachine(ServerState):
    """The events of the BLOB server's machine; see the module."""

    def __init__(self, *, remembered: int = ENDED_REMEMBERED) -> None:
        super().__init__(remembered)
        self._upload_numbers = 0
        self._groups = 0

    # --- recovery -----------------------------------------------------------------------------------------------------

    def recover(self, jobs: Iterable[JobId], ended: Iterable[JobId]) -> None:
        """Note which jobs will be resubmitted and which have ended permanently (BLOB-17).

        Call once, before all else.
        """
        for job_id in jobs:
            self._owner(job_id).recovering = True
        for job_id in ended:
            self._remember_end(job_id)

    def found_local(self, listing: Mapping[JobId, Sequence[StoredBlob]]) -> None:
        """Add the BLOBs that an earlier process left in the local store. Call before any upload."""
        self._found(listing, in_ha=False)

    def found_ha(self, listing: Mapping[JobId, Sequence[StoredBlob]]) -> None:
        """Add the BLOBs in the HA store.

        May be called late: until then permanent BLOBs are neither accepted nor deleted.

        BLOBs of unknown jobs may belong to a job that is yet to be submitted, or to another cluster: see ``give_up``.
        """
        self.ha_listed = True
        self._found(listing, in_ha=True)

    def _found(self, listing: Mapping[JobId, Sequence[StoredBlob]], *, in_ha: bool) -> None:
        for owner_id, blobs in listing.items():
            owner = self._owner(owner_id)
            if self.has_ended(owner_id):
                owner.over = True
                self._sweep_if_over(owner_id)
                continue
            owner.bare = owner.bare or not blobs
            owner.strange = owner.strange or (in_ha and not owner.is_wanted)
            for blob in blobs:
                record = self._record(owner_id, blob.key)
                if record.condition is Condition.KEPT:
                    if in_ha or not record.is_stored:
                        record.size = blob.size
                    record.in_ha, record.in_local = record.in_ha or in_ha, record.in_local or not in_ha
            self._settle_all(owner_id, owner.records)

    def give_up(self, owners: Iterable[JobId]) -> None:
        """Treat BLOBs of these unknown owners as unreferenced from now on, because no job has needed them for long."""
        for owner_id in owners:
            if owner_id in self.owners:
                self._make_known(owner_id)

    def _make_known(self, owner_id: JobId) -> None:
        owner = self.owners[owner_id]
        if owner.strange:
            owner.strange = False
            self._settle_all(owner_id, owner.records)

    # --- uploads ------------------------------------------------------------------------------------------------------

    def open_group(self, owner_id: JobId, contents: Sequence[BlobContent]) -> tuple[BlobKey, ...]:
        """Open a group: a client announces what it will upload. Return what is missing.

        Replaces the owner's earlier group. Members that are stored already are kept until the group is complete. Raises
        Conflict if the job has ended, RetryLater if too many groups are open.
        """
        self._refuse_ended(owner_id)
        owner = self._owner(owner_id)
        if owner.group is None and self._groups >= OPEN_GROUPS:
            self._forget_if_empty(owner_id)
            raise RetryLater(f"{OPEN_GROUPS} groups of BLOBs are being uploaded", hint="try again in a minute")
        sizes = {key_of(content): content.size for content in contents}
        missing = tuple(key for key, size in sizes.items() if not _has(owner, key, size))
        self._make_known(owner_id)
        owner = self._owner(owner_id)
        before, owner.group = owner.group, Group(sizes, missing)
        self._groups += before is None
        self._settle_all(owner_id, [*sizes, *(before.members if before is not None else ())])
        self._close_group_if_complete(owner_id, owner)
        return missing

    def begin_upload(
        self, owner_id: JobId, key: BlobKey, holders: Iterable[str] = (), attempt: int = NO_ATTEMPT
    ) -> int:
        """Begin an upload and return its number, for ``stored`` or ``failed``. Not allowed while ``is_blocked``.

        Raises Conflict if the job has ended, or the attempt for which the upload acts.
        """
        self._refuse_ended(owner_id)
        self._fences.refuse_over(owner_id, attempt)
        if self.is_blocked(owner_id, key):
            raise AssertionError(f"upload of {key} for {owner_id} while its deletion is under way")
        record = self._record(owner_id, key)
        if record.condition is Condition.CONDEMNED:
            record.condition, record.leftovers = Condition.KEPT, True
            record.in_local = record.in_ha = False
        record.uploads += 1
        self._make_known(owner_id)
        self._upload_numbers += 1
        self.uploads[self._upload_numbers] = Upload(owner_id, key, frozenset(holders), attempt)
        self._settle(owner_id, key)
        return self._upload_numbers

    def stored(self, number: int, size: int) -> bool:
        """End an upload whose BLOB is now in every store where it belongs.

        False if its job, or the attempt for which it acts, has ended in the meantime: the upload is refused.
        """
        upload = self.uploads[number]
        if self._fences.is_over(upload.owner, upload.attempt):
            self.failed(number, leftovers=True)
            return False
        del self.uploads[number]
        owner = self.owners[upload.owner]
        record = owner.records[upload.key]
        record.uploads -= 1
        if owner.over:
            self._sweep_if_over(upload.owner)
            return False
        record.size, record.in_local, record.in_ha = size, True, upload.key.is_permanent
        record.stored, record.leftovers = record.stored + 1, False
        record.holders |= upload.holders
        if owner.group is not None:
            owner.group.arrived(upload.key)
        self._settle(upload.owner, upload.key)
        self._close_group_if_complete(upload.owner, owner)
        return True

    def failed(self, number: int, *, leftovers: bool) -> None:
        """End an upload that failed. ``leftovers``: a store may hold part of its bytes; they are deleted."""
        upload = self.uploads.pop(number)
        owner = self.owners[upload.owner]
        record = owner.records[upload.key]
        record.uploads -= 1
        record.leftovers = record.leftovers or leftovers
        if record.leftovers and not record.is_busy and not record.is_there and not owner.over:
            self._delete(upload.owner, (upload.key,), whole=False)
        self._settle(upload.owner, upload.key)
        self._sweep_if_over(upload.owner)

    # --- what reading finds -------------------------------------------------------------------------------------------

    def begin_read(self, owner_id: JobId, key: BlobKey) -> int:
        """Begin to read a store's copy, or to copy it to the other store. The BLOB is not deleted before ``end_read``.

        Returns the number to pass to ``end_read``. Raises Absent.
        """
        record = self.get(owner_id, key)
        record.readers += 1
        return record.stored

    def end_read(
        self, owner_id: JobId, key: BlobKey, number: int, *, in_local: bool | None = None, in_ha: bool | None = None
    ) -> None:
        """End a read and record what it found about each store's copy.

        For each store, None means that the read found out nothing, and False that the store has no sound copy. Findings
        are ignored if a newer upload has stored the BLOB since.
        """
        record = self.owners[owner_id].records[key]
        record.readers -= 1
        if record.stored == number and record.condition is Condition.KEPT:
            record.leftovers = record.leftovers or in_ha is False
            record.in_local = record.in_local if in_local is None else in_local
            record.in_ha = record.in_ha if in_ha is None else in_ha
        self._settle(owner_id, key)
        self._sweep_if_over(owner_id)

    # --- references ---------------------------------------------------------------------------------------------------

    def claim(self, owner_id: JobId, contents: Sequence[BlobContent]) -> None:
        """Reference the contents that a submission names, until it succeeds or is withdrawn.

        Raises NotUploaded for the first that is missing, InvalidInput for a wrong size.
        """
        owner = self.owners.get(owner_id) or Owner()
        for index, content in enumerate(contents):
            record = owner.records.get(key_of(content))
            if owner.over or record is None or not record.is_there:
                raise NotUploaded(
                    f"{content.sha256} is not here for job {owner_id}", field=f"artefacts[{index}].sha256"
                )
            if record.size != content.size:
                raise InvalidInput(
                    f"{content.sha256} has {record.size} bytes, not {content.size}", field=f"artefacts[{index}].size"
                )
        self._owner(owner_id).claims += 1
        for content in contents:
            self._hold(owner_id, key_of(content), (SUBMISSION,))
        self._make_known(owner_id)

    def withdraw(self, owner_id: JobId) -> None:
        """End one claim without a job. Does nothing if there is none."""
        owner = self.owners.get(owner_id)
        if owner is not None and owner.claims > 0:
            owner.claims -= 1
            if owner.claims == 0:
                self._end_claims(owner_id, owner)

    def submit(self, owner_id: JobId, keys: Iterable[BlobKey], attempt: int = NO_ATTEMPT) -> None:
        """Make the job the holder of its artefacts until it ends (BLOB-18). Call once the job is durable.

        Also end what the submission held: the job's group of announced uploads, and the references of all submissions
        of this job in progress. Do nothing if the job has ended.

        ``keys``: the job's artefacts. ``attempt``: the job's newest attempt, which may be running; all earlier attempts
        have ended.
        """
        if self.has_ended(owner_id):
            return
        self._fences.end(owner_id, attempt - 1)
        owner = self._owner(owner_id)
        for key in keys:
            self._record(owner_id, key)
            self._hold(owner_id, key, (JOB,))
        self._make_known(owner_id)
        owner.claims, owner.recovering = 0, False
        self._close_group(owner_id, owner)
        self._end_claims(owner_id, owner)

    def _end_claims(self, owner_id: JobId, owner: Owner) -> None:
        for record in owner.records.values():
            record.holders.discard(SUBMISSION)
        self._settle_all(owner_id, owner.records)

    def hold(self, owner_id: JobId, key: BlobKey, holders: Iterable[str]) -> None:
        """Add references and take the BLOB off the staging lists. Raises Absent."""
        self.get(owner_id, key)
        self._hold(owner_id, key, holders)

    def _hold(self, owner_id: JobId, key: BlobKey, holders: Iterable[str]) -> None:
        self.owners[owner_id].records[key].holders.update(holders)
        self._settle(owner_id, key)

    def release(self, owner_id: JobId, key: BlobKey, holder: str, attempt: int = NO_ATTEMPT) -> None:
        """End one reference. Does nothing if there is none. Raises Conflict if the attempt has ended."""
        self._fences.refuse_over(owner_id, attempt)
        record = self.owners[owner_id].records.get(key) if owner_id in self.owners else None
        if record is not None:
            record.holders.discard(holder)
            self._settle(owner_id, key)

    def references(self) -> Iterator[Reference]:
        """Yield all references."""
        for owner_id, owner in self.owners.items():
            for key, record in owner.records.items():
                for holder in record.holders:
                    yield owner_id, key, holder

    def restart(self, owner_id: JobId, attempt: int) -> None:
        """End a failed attempt, whose requests are refused from now on.

        The job's transient BLOBs lose all references (BLOB-14).
        """
        if not self.has_ended(owner_id):
            self._fences.end(owner_id, attempt)
        for upload in self.uploads.values():
            if upload.owner == owner_id and not upload.key.is_permanent:
                upload.holders = frozenset()
        records = self.owners[owner_id].records if owner_id in self.owners else {}
        transient = [key for key in records if not key.is_permanent]
        for key in transient:
            records[key].holders.clear()
        self._settle_all(owner_id, transient)

    def end(self, owner_id: JobId) -> None:
        """Delete everything of a globally terminal job, whatever its reference counts (BLOB-15).

        It is deleted at once, or as soon as the uploads and reads in progress have ended.
        """
        self._remember_end(owner_id)
        self._fences.forget(owner_id)
        owner = self._owner(owner_id)
        owner.over = True
        owner.claims, owner.recovering = 0, False
        for record in owner.records.values():
            record.holders.clear()
        self._close_group(owner_id, owner)
        self._settle_all(owner_id, owner.records)
        self._sweep_if_over(owner_id)

    def _refuse_ended(self, owner_id: JobId) -> None:
        if self.has_ended(owner_id):
            raise Conflict(
                f"job {owner_id} has ended: nothing can be uploaded for it", hint="submit under a new job id"
            )

    # --- clean-up -----------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """End one retention interval (BLOB-10).

        Deletes what is due and what could not be deleted before, and stages the BLOBs of abandoned groups.
        """
        due: dict[JobId, list[BlobKey]] = {
            owner_id: [] for owner_id, owner in self.owners.items() if owner.bare and not owner.strange
        }
        for owner_id, key in [*self.staging.turn(), *self._condemned()]:
            record = self.owners[owner_id].records[key]
            if record.is_busy:
                record.condition = Condition.CONDEMNED
            elif key.is_permanent and not self.ha_listed:
                self._settle(owner_id, key)
            else:
                due.setdefault(owner_id, []).append(key)
        for owner_id, keys in due.items():
            whole = self.ha_listed and self.owners[owner_id].may_go_whole(keys)
            if keys or whole:
                self._delete(owner_id, tuple(keys), whole=whole)
        for owner_id, owner in list(self.owners.items()):
            self._turn_group(owner_id, owner)
            self._sweep_if_over(owner_id)

    def _condemned(self) -> list[tuple[JobId, BlobKey]]:
        return [
            (owner_id, key)
            for owner_id, owner in self.owners.items()
            if not owner.over
            for key, record in owner.records.items()
            if record.condition is Condition.CONDEMNED
        ]

    def _turn_group(self, owner_id: JobId, owner: Owner) -> None:
        group = owner.group
        if group is None:
            return
        if any(key in owner.records and owner.records[key].uploads for key in group.members):
            group.stir()
        if group.turn():
            self._close_group(owner_id, owner)

    def _close_group_if_complete(self, owner_id: JobId, owner: Owner) -> None:
        if owner.group is not None and owner.group.is_complete:
            self._close_group(owner_id, owner)

    def _close_group(self, owner_id: JobId, owner: Owner) -> None:
        """Close a group that is complete or abandoned, or whose job is submitted.

        Stage its unreferenced BLOBs together.
        """
        group, owner.group = owner.group, None
        if group is not None:
            self._groups -= 1
            self._settle_all(owner_id, group.members)

    def deleted(self, deletion: Deletion) -> None:
        """Record that a deletion is done, in both stores."""
        owner = self.owners[deletion.owner]
        if deletion.whole:
            owner.sweeping = owner.bare = owner.over = False
        for key in deletion.keys:
            record = owner.records[key]
            record.in_local = record.in_ha = record.leftovers = False
            record.condition = Condition.KEPT
        self._settle_all(deletion.owner, deletion.keys)
        self._sweep_if_over(deletion.owner)

    def not_deleted(self, deletion: Deletion) -> None:
        """Record that a deletion failed, possibly half-way. The next turn repeats it."""
        owner = self.owners[deletion.owner]
        for key in deletion.keys:
            owner.records[key].condition = Condition.CONDEMNED
        if deletion.whole:
            owner.sweeping = False
        else:
            self._sweep_if_over(deletion.owner)


def key_of(content: BlobContent) -> BlobKey:
    """Return the content's key. Raises ValueError for an invalid SHA-256."""
    return BlobKey(kind=content.kind, sha256=content.sha256)


def _has(owner: Owner, key: BlobKey, size: int) -> bool:
    record = owner.records.get(key)
    return record is not None and record.is_there and record.size == size
