"""Ownership of the place that holds BLOBs outside the storage (``blob.storage.ha-directory``).

The place's ownership record names the cluster, and the storage that it is used with. The storage in turn records which
place its BLOBs are in (the *binding*). So a missing place is distinguished from a new one, and a place of another
cluster or storage is recognised. Nothing is deleted in a place unless both records agree. If BLOBs are in the storage
itself, the storage's record covers them.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from emberkeep.adapters.ha_blobs.owner_record import BlobOwnerRecord, open_blob_owner_record
from emberkeep.base.compatible import Compatible
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.blobs import BLOB_HA_STORAGE
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Absent, Conflict, Damaged, EmberkeepError, NewerFormat, Unavailable
from emberkeep.base.files.durable import read_record, write_file
from emberkeep.base.files.errors import read_if_there
from emberkeep.base.files.kept_fields import encode_over
from emberkeep.base.files.ownership import OwnedByAnother, OwnedPlaceKind, Owner, Unclaimed

BINDING_FILE = ".emberkeep-blob-place"
_BINDING_KIND, _BINDING_VERSION = "blob-place", 1

ADOPT = "`emberkeep storage status` shows the data there, `adopt` or `purge` settles who owns it"
_AWAY = "check the location and that it is mounted; if it was emptied on purpose, run `emberkeep storage adopt`"
_SEEN_SECONDS = 2.0  # for which a place counts as available after a check

log = structlog.get_logger(__name__)


class Binding(Compatible, frozen=True, kw_only=True):
    """The location of the BLOBs that belong to a storage. Persisted (kind "blob-place", version 1).

    ``location``: "" for BLOBs in the storage. ``place_id``: "" until the place is claimed. ``unrecorded``: an older
    release, which kept no records, has used that place.
    """

    location: str
    place_id: str = ""
    unrecorded: bool = False


class StorageOfBlobs(Protocol):
    """The part of the shared storage that a place of BLOBs uses."""

    @property
    def cluster(self) -> str: ...

    @property
    def place_id(self) -> str:
        """The storage's identity; "" if it is not known."""

    def require(self) -> None:
        """Raise an EmberkeepError if nothing may be deleted in the storage."""


