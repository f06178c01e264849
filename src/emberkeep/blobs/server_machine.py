"""References and staged clean-up of the BLOB server (BLOB-6, 9 … 11, 14 … 19): it decides, the server carries out.

A reference is a named holder of one BLOB of one owner, so counting twice or releasing twice changes nothing; the count
is the number of holders. What has none is on one of the two lists of staged clean-up from that moment on, unless
something else keeps it: an upload of it, an incomplete group, or a job that is still to be recovered.

Every method is one event. What it leads to is collected and fetched with ``take``: deletions, each to be answered by
``deleted`` or ``not_deleted``. While one is under way its BLOBs are gone for everybody, and an upload has to wait
(``is_blocked``), so a deletion never meets bytes that came after it was decided.
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

JOB = "job"  # the holder of a submitted job's artefacts
SUBMISSION = "submission"  # … of those that a submission under way names
ENDED_REMEMBERED = 10_000  # jobs
OPEN_GROUPS = 10_000


class ServerMachine(ServerState):
    """The events. See the module."""

    def __init__(self, *, remembered: int = ENDED_REMEMBERED) -> None:
        super().__init__(remembered)
        self._upload_numbers = 0
        self._groups = 0

    # --- recovery -----------------------------------------------------------------------------------------------------

    def recover(self, jobs: Iterable[JobId], ended: Iterable[JobId]) -> None:
        """Once, before all else: which jobs will be resubmitted, and which have ended for good (BLOB-17)."""
        for job_id in jobs:
            self._owner(job_id).recovering = True
        for job_id in ended:
            self._remember_end(job_id)

    def found_local(self, listing: Mapping[JobId, Sequence[StoredBlob]]) -> None:
        """What an earlier life left in the local store; before any upload."""
        self._found(listing, in_ha=False)

    def found_ha(self, listing: Mapping[JobId, Sequence[StoredBlob]]) -> None:
        """What the HA store holds. It may come late; until then permanent BLOBs are neither taken nor deleted.

        What belongs to no known job may be submitted yet, or be another cluster's: see ``give_up``.
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
        """Strangers that no job has needed for long: what they have is unreferenced from now on."""
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
        """A client announces what it is about to upload; returns what is missing. A later group replaces the earlier.

        What is there already is kept until the group is complete. Raises Conflict when the job has ended, RetryLater
        when too many groups are open.
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
        """An upload begins; not while ``is_blocked``. Returns its number, for ``stored`` or ``failed``.

        Raises Conflict when the job has ended, or the attempt that it acts for.
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
        """The BLOB is in all stores that it belongs in. False: its job, or the attempt that it acts for, has ended
        meanwhile; the upload is refused."""
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
        """The upload came to nothing. ``leftovers``: a store may hold something of it, which is deleted."""
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
        """Somebody begins to look at the stores' copies, or to copy one into the other: no deletion until ``end_read``,
        which gets the number that this returns. Raises Absent."""
        record = self.get(owner_id, key)
        record.readers += 1
        return record.stored

    def end_read(
        self, owner_id: JobId, key: BlobKey, number: int, *, in_local: bool | None = None, in_ha: bool | None = None
    ) -> None:
        """… has ended, and this is known since about the stores. None: nothing new; False: no sound copy is there.

        What was found before a new upload says nothing.
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
        """A submission names these. Raises NotUploaded for the first that is not there, InvalidInput (a size)."""
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
        """One claim ends without a job. Without a claim nothing happens."""
        owner = self.owners.get(owner_id)
        if owner is not None and owner.claims > 0:
            owner.claims -= 1
            if owner.claims == 0:
                self._end_claims(owner_id, owner)

    def submit(self, owner_id: JobId, keys: Iterable[BlobKey], attempt: int = NO_ATTEMPT) -> None:
        """The job is durable: it holds its artefacts until its end (BLOB-18); all claims and its group are done.
        ``attempt``: its newest one, which may run; those before are over."""
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
        """Add references; the BLOB is un-staged. Raises Absent."""
        self.get(owner_id, key)
        self._hold(owner_id, key, holders)

    def _hold(self, owner_id: JobId, key: BlobKey, holders: Iterable[str]) -> None:
        self.owners[owner_id].records[key].holders.update(holders)
        self._settle(owner_id, key)

    def release(self, owner_id: JobId, key: BlobKey, holder: str, attempt: int = NO_ATTEMPT) -> None:
        """End one reference; one that is not there is fine. Raises Conflict when the attempt is over."""
        self._fences.refuse_over(owner_id, attempt)
        record = self.owners[owner_id].records.get(key) if owner_id in self.owners else None
        if record is not None:
            record.holders.discard(holder)
            self._settle(owner_id, key)

    def references(self) -> Iterator[Reference]:
        """All that there are."""
        for owner_id, owner in self.owners.items():
            for key, record in owner.records.items():
                for holder in record.holders:
                    yield owner_id, key, holder

    def restart(self, owner_id: JobId, attempt: int) -> None:
        """An attempt failed: nobody waits for its transient BLOBs any more (BLOB-14), and it stores none."""
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
        """Globally terminal: everything goes at once, whatever the counts say (BLOB-15)."""
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
        """One retention interval is over (BLOB-10): delete what is due and what could not be deleted before, stage the
        groups that are abandoned."""
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
        """All of it is put on the staging list, together: it is complete, its client is gone, or its job is there."""
        group, owner.group = owner.group, None
        if group is not None:
            self._groups -= 1
            self._settle_all(owner_id, group.members)

    def deleted(self, deletion: Deletion) -> None:
        """A deletion is done, in both stores."""
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
        """A deletion failed, perhaps half way: it is repeated at the next turn."""
        owner = self.owners[deletion.owner]
        for key in deletion.keys:
            owner.records[key].condition = Condition.CONDEMNED
        if deletion.whole:
            owner.sweeping = False
        else:
            self._sweep_if_over(deletion.owner)


def key_of(content: BlobContent) -> BlobKey:
    """Raises ValueError: the SHA-256 is none."""
    return BlobKey(kind=content.kind, sha256=content.sha256)


def _has(owner: Owner, key: BlobKey, size: int) -> bool:
    record = owner.records.get(key)
    return record is not None and record.is_there and record.size == size
