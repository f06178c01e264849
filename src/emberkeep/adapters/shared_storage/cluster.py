"""A cluster's part of the storage directory: who owns it, and what is marked for deletion.

The ownership record names the cluster, and the job store that the storage is used with. The job store in turn records
the storage's identity. So a job store that was emptied or replaced is recognised. In that case, nothing is deleted
until an operator decides that the data in the storage belongs to this job store.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable

import msgspec
import structlog

from emberkeep.adapters.ha_blobs.place import ADOPT, BlobPlace
from emberkeep.adapters.shared_storage.checkpoint_place import (
    CHECKPOINTS,
    make_checkpoint_place,
    record_checkpoint_place,
)
from emberkeep.adapters.shared_storage.job_data import JobData
from emberkeep.adapters.shared_storage.marks import MARKS_FILE, read_marks, write_marks
from emberkeep.adapters.shared_storage.store_origin import StoreOrigin
from emberkeep.base.cluster_identity import cluster_id
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.errors import Conflict, Damaged, EmberkeepError, Unavailable
from emberkeep.base.files.durable import make_directories
from emberkeep.base.files.errors import cannot_write, is_directory
from emberkeep.base.files.ownership import (
    OwnedByAnother,
    OwnedPlaceKind,
    Owner,
    Unclaimed,
    adopt,
    read_owner,
    rewrite,
)
from emberkeep.jobs.leftovers import Mark

log = structlog.get_logger(__name__)


class ClusterStorage:
    """The storage of one cluster. All methods block; any thread may call them, one at a time. Call ``settle`` first.

    ``blobs``: the place of BLOBs, which may be outside the storage. ``data``: what jobs have in the storage.

    Ownership and data need each other: whether there is data decides who may own the storage, and who owns it decides
    what may be deleted.
    """

    def __init__(self, layout: StateLayout, now_ms: Callable[[], int]) -> None:
        self._layout = layout
        self._now_ms = now_ms
        self._place = layout.storage_record
        self._identity = ""
        self._cluster = ""
        self._bound = ""
        self.blobs = BlobPlace(layout, self, now_ms)
        self.data = JobData(layout, self)
        self._has_recorded_checkpoints = False

    @property
    def location(self) -> str:
        return str(self._layout.storage)

    @property
    def identity(self) -> str:
        """Identity of the job store; "" before ``settle``."""
        return self._identity

    @property
    def cluster(self) -> str:
        """The id under which this cluster owns places; "" before ``settle``."""
        return self._cluster

    @property
    def place_id(self) -> str:
        """Identity of the storage that the job store is used with; "" before the first time."""
        return self._bound

    @property
    def is_bound(self) -> bool:
        """True if the job store was used with a storage, this one or another; False before ``settle``."""
        return bool(self._bound)

    @property
    def has_recorded_checkpoints(self) -> bool:
        """True if the directory of all jobs' checkpoints carries an ownership record on every node that has it mounted.

        False before ``settle``.
        """
        return self._has_recorded_checkpoints

    # --- ownership ----------------------------------------------------------------------------------------------------

    def settle(self, origin: StoreOrigin) -> str:
        """Check who owns the storage and its place of BLOBs, and claim them if they are empty.

        Return the storage's identity, for the job store to record; "" if the owner is not settled. If the storage is
        unavailable now, ``require`` checks it later. Raises OwnedByAnother, Conflict (a restore from a backup has
        replaced this job store), NewerFormat, Unavailable (at a first start), or Fatal (no space): this JobManager must
        not be the leader with this storage.
        """
        place_id = self._settle(origin)
        self.blobs.settle(was_led=origin.was_led)
        self._settle_checkpoints(is_ours=bool(place_id))
        return place_id

    def _settle(self, origin: StoreOrigin) -> str:
        self._identity, self._bound = origin.identity, origin.storage
        self._cluster = cluster_id(self._layout.configuration, self._layout)
        try:
            self._prepare_place(origin)
            owner = read_owner(self._place)
            if owner is None:
                return self._settle_unrecorded(origin)
        except (Damaged, Unavailable) as error:
            if isinstance(error, Unavailable) and not origin.storage:
                raise
            log.error("deleting nothing in the storage", reason=error.message, hint=error.hint)
            return ""
        self._refuse_others(owner)
        if origin.identity in owner.replaced:
            raise Conflict(
                f"the storage {self.location} belongs to a cluster that was restored from a backup of this one",
                hint="end this JobManager for good: its job store has been replaced, and its jobs run elsewhere",
            )
        if owner.belongs_to != origin.identity and not any(self.data.find()):
            return self._write(owner)  # the storage holds no data that could be another job store's
        if owner.belongs_to == origin.identity and not origin.storage:
            self._bound = owner.place_id
        self._say_problem()
        return self._bound if self.problem() is None else ""

    def _settle_checkpoints(self, *, is_ours: bool) -> None:
        """Create the directory of all jobs' checkpoints with an ownership record, and note it in the storage's record.

        Do so once: if a noted directory is missing later, its file system is not mounted, and drivers wait for it.
        While the owner is not settled (``is_ours``), create the directory without a record, provided that the storage
        is not empty. Log errors instead of raising them.
        """
        place = self._layout.checkpoints
        try:
            owner = read_owner(self._place)
            if owner is None or (CHECKPOINTS not in owner.parts and not is_ours):
                if any(self._place.iterdir()) or any(self.data.find()):  # not empty, so its file system is mounted
                    make_checkpoint_place(place)
                return
            if CHECKPOINTS not in owner.parts:
                record_checkpoint_place(place, owner)
                rewrite(self._place, msgspec.structs.replace(owner, parts=(*owner.parts, CHECKPOINTS)))
            self._has_recorded_checkpoints = True
        except (EmberkeepError, OSError) as error:
            log.error("cannot prepare the directory of checkpoints", directory=str(place), reason=str(error))

    def _settle_unrecorded(self, origin: StoreOrigin) -> str:
        found = any(self.data.find())
        if not found and origin.storage:
            raise Unavailable(
                f"the storage {self.location} is empty, but this job store was used with a storage that has data",
                hint="check that its file system is mounted; if it was emptied on purpose, run `emberkeep storage "
                "adopt`",
            )
        # If an older release, which kept no records, was leader here, the storage was this cluster's alone.
        if not found or (origin.was_led and not origin.storage):
            return self._write(None)
        self._say_problem()
        return ""

    def _prepare_place(self, origin: StoreOrigin) -> None:
        """Create the cluster's directory if it is missing.

        Raises Unavailable if it is missing although the job store was used with it: its file system is not mounted.
        """
        missing = not is_directory(self._place)
        if missing and origin.storage:
            raise Unavailable(
                f"the storage {self.location} does not exist, but this job store was used with it",
                hint="check that its file system is mounted; if it was emptied on purpose, run `emberkeep storage "
                "adopt`",
            )
        if missing:
            self._make_place()

    def _make_place(self) -> None:
        try:
            make_directories(self._place)
        except OSError as error:
            raise cannot_write(self._place, error) from error

    def _say_problem(self) -> None:
        problem = self.problem()
        if problem is not None:
            log.error("deleting nothing in the storage", reason=problem.message, hint=problem.hint)

    def problem(self) -> EmberkeepError | None:
        """Return why nothing may be deleted in the storage now, or None if this job store owns the storage."""
        try:
            self.require()
        except EmberkeepError as error:
            return error
        return None

    def require(self) -> None:
        """Check that this job store owns the storage. Call this right before deleting anything there.

        Raises Unclaimed, OwnedByAnother, Unavailable, Damaged, NewerFormat.
        """
        owner = read_owner(self._place)
        if owner is None:
            raise Unclaimed(f"the storage {self.location} has no ownership record", hint=ADOPT)
        self._refuse_others(owner)
        if not self._identity or owner.belongs_to != self._identity:
            raise Unclaimed(f"the storage {self.location} was used with another job store than this one", hint=ADOPT)
        if owner.place_id != self._bound:
            raise Unclaimed(f"this job store was used with a storage other than {self.location}", hint=ADOPT)

    def _refuse_others(self, owner: Owner) -> None:
        mine = self._mine()
        if not owner.is_same_owner(mine):
            raise OwnedByAnother(self.location, owner, mine)

    def adopt(self) -> str:
        """Let this job store own the storage and all data in it, as an operator has decided.

        Return the storage's identity, for the job store to record. Raises OwnedByAnother, NewerFormat, Unavailable,
        Fatal.
        """
        self._make_place()
        place_id = self._adopted()
        self._settle_checkpoints(is_ours=True)
        return place_id

    def _adopted(self) -> str:
        try:
            owner = read_owner(self._place)
        except Damaged as error:
            log.warning("replacing a damaged ownership record", reason=str(error))
            return self._replace(self._mine())
        if owner is not None:
            self._refuse_others(owner)
            owner = msgspec.structs.replace(owner, parts=())
        return self._write(owner)

    def _write(self, owner: Owner | None) -> str:
        if owner is None:
            mine = self._mine()
            self._refuse_others(adopt(self._place, mine))
            self._bound = mine.place_id
            return mine.place_id
        return self._replace(owner)

    def _replace(self, owner: Owner) -> str:
        bound = msgspec.structs.replace(owner, belongs_to=self._identity)
        rewrite(self._place, bound)
        self._bound = bound.place_id
        return bound.place_id

    def _mine(self) -> Owner:
        return Owner(
            cluster_id=self._cluster,
            kind=OwnedPlaceKind.STORAGE,
            created_at_ms=self._now_ms(),
            place_id=secrets.token_hex(8),
            belongs_to=self._identity,
        )

    # --- marks --------------------------------------------------------------------------------------------------------

    def marks(self) -> tuple[Mark, ...]:
        """Return the marks for deletion. Raises Unavailable, NewerFormat."""
        return read_marks(self._place / MARKS_FILE)

    def write_marks(self, marks: Iterable[Mark]) -> None:
        """Replace all marks. Raises what ``require`` raises, and Fatal."""
        self.require()
        write_marks(self._place / MARKS_FILE, marks)
