"""Local copies of state files on this node's disk. ``copies_places`` has their paths, ``copies_file`` their format.

Keeping a copy does not sync it. After a power loss a copy may be missing or torn; its record and its blocks' checksums
reveal a torn one. A copy's owner is the directory that it is in, so that one rename hands over all copies of an owner.
After a start, copies count as used in the order of their modification times.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Generator, Iterator
from pathlib import Path

import msgspec
import structlog

from emberkeep.adapters.state.copies_file import verified_pieces
from emberkeep.adapters.state.copies_index import Copy, CopyIndex, Owner
from emberkeep.adapters.state.copies_places import NO_FILE, CopyPlaces
from emberkeep.adapters.state.copies_staging import Staged
from emberkeep.base.errors import Absent, Fatal, Unavailable
from emberkeep.base.files.errors import cannot_read
from emberkeep.base.files.operations import SYSTEM_FILES, FileOps
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.local_state.errors import DamagedCopy
from emberkeep.local_state.model import CopyRecord, Holding, StatePath
from emberkeep.local_state.spark_layout import store_directory, store_version

log = structlog.get_logger(__name__)


class DiskCopies:
    """Local copies on disk; implements ``local_state.ports.LocalCopies``."""

    def __init__(self, root: Path, files: FileOps = SYSTEM_FILES) -> None:
        self._root = root
        self._files = files
        self._places = CopyPlaces(root, files)
        self._index = CopyIndex()
        self._lock = threading.Lock()  # guards the index, and the creation and removal of files and directories

    # --- a start ------------------------------------------------------------------------------------------------------

    def open_copies(self) -> tuple[CopyRecord, ...]:
        with self._errors("open"):
            self._places.make()
            found = sorted(self._places.load(), key=lambda each: each[0])
            with self._lock:
                for _, copy in found:
                    replaced = self._index.add(copy)
                    if replaced is not None:
                        self._places.drop_replaced(replaced)
                records = tuple(copy.record for copy in self._index)
        places = self._places
        if places.removed:
            log.warning("removing incomplete local copies of state", copies=places.removed)
        if places.left:
            log.warning("cannot delete all local state: its disk fails", left=places.left, reason=places.why_left)
        return records

    def clear(self) -> None:
        """Remove all copies. Call this instead of ``open_copies`` where copies are no longer kept. Raises Fatal."""
        with self._errors("delete"):
            self._places.clear()

    # --- writing ------------------------------------------------------------------------------------------------------

    def stage(self) -> Staged:
        with self._errors("write"):
            try:
                return Staged(self._places.staging(), self._files, self._adopt)
            except FileNotFoundError:  # the directories are missing, e.g. because the disk was away at the start
                self._places.make()
                return Staged(self._places.staging(), self._files, self._adopt)

    def _adopt(self, staged: Path, record: CopyRecord) -> None:
        """Make a complete file, which ends with its record, a copy. Raises OSError."""
        copy = Copy(record, staged.name)
        with self._lock:
            self._places.adopt(staged, copy)
            self._delete_replaced(self._index.add(copy))

    def move(self, record: CopyRecord, path: StatePath, generation: str, *, modified_ms: int = 0) -> None:
        with self._lock:
            copy = self._find_same(record)
            if copy is None:
                return
            changed = msgspec.structs.replace(copy.record, path=path, generation=generation, modified_ms=modified_ms)
            moved = Copy(changed, copy.file)
            try:
                Staged.add_end(self._files, self._places.path(copy), moved.record)
            except OSError as error:
                self._forget([copy])
                raise self._refusal("move", error) from error
            self._index.remove(record.path)
            self._delete_replaced(self._index.add(moved))

    def _delete_replaced(self, copy: Copy | None) -> None:
        if copy is not None:
            self._forget([copy])  # if that fails, the next start finds two copies of one name and takes the newer one

    # --- reading ------------------------------------------------------------------------------------------------------

    def find(self, path: StatePath) -> CopyRecord | None:
        copy = self._index.find(path)
        return None if copy is None else copy.record

    def read(self, record: CopyRecord, offset: int, length: int | None) -> Iterator[bytes]:
        with self._lock:
            copy = self._find_same(record)
            if copy is None:
                raise Absent(f"this copy of {record.path.name} no longer exists")
            where = self._places.path(copy)
            try:
                file = os.open(where, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except OSError as error:
                problem = cannot_read(Path(where), error)
                if isinstance(problem, Unavailable) and error.errno not in NO_FILE:
                    raise problem from error
                self._forget([copy])
                raise DamagedCopy(f"{where} cannot be opened: {error.strerror or error}") from error
        pieces = verified_pieces(file, copy.record, offset, length, where)
        next(pieces)  # enters the "try", so that the file is closed even if the iterator is never used
        return self._guarded(pieces, copy)

    def _guarded(self, pieces: Iterator[bytes], copy: Copy) -> Generator[bytes]:
        try:
            yield from pieces
        except DamagedCopy:
            with self._lock:
                found = self._index.find(copy.record.path)
                if found is not None and found.file == copy.file:
                    self._forget([found])
            raise

    def touch(self, record: CopyRecord) -> None:
        with self._lock:
            self._index.touch(record.path)

    def _find_same(self, record: CopyRecord) -> Copy | None:
        """Return the copy with exactly these bytes, or None. Another allocation may own the copy by now."""
        copy = self._index.find(record.path)
        if copy is None or msgspec.structs.replace(copy.record, allocation_id=record.allocation_id) != record:
            return None
        return copy

    # --- owners -------------------------------------------------------------------------------------------------------

    def hand_over(self, job_id: JobId, source: AllocationId, target: AllocationId) -> None:
        with self._lock, self._errors("hand over"):
            copies = self._index.owned((job_id, source))
            if not copies or source == target:
                return
            self._places.hand_over(copies, (job_id, source), (job_id, target))
            for copy in copies:
                self._index.hand_over(copy, target)

    def drop(self, path: StatePath) -> None:
        with self._lock, self._errors("delete"):
            self._delete(self._index.below(path))

    def drop_allocation(self, job_id: JobId, allocation_id: AllocationId) -> None:
        self._drop_owners([(job_id, allocation_id)])

    def drop_job(self, job_id: JobId) -> None:
        with self._lock:
            owners = self._index.owners(job_id)
        self._drop_owners(owners)

    def _drop_owners(self, owners: list[Owner]) -> None:
        for owner in owners:
            with self._lock, self._errors("delete"):
                for copy in self._index.owned(owner):
                    self._index.remove(copy.record.path)
                going = self._places.set_aside(owner)
            with self._errors("delete"):
                self._places.remove(going)

    def _delete(self, copies: list[Copy]) -> None:
        """Remove copies from the index, then from the disk. Raises OSError."""
        for copy in copies:
            if self._index.find(copy.record.path) is copy:
                self._index.remove(copy.record.path)
        for copy in copies:
            self._places.delete(copy)
        for owner in {copy.owner for copy in copies}:
            if not self._index.owned(owner):
                self._places.remove_if_empty(owner)

    def _forget(self, copies: list[Copy]) -> None:
        """Delete useless copies as ``_delete`` does, ignoring OSError: a disk that fails here has failed before."""
        with contextlib.suppress(OSError):
            self._delete(copies)

    # --- accounts -----------------------------------------------------------------------------------------------------

    def records(self) -> tuple[CopyRecord, ...]:
        with self._lock:
            return tuple(copy.record for copy in self._index)

    def holdings(self, job_id: JobId) -> tuple[Holding, ...]:
        with self._lock:
            records = [copy.record for owner in self._index.owners(job_id) for copy in self._index.owned(owner)]
        return _holdings(job_id, records)

    def used(self) -> int:
        return self._index.used

    def close(self) -> None:
        """Do nothing: the files stay for the next process."""

    @contextlib.contextmanager
    def _errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._refusal(verb, error) from error

    def _refusal(self, verb: str, error: OSError) -> Fatal:
        return Fatal(
            f"cannot {verb} local copies of state in {self._root}: {error.strerror or error}",
            hint="check free space and permissions of that directory",
        )


def _holdings(job_id: JobId, records: list[CopyRecord]) -> tuple[Holding, ...]:
    stores: dict[tuple[str, str], list[CopyRecord]] = {}
    for record in records:
        directory = store_directory(record.path.name)
        if directory is not None:
            stores.setdefault((record.path.root, directory), []).append(record)
    return tuple(
        Holding(
            job_id=job_id,
            root=root,
            name=name,
            files=len(held),
            size=sum(record.length for record in held),
            newest_version=max(store_version(record.path.name) for record in held),
        )
        for (root, name), held in sorted(stores.items())
    )
