"""Gives the shared storage to the job store that is being restored, so that the lost cluster cannot use it any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from emberkeep.adapters.shared_storage.cluster import ClusterStorage
from emberkeep.adapters.shared_storage.store_origin import StoreOrigin
from emberkeep.backups.model import BackupManifest
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.errors import Conflict
from emberkeep.base.files.errors import is_directory
from emberkeep.base.files.ownership import read_owner, rewrite


@dataclass(frozen=True)
class StorageFinding:
    """``survived``: the lost cluster's data is in the storage."""

    survived: bool
    sentence: str


class StorageTakeOver:
    """The storage of the cluster to restore. All methods block."""

    def __init__(self, layout: StateLayout, manifest: BackupManifest, now_ms: Callable[[], int]) -> None:
        self._layout = layout
        self._manifest = manifest
        self._now_ms = now_ms

    def look(self, unfinished: str | None) -> StorageFinding:
        """Return what is in the storage. ``unfinished``: identity of a restore that was interrupted.

        Raises Conflict if the storage belongs to another cluster or job store, Unavailable, Damaged, NewerFormat.
        """
        layout, manifest = self._layout, self._manifest
        where = layout.storage
        owner = read_owner(layout.storage_record) if is_directory(layout.storage_record) else None
        if owner is None:
            if any(ClusterStorage(layout, self._now_ms).data.find()):
                raise Conflict(
                    f"the storage {where} holds data of jobs, but no ownership record",
                    hint="restore into an empty directory, or put the lost cluster's whole storage back",
                )
            return StorageFinding(False, f"use {where} as new, empty storage")
        if owner.cluster_id != manifest.cluster_id:
            raise Conflict(
                f"the storage {where} is {owner.describe()}, not of {manifest.cluster_id!r}, which the backup is of",
                hint="set high-availability.storageDir to the lost cluster's storage, or to an empty directory",
            )
        if owner.belongs_to not in (manifest.identity, unfinished):
            raise Conflict(
                f"the storage {where} has been used with another job store since the backup",
                hint="another restore may have taken it over; `emberkeep storage status` there shows what it holds",
            )
        return StorageFinding(True, f"take over the storage {where}, which has survived with the jobs' checkpoints")

    def take(self, identity: str) -> str:
        """Let the job store ``identity`` own the storage, and note that the lost one no longer may. Return its id.

        Raises what ``look`` raises.
        """
        self.look(identity)
        self._note_replaced()  # before the storage changes hands: the lost job store may never lead with it
        storage = ClusterStorage(self._layout, self._now_ms)
        place = storage.settle(StoreOrigin(identity=identity, storage="", was_led=False)) or storage.adopt()
        self._note_replaced()
        storage.blobs.adopt()
        return place

    def _note_replaced(self) -> None:
        """Record in the storage, if it has an owner, that the lost job store has been replaced."""
        place = self._layout.storage_record
        owner = read_owner(place) if is_directory(place) else None
        if owner is not None and self._manifest.identity not in owner.replaced:
            rewrite(place, msgspec.structs.replace(owner, replaced=(*owner.replaced, self._manifest.identity)))
