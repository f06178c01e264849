"""Whose the place is that holds BLOBs apart from the storage (``blob.storage.ha-directory``).

Its ownership record names the cluster, and the storage that it is used with. The storage in turn keeps which place its
BLOBs are in. So a place that is away is told from a new one, and another cluster's or another storage's is recognised.
Nothing is deleted in a place before both agree. Where BLOBs lie in the storage itself, its record is theirs as well.
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
from emberkeep.base.configuration.options import BLOB_HA_STORAGE
from emberkeep.base.errors import Absent, Conflict, Damaged, EmberkeepError, NewerFormat, Unavailable
from emberkeep.base.files.durable import read_record, write_file
from emberkeep.base.files.errors import read_if_there
from emberkeep.base.files.kept_fields import encode_over
from emberkeep.base.files.ownership import OwnedByAnother, Owner, PlaceKind, Unclaimed

BINDING_FILE = ".emberkeep-blob-place"
_BINDING_KIND, _BINDING_VERSION = "blob-place", 1

ADOPT = "`emberkeep storage status` shows what lies there, `adopt` or `purge` say what it is"
_AWAY = "check that it is the right place, and mounted; if it was emptied on purpose, `emberkeep storage adopt`"
_SEEN_SECONDS = 2.0  # for which a place that was there counts as being there

log = structlog.get_logger(__name__)


class Binding(Compatible, frozen=True, kw_only=True):
    """Which place of BLOBs a storage is used with; ``location`` is "" for BLOBs in the storage, ``place_id`` "" before
    the place was claimed. ``unrecorded``: a release that kept no records has led with that place until then. Persisted
    (kind "blob-place", version 1)."""

    location: str
    place_id: str = ""
    unrecorded: bool = False


class StorageOfBlobs(Protocol):
    """The storage, as far as its place of BLOBs needs it."""

    @property
    def cluster(self) -> str: ...

    @property
    def place_id(self) -> str:
        """Its identity; "" where that is not known."""

    def require(self) -> None:
        """Raises an EmberkeepError where nothing may be deleted in the storage."""


class BlobPlace:
    """All methods block, and may be called from any thread. ``settle`` comes first."""

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
        """Claim the place where it is empty; what cannot be done now is done later. ``was_led``: as of ``StoreOrigin``.
        Raises OwnedByAnother or NewerFormat: this JobManager must not lead with it."""
        self._was_led = was_led
        try:
            self.require()
        except (OwnedByAnother, NewerFormat):
            raise
        except EmberkeepError as error:
            if self.location:
                log.error("HA store: nothing is deleted", place=self.location, reason=error.message, hint=error.hint)

    def problem(self) -> EmberkeepError | None:
        """Why nothing may be deleted there at present; None: it may."""
        try:
            self.require()
        except EmberkeepError as error:
            return error
        return None

    def require(self) -> None:
        """To be called right before anything is deleted there. Claims a place that is nobody's. Raises what the
        storage's ``require`` does, and Unclaimed, OwnedByAnother, Unavailable, Damaged, NewerFormat, Fatal."""
        with self._turn:
            self._storage.require()
            if not self.location:
                self._bind(self._binding_or_none(), Binding(location=""))
                return
            binding = self._binding()
            if binding is None:
                # Decided once: at later starts data without a record may be another cluster's.
                binding = self._bind(binding, Binding(location=self.location, unrecorded=self._was_led))
            owner = self._record.read() or self._claim(binding)
            self._refuse_others(owner)
            if owner.belongs_to != self._storage.place_id and not self._record.has_jobs():
                owner = self._own(owner)  # nothing is there that could be anybody's
            if owner.belongs_to != self._storage.place_id:
                raise Unclaimed(f"the HA store {self.location} was used with another storage than this one", hint=ADOPT)
            bound = self._bound(binding)
            if bound not in ("", owner.place_id):
                raise Unclaimed(f"the storage was used with another HA store than {self.location}", hint=ADOPT)
            self._bind(binding, Binding(location=self.location, place_id=owner.place_id))

    def require_there(self) -> None:
        """To be called before anything is read or stored there. Raises Unavailable where the place carries no record
        any more, so that it is not what it was; OwnedByAnother; and what reading the record raises."""
        if not self.location or time.monotonic() < self._seen_until:
            return
        try:
            owner = self._record.read()
        except (Damaged, NewerFormat):
            pass  # it is there
        else:
            if owner is None:
                self._require_new()
            else:
                self._refuse_others(owner)
        self._seen_until = time.monotonic() + _SEEN_SECONDS

    def forget_sight(self) -> None:
        """Something was missed there: let the next ``require_there`` look."""
        self._seen_until = 0.0

    def _require_new(self) -> None:
        """A place carries no record: claim it where it is new. Raises Unavailable where it had one, or it is not known
        whether it had."""
        try:
            self.require()
        except Unclaimed:
            # Jobs may store there; nothing is deleted.
            self._refuse_missing(self._binding())

    def adopt(self) -> None:
        """A person says that what lies there belongs to the storage, be it nothing. Raises as ``require``, but never
        Unclaimed because of the place."""
        with self._turn:
            self._storage.require()
            if not self.location:
                return
            binding = self._binding_or_none()
            try:
                owner = self._record.read()
            except Damaged as error:
                log.warning("a damaged ownership record is replaced", reason=str(error))
                owner = self._mine()
            if owner is None:
                owner = self._create()
            self._refuse_others(owner)
            self._bind(binding, Binding(location=self.location, place_id=self._own(owner).place_id))

    # --- the record ---------------------------------------------------------------------------------------------------

    @property
    def _record(self) -> BlobOwnerRecord:
        """Raises Fatal."""
        if self._found is None:
            self._found = open_blob_owner_record(self.location)
        return self._found

    def _claim(self, binding: Binding) -> Owner:
        has_jobs = self._refuse_missing(binding)
        # A release before this one has led here: it kept no records, and the place was this cluster's alone.
        if has_jobs and not (binding.unrecorded and binding.location == self.location):
            raise Unclaimed(f"the HA store {self.location} holds data and no ownership record", hint=ADOPT)
        return self._create()

    def _refuse_missing(self, binding: Binding | None) -> bool:
        """Whether there is something of a job. Raises Unavailable: there is nothing, where something has to be."""
        has_jobs = self._record.has_jobs()
        if self._bound(binding) and not has_jobs:
            raise Unavailable(
                f"the HA store {self.location} is empty or not there, but this storage was used with it", hint=_AWAY
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
        """Let the place belong to the storage."""
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
            kind=PlaceKind.BLOBS,
            created_at_ms=self._now_ms(),
            place_id=secrets.token_hex(8),
            belongs_to=self._storage.place_id,
        )

    # --- what the storage keeps ---------------------------------------------------------------------------------------

    def _bound(self, binding: Binding | None) -> str:
        """Identity of the place at this location that the storage was used with; "" before the first time."""
        return binding.place_id if binding is not None and binding.location == self.location else ""

    def _binding(self) -> Binding | None:
        """None: the storage was not used by a release that keeps it. Raises Unavailable, Damaged, NewerFormat."""
        return read_binding(self._file)

    def _binding_or_none(self) -> Binding | None:
        """The same, but a damaged one counts as none: it is replaced."""
        try:
            return self._binding()
        except Damaged as error:
            log.warning("which place BLOBs are in is written anew", reason=str(error))
            return None

    def _bind(self, old: Binding | None, new: Binding) -> Binding:
        if new != old:
            write_binding(self._file, new)
        return new


def read_binding(path: Path) -> Binding | None:
    """None: there is none. Raises Unavailable, Damaged, NewerFormat."""
    try:
        payload = read_record(path, _BINDING_KIND, _BINDING_VERSION)
        return msgspec.json.decode(payload, type=Binding)
    except Absent:
        return None
    except msgspec.DecodeError as error:
        raise Damaged(f"{path}: {error}") from None


def write_binding(path: Path, binding: Binding) -> None:
    """Raises Unavailable, NewerFormat, Fatal."""
    write_file(path, encode_over(_BINDING_KIND, _BINDING_VERSION, binding, read_if_there(path)))
