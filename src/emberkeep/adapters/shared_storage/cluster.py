"""A cluster's part of the storage directory: whose it is, what jobs have in it, what is marked for deletion.

The ownership record names the cluster, and the job store that the storage was used with. Each job store keeps the name
of the storage in turn. So a job store that was emptied or exchanged is recognised: nothing is deleted then, until a
person says that what lies there belongs to it.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import structlog

from emberkeep.adapters.ha_blobs.place import ADOPT, BlobPlace
from emberkeep.adapters.shared_storage.checkpoint_place import (
    CHECKPOINTS,
    make_checkpoint_place,
    record_checkpoint_place,
)
from emberkeep.adapters.shared_storage.marks import MARKS_FILE, read_marks, write_marks
from emberkeep.adapters.shared_storage.store_origin import StoreOrigin
from emberkeep.base.cluster_identity import cluster_id
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options import BLOB_HA_STORAGE, HA_TYPE
from emberkeep.base.errors import Damaged, EmberkeepError, InvalidInput, Unavailable
from emberkeep.base.files.errors import cannot_read, cannot_write, is_directory
from emberkeep.base.files.ownership import (
    OwnedByAnother,
    Owner,
    PlaceKind,
    Unclaimed,
    adopt,
    read_owner,
    rewrite,
)
from emberkeep.base.ids import JobId, parse_job_id
from emberkeep.jobs.leftovers import Item, Kind, Mark

log = structlog.get_logger(__name__)


class ClusterStorage:
    """All methods block, and may be called from any thread, one at a time. ``settle`` comes first.

    ``blobs``: the place of BLOBs, which may be another one.
    """

    def __init__(self, layout: StateLayout, now_ms: Callable[[], int]) -> None:
        self._layout = layout
        self._now_ms = now_ms
        self._place = layout.storage_record
        self._identity = ""
        self._cluster = ""
        self._bound = ""
        self.blobs = BlobPlace(layout, self, now_ms)
        self._has_recorded_checkpoints = False

    @property
    def location(self) -> str:
        return str(self._layout.storage)

    @property
    def cluster(self) -> str:
        """Under which id this cluster owns places; empty before ``settle``."""
        return self._cluster

    @property
    def place_id(self) -> str:
        """Identity of the storage that the job store is used with; "" before the first time."""
        return self._bound

    @property
    def is_bound(self) -> bool:
        """Whether the job store was used with a storage, this one or another; false before ``settle``."""
        return bool(self._bound)

    @property
    def has_recorded_checkpoints(self) -> bool:
        """Whether the directory of all jobs' checkpoints carries an ownership record, wherever it is there; false
        before ``settle``."""
        return self._has_recorded_checkpoints

    # --- ownership ----------------------------------------------------------------------------------------------------

    def settle(self, origin: StoreOrigin) -> str:
        """Find out whose the storage is, and claim it where it is empty; its place of BLOBs as well. Returns the
        storage's identity, for the job store to keep; "" where that is not settled. A storage that is away now is
        looked at again by ``require``.

        Raises OwnedByAnother, NewerFormat, Unavailable (at a first start), or Fatal (no space): this JobManager must
        not lead with it.
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
            log.error("storage: nothing is deleted", reason=error.message, hint=error.hint)
            return ""
        self._refuse_others(owner)
        if owner.belongs_to != origin.identity and not any(self.find()):
            return self._write(owner)  # nothing is there that could be anybody's
        if owner.belongs_to == origin.identity and not origin.storage:
            self._bound = owner.place_id
        self._say_problem()
        return self._bound if self.problem() is None else ""

    def _settle_checkpoints(self, *, is_ours: bool) -> None:
        """Make the directory of all jobs' checkpoints at the first start, and never again: drivers wait for it."""
        place = self._layout.checkpoints
        try:
            owner = read_owner(self._place)
            if owner is None or (CHECKPOINTS not in owner.parts and not is_ours):
                if any(self._place.iterdir()) or any(self.find()):  # it can be seen, whoever it belongs to
                    make_checkpoint_place(place)
                return
            if CHECKPOINTS not in owner.parts:
                record_checkpoint_place(place, owner)
                rewrite(self._place, msgspec.structs.replace(owner, parts=(*owner.parts, CHECKPOINTS)))
            self._has_recorded_checkpoints = True
        except (EmberkeepError, OSError) as error:
            log.error("the directory of checkpoints is not ready", directory=str(place), reason=str(error))

    def _settle_unrecorded(self, origin: StoreOrigin) -> str:
        found = any(self.find())
        if not found and origin.storage:
            raise Unavailable(
                f"the storage {self.location} is empty, but this job store was used with one that is not",
                hint="check that its file system is mounted; if it was emptied on purpose, `emberkeep storage adopt`",
            )
        # A release before this one has led here: it kept no records, and the storage was this cluster's alone.
        if not found or (origin.was_led and not origin.storage):
            return self._write(None)
        self._say_problem()
        return ""

    def _prepare_place(self, origin: StoreOrigin) -> None:
        """Make the place where it is missing, unless that can only mean that its file system is not there."""
        missing = not is_directory(self._place)
        if missing and origin.storage:
            raise Unavailable(
                f"the storage {self.location} is not there, but this job store was used with it",
                hint="check that its file system is mounted; if it was emptied on purpose, `emberkeep storage adopt`",
            )
        if missing:
            self._make_place()

    def _make_place(self) -> None:
        try:
            self._place.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise cannot_write(self._place, error) from error

    def _say_problem(self) -> None:
        problem = self.problem()
        if problem is not None:
            log.error("storage: nothing is deleted", reason=problem.message, hint=problem.hint)

    def problem(self) -> EmberkeepError | None:
        """Why nothing may be deleted in the storage at present; None: it may, since it is this job store's."""
        try:
            self.require()
        except EmberkeepError as error:
            return error
        return None

    def require(self) -> None:
        """To be called right before anything is deleted. Raises Unclaimed, OwnedByAnother, Unavailable, Damaged."""
        owner = read_owner(self._place)
        if owner is None:
            raise Unclaimed(f"the storage {self.location} has no ownership record", hint=ADOPT)
        self._refuse_others(owner)
        if not self._identity or owner.belongs_to != self._identity:
            raise Unclaimed(f"the storage {self.location} was used with another job store than this one", hint=ADOPT)
        if owner.place_id != self._bound:
            raise Unclaimed(f"this job store was used with another storage than {self.location}", hint=ADOPT)

    def _refuse_others(self, owner: Owner) -> None:
        mine = self._mine()
        if not owner.is_same_owner(mine):
            raise OwnedByAnother(self.location, owner, mine)

    def adopt(self) -> str:
        """A person says that what lies in the storage belongs to this job store, be it nothing. Returns the storage's
        identity, for the job store to keep. Raises OwnedByAnother, NewerFormat, Unavailable, Fatal."""
        self._make_place()
        place_id = self._adopted()
        self._settle_checkpoints(is_ours=True)
        return place_id

    def _adopted(self) -> str:
        try:
            owner = read_owner(self._place)
        except Damaged as error:
            log.warning("a damaged ownership record is replaced", reason=str(error))
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
            kind=PlaceKind.STORAGE,
            created_at_ms=self._now_ms(),
            place_id=secrets.token_hex(8),
            belongs_to=self._identity,
        )

    # --- data ---------------------------------------------------------------------------------------------------------

    def find(self) -> set[Item]:
        """Checkpoints of jobs, and BLOBs and graphs where they lie in this directory. Raises Unavailable."""
        found = {(Kind.CHECKPOINTS, job_id) for job_id in _jobs(_names(self._layout.checkpoints))}
        if not self._layout.configuration[BLOB_HA_STORAGE]:
            found |= {(Kind.BLOBS, job_id) for job_id in _jobs(_names(Path(self._layout.ha_blobs)))}
        return found | {(Kind.GRAPH, job_id) for path in self._strange_graphs() for job_id in _jobs([path.name])}

    def checkpoints(self) -> set[Item]:
        """Checkpoints of jobs that belong to this job store as far as graphs tell. Raises Unavailable."""
        others = _jobs(path.name for path in self._strange_graphs())
        return {(Kind.CHECKPOINTS, job_id) for job_id in _jobs(_names(self._layout.checkpoints)) - others}

    def _strange_graphs(self) -> list[Path]:
        """Graphs that this job store does not sweep itself: an embedded one has a folder of its own for them. Raises
        Unavailable."""
        root = self._layout.graphs
        if self._layout.configuration[HA_TYPE] != "embedded":
            return [] if self.problem() is None else [root / name for name in _names(root)]
        return [
            root / folder / name
            for folder in _names(root)
            if folder != self._identity
            for name in _names_in_folder(root / folder)
        ]

    def remove(self, item: Item) -> None:
        """Remove a job's checkpoints, or its graphs of other job stores. Raises as ``require``."""
        kind, job_id = item
        self.require()
        if kind is Kind.CHECKPOINTS:
            _remove_tree(self._layout.checkpoints / job_id)
            return
        for path in self._strange_graphs():
            if _jobs([path.name]) == {job_id}:
                _remove_file(path)

    # --- marks --------------------------------------------------------------------------------------------------------

    def marks(self) -> tuple[Mark, ...]:
        """Raises Unavailable, NewerFormat."""
        return read_marks(self._place / MARKS_FILE)

    def write_marks(self, marks: Iterable[Mark]) -> None:
        """Replace all. Raises what ``require`` does, and Fatal."""
        self.require()
        write_marks(self._place / MARKS_FILE, marks)


def _names(directory: Path) -> list[str]:
    """Empty where nothing was ever written. Raises Unavailable."""
    try:
        return sorted(path.name for path in directory.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        problem = cannot_read(directory, error)
        raise problem if isinstance(problem, Unavailable) else Unavailable(str(problem)) from error


def _names_in_folder(path: Path) -> list[str]:
    """The same; empty also where a file lies there. To ask first whether it is a folder can fail in its own way."""
    try:
        return _names(path)
    except Unavailable as error:
        if isinstance(error.__cause__, NotADirectoryError):
            return []
        raise


def _jobs(names: Iterable[str]) -> set[JobId]:
    """Ids that names begin with, up to a dot; what has no job's name is nobody's to delete."""
    found = set()
    for name in names:
        try:
            found.add(parse_job_id(name.partition(".")[0]))
        except InvalidInput:
            continue
    return found


def _remove_tree(directory: Path) -> None:
    """Raises Unavailable; what is left then goes the next time."""
    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        return
    except OSError as error:
        raise cannot_write(directory, error) from error


def _remove_file(path: Path) -> None:
    """Raises Unavailable."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error