class BlobPlace:
    """The configured place of BLOBs. All methods block; any thread may call them. Call ``settle`` first."""

    def __init__(self, layout: StateLayout, storage: StorageOfBlobs, now_ms: Callable[[], int]) -> None:
        self._storage = storage
        self._now_ms = now_ms
        self._file = layout.storage_record / BINDING_FILE
        self.location = layout.configuration[BLOB_HA_STORAGE]
        if self.location.rstrip("/") == str(layout.storage_record):
            self.location = ""
        self._found: BlobOwnerRecord | None = None
        self._was_led = False
        self._seen_until = 0.0
        self._turn = threading.Lock()

    def settle(self, *, was_led: bool) -> None:
        """Check who owns the place, and claim it if it is empty. If that is impossible now, ``require`` does it later.

        ``was_led``: see ``StoreOrigin``. Raises OwnedByAnother or NewerFormat: this JobManager must not be the leader
        with this place.
        """
        self._was_led = was_led
        try:
            self.require()
        except (OwnedByAnother, NewerFormat):
            raise
        except EmberkeepError as error:
            if self.location:
                log.error(
                    "deleting nothing in the HA store", place=self.location, reason=error.message, hint=error.hint
                )

    def problem(self) -> EmberkeepError | None:
        """Return why nothing may be deleted in the place now, or None if it may."""
        try:
            self.require()
        except EmberkeepError as error:
            return error
        return None

    def require(self) -> None:
        """Check that this storage owns the place. Call this right before deleting anything there.

        Claim the place if it has no owner and no data. Raises what the storage's ``require`` raises, and Unclaimed,
        OwnedByAnother, Unavailable, Damaged, NewerFormat, Fatal.
        """
        with self._turn:
            self._storage.require()
            if not self.location:
                self._bind(self._binding_or_none(), Binding(location=""))
                return
            binding = self._binding()
            if binding is None:
                # ``unrecorded`` is decided once: at later starts data without a record may be another cluster's.
                binding = self._bind(binding, Binding(location=self.location, unrecorded=self._was_led))
            owner = self._record.read() or self._claim(binding)
            self._refuse_others(owner)
            if owner.belongs_to != self._storage.place_id and not self._record.has_jobs():
                owner = self._own(owner)  # the place holds no data that could be another storage's
            if owner.belongs_to != self._storage.place_id:
                raise Unclaimed(f"the HA store {self.location} was used with a different storage", hint=ADOPT)
            bound = self._bound(binding)
            if bound not in ("", owner.place_id):
                raise Unclaimed(f"the storage was used with another HA store than {self.location}", hint=ADOPT)
            self._bind(binding, Binding(location=self.location, place_id=owner.place_id))

    def require_there(self) -> None:
        """Check that the place is available. Call this before reading or storing anything there.

        Raises Unavailable if a place that was used before has no record now: its file system is probably missing.
        Raises OwnedByAnother, and what reading the record raises.
        """
        if not self.location or time.monotonic() < self._seen_until:
            return
        try:
            owner = self._record.read()
        except (Damaged, NewerFormat):
            pass  # the place is available
        else:
            if owner is None:
                self._require_new()
            else:
                self._refuse_others(owner)
        self._seen_until = time.monotonic() + _SEEN_SECONDS

    def forget_sight(self) -> None:
        """Make the next ``require_there`` check the place again, because something was missing there."""
        self._seen_until = 0.0

    def _require_new(self) -> None:
        """Claim a place without a record if it is new. Raises Unavailable if it had a record, or if that is unknown."""
        try:
            self.require()
        except Unclaimed:
            # Jobs may store BLOBs there, but nothing may be deleted.
            self._refuse_missing(self._binding())

    def adopt(self) -> None:
        """Let the storage own the place and all data in it, as an operator has decided.

        Raises what ``require`` raises; Unclaimed only about the storage, never about the place.
        """
        with self._turn:
            self._storage.require()
            if not self.location:
                return
            binding = self._binding_or_none()
            try:
                owner = self._record.read()
            except Damaged as error:
                log.warning("replacing a damaged ownership record", reason=str(error))
                owner = self._mine()
            if owner is None:
                owner = self._create()
            self._refuse_others(owner)
            self._bind(binding, Binding(location=self.location, place_id=self._own(owner).place_id))

    # --- the record ---------------------------------------------------------------------------------------------------

    @property
    def _record(self) -> BlobOwnerRecord:
        """The place's ownership record. Raises Fatal if the location cannot be used."""
        if self._found is None:
            self._found = open_blob_owner_record(self.location)
        return self._found

    def _claim(self, binding: Binding) -> Owner:
        has_jobs = self._refuse_missing(binding)
        # If an older release, which kept no records, was leader here, the place was this cluster's alone.
        if has_jobs and not (binding.unrecorded and binding.location == self.location):
            raise Unclaimed(f"the HA store {self.location} holds data and no ownership record", hint=ADOPT)
        return self._create()

    def _refuse_missing(self, binding: Binding | None) -> bool:
        """True if the place holds data of jobs. Raises Unavailable if it is empty although it was used before."""
        has_jobs = self._record.has_jobs()
        if self._bound(binding) and not has_jobs:
            raise Unavailable(
                f"the HA store {self.location} is empty or does not exist, but this storage was used with it",
                hint=_AWAY,
            )
        return has_jobs

    def _create(self) -> Owner:
        mine = self._mine()
        try:
            self._record.create(mine)
        except Conflict:
            return self._record.read() or mine
        return mine

    def _own(self, owner: Owner) -> Owner:
        """Record that the place belongs to the storage."""
        bound = msgspec.structs.replace(owner, belongs_to=self._storage.place_id)
        self._record.replace(bound)
        return bound

    def _refuse_others(self, owner: Owner) -> None:
        mine = self._mine()
        if not owner.is_same_owner(mine):
            raise OwnedByAnother(self.location, owner, mine)

    def _mine(self) -> Owner:
        return Owner(
            cluster_id=self._storage.cluster,
            kind=OwnedPlaceKind.BLOBS,
            created_at_ms=self._now_ms(),
            place_id=secrets.token_hex(8),
            belongs_to=self._storage.place_id,
        )

    # --- what the storage keeps ---------------------------------------------------------------------------------------

    def _bound(self, binding: Binding | None) -> str:
        """Return the identity of the place that the storage was used with at this location; "" if none."""
        return binding.place_id if binding is not None and binding.location == self.location else ""

    def _binding(self) -> Binding | None:
        """Return the BLOB location recorded for the storage; None if only releases that recorded none have used it.

        Raises Unavailable, Damaged, NewerFormat.
        """
        return read_binding(self._file)

    def _binding_or_none(self) -> Binding | None:
        """Return the storage's binding; None if none is recorded, or if it is damaged and the caller replaces it."""
        try:
            return self._binding()
        except Damaged as error:
            log.warning("replacing the damaged record of where BLOBs are", reason=str(error))
            return None

    def _bind(self, old: Binding | None, new: Binding) -> Binding:
        if new != old:
            write_binding(self._file, new)
        return new


def read_binding(path: Path) -> Binding | None:
    """Return the binding in a file; None if there is no file. Raises Unavailable, Damaged, NewerFormat."""
    try:
        payload = read_record(path, _BINDING_KIND, _BINDING_VERSION)
        return from_json(payload, Binding)
    except Absent:
        return None
    except msgspec.DecodeError as error:
        raise Damaged(f"{path}: {error}") from None


def write_binding(path: Path, binding: Binding) -> None:
    """Write the binding to a file. Raises Unavailable, NewerFormat, Fatal."""
    write_file(path, encode_over(_BINDING_KIND, _BINDING_VERSION, binding, read_if_there(path)))
