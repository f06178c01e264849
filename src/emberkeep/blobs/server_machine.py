"""References and staged clean-up of the BLOB server (BLOB-6, 9 … 11, 14 … 19).

Pure: the server carries the decisions out.

A reference is a named holder of one BLOB of one owner; the reference count is the number of holders. Adding or
releasing the same reference twice therefore changes nothing. A BLOB without references is on one of the two lists of
staged clean-up, unless something else keeps it: an upload of it, an incomplete group, or a job that is still to be
recovered.

Every public method, here and in the parts ``uploads`` and ``clean_up``, is one event. The resulting deletions are
collected and fetched with ``clean_up.take``; each must be answered with ``deleted`` or ``not_deleted``. While a
deletion is in progress its BLOBs cannot be read, and uploads of them must wait (``ServerState.is_blocked``). So a
deletion never removes bytes that arrived after it was decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import JobId
from emberkeep.blobs import server_invariants
from emberkeep.blobs.attempt_fences import NO_ATTEMPT, AttemptFences
from emberkeep.blobs.clean_up import StagedCleanUp
from emberkeep.blobs.errors import NotUploaded
from emberkeep.blobs.model import BlobContent, BlobKey, StoredBlob, key_of
from emberkeep.blobs.server_records import Condition, OwnerRecord, OwnerState
from emberkeep.blobs.server_state import ENDED_REMEMBERED, MOST_BLOBS, ServerState
from emberkeep.blobs.server_uploads import ServerUploads

JOB = "job"  # holder of a submitted job's artefacts
SUBMISSION = "submission"  # holder of the artefacts that a submission in progress names


class ServerMachine:
    """The BLOB server's state machine; see the module. The events of uploads and deletions are in its parts."""

    def __init__(self, *, remembered: int = ENDED_REMEMBERED, most: int = MOST_BLOBS) -> None:
        """``most``: number of BLOBs beyond which clients can add none."""
        self.state = ServerState(remembered=remembered)
        self._fences = AttemptFences()
        self.clean_up = StagedCleanUp(self.state)
        self.uploads = ServerUploads(self.state, self.clean_up, self._fences, most)

    def recover(self, jobs: Iterable[JobId], ended: Iterable[JobId]) -> None:
        """Note which jobs will be resubmitted and which have ended permanently (BLOB-17).

        Call once, before all else.
        """
        for job_id in jobs:
            self.state.owner(job_id).state = OwnerState.RECOVERING
        for job_id in ended:
            self.state.remember_end(job_id)

    def found_local(self, listing: Mapping[JobId, Sequence[StoredBlob]]) -> None:
        """Add the BLOBs that an earlier process left in the local store. Call before any upload."""
        self._found(listing, in_ha=False)

    def found_ha(self, listing: Mapping[JobId, Sequence[StoredBlob]]) -> None:
        """Add the BLOBs in the HA store.

        May be called late: until then permanent BLOBs are neither accepted nor deleted.

        BLOBs of an unknown job may belong to a job that is yet to be submitted, or to another cluster: see ``give_up``.
        """
        self.state.ha_listed = True
        self._found(listing, in_ha=True)

    def _found(self, listing: Mapping[JobId, Sequence[StoredBlob]], *, in_ha: bool) -> None:
        for owner_id, blobs in listing.items():
            owner = self.state.owner(owner_id)
            if self.state.has_ended(owner_id):
                owner.state = OwnerState.OVER
                self.clean_up.sweep_if_over(owner_id)
                continue
            owner.bare = owner.bare or not blobs
            if in_ha and not owner.is_wanted:
                owner.state = OwnerState.UNKNOWN
            for blob in blobs:
                record = self.state.record(owner_id, blob.key)
                if record.condition is Condition.KEPT:
                    if in_ha or not record.is_stored:
                        record.size = blob.size
                    record.in_ha, record.in_local = record.in_ha or in_ha, record.in_local or not in_ha
            self.clean_up.settle_all(owner_id, owner.records)

    def give_up(self, owners: Iterable[JobId]) -> None:
        """Treat BLOBs of these unknown owners as unreferenced from now on: no job has needed them for a long time."""
        for owner_id in owners:
            if owner_id in self.state.owners:
                self.clean_up.make_known(owner_id)

    def begin_read(self, owner_id: JobId, key: BlobKey) -> int:
        """Begin to read a store's copy, or to copy it to the other store. The BLOB is not deleted before ``end_read``.

        Returns the number to pass to ``end_read``. Raises Absent.
        """
        record = self.state.get(owner_id, key)
        record.readers += 1
        return record.stored

    def end_read(
        self, owner_id: JobId, key: BlobKey, number: int, *, in_local: bool | None = None, in_ha: bool | None = None
    ) -> None:
        """End a read and record what it found about each store's copy.

        For each store: None if the read found out nothing, True if the store has a sound copy, else False. Findings are
        ignored if a newer upload has stored the BLOB since.
        """
        record = self.state.owners[owner_id].records[key]
        record.readers -= 1
        if record.stored == number and record.condition is Condition.KEPT:
            record.leftovers = record.leftovers or in_ha is False
            record.in_local = record.in_local if in_local is None else in_local
            record.in_ha = record.in_ha if in_ha is None else in_ha
        self.clean_up.settle(owner_id, key)
        self.clean_up.sweep_if_over(owner_id)

    def claim(self, owner_id: JobId, contents: Sequence[BlobContent]) -> None:
        """Reference the contents that a submission names, until it succeeds or is withdrawn.

        Raises NotUploaded for the first that is missing, InvalidInput for a wrong size.
        """
        owner = self.state.owners.get(owner_id) or OwnerRecord()
        for index, content in enumerate(contents):
            record = owner.records.get(key_of(content))
            if owner.is_over or record is None or not record.is_there:
                raise NotUploaded(
                    f"{content.sha256} has not been uploaded for job {owner_id}", field=f"artefacts[{index}].sha256"
                )
            if record.size != content.size:
                raise InvalidInput(
                    f"{content.sha256} has {record.size} bytes, not {content.size}", field=f"artefacts[{index}].size"
                )
        self.state.owner(owner_id).claims += 1
        for content in contents:
            self._hold(owner_id, key_of(content), (SUBMISSION,))
        self.clean_up.make_known(owner_id)

    def withdraw(self, owner_id: JobId) -> None:
        """End one claim of a submission that led to no job. Does nothing if there is no such claim."""
        owner = self.state.owners.get(owner_id)
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
        if self.state.has_ended(owner_id):
            return
        self._fences.end(owner_id, attempt - 1)
        owner = self.state.owner(owner_id)
        for key in keys:
            self.state.record(owner_id, key)
            self._hold(owner_id, key, (JOB,))
        self.clean_up.make_known(owner_id)
        owner.claims, owner.state = 0, OwnerState.KNOWN
        self.uploads.close_group(owner_id, owner)
        self._end_claims(owner_id, owner)

    def _end_claims(self, owner_id: JobId, owner: OwnerRecord) -> None:
        for record in owner.records.values():
            record.holders.discard(SUBMISSION)
        self.clean_up.settle_all(owner_id, owner.records)

    def hold(self, owner_id: JobId, key: BlobKey, holders: Iterable[str]) -> None:
        """Add references and take the BLOB off the staging lists. Raises Absent."""
        self.state.get(owner_id, key)
        self._hold(owner_id, key, holders)

    def _hold(self, owner_id: JobId, key: BlobKey, holders: Iterable[str]) -> None:
        self.state.owners[owner_id].records[key].holders.update(holders)
        self.clean_up.settle(owner_id, key)

    def release(self, owner_id: JobId, key: BlobKey, holder: str, attempt: int = NO_ATTEMPT) -> None:
        """End one reference. Does nothing if there is no such reference. Raises Conflict if the attempt has ended."""
        self._fences.refuse_over(owner_id, attempt)
        record = self.state.owners[owner_id].records.get(key) if owner_id in self.state.owners else None
        if record is not None:
            record.holders.discard(holder)
            self.clean_up.settle(owner_id, key)

    def restart(self, owner_id: JobId, attempt: int) -> None:
        """End a failed attempt, whose requests are refused from now on.

        The job's transient BLOBs lose all references (BLOB-14).
        """
        if not self.state.has_ended(owner_id):
            self._fences.end(owner_id, attempt)
        for upload in self.state.uploads.values():
            if upload.owner == owner_id and not upload.key.is_permanent:
                upload.holders = frozenset()
        records = self.state.owners[owner_id].records if owner_id in self.state.owners else {}
        transient = [key for key in records if not key.is_permanent]
        for key in transient:
            records[key].holders.clear()
        self.clean_up.settle_all(owner_id, transient)

    def end(self, owner_id: JobId) -> None:
        """Delete everything of a globally terminal job, whatever its reference counts (BLOB-15).

        It is deleted at once, or as soon as the uploads and reads in progress have ended.
        """
        self.state.remember_end(owner_id)
        self._fences.forget(owner_id)
        owner = self.state.owner(owner_id)
        owner.claims, owner.state = 0, OwnerState.OVER
        for record in owner.records.values():
            record.holders.clear()
        self.uploads.close_group(owner_id, owner)
        self.clean_up.settle_all(owner_id, owner.records)
        self.clean_up.sweep_if_over(owner_id)

    def turn(self) -> None:
        """End one retention interval (BLOB-10).

        Delete what is due and what could not be deleted before, and stage the BLOBs of abandoned groups.
        """
        self.clean_up.turn()
        self.uploads.turn()
        for owner_id in list(self.state.owners):
            self.clean_up.sweep_if_over(owner_id)

    def check_invariants(self) -> None:
        """Raise AssertionError if the state contradicts itself. For tests and the simulator."""
        server_invariants.check(self.state)
