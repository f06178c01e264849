"""Durable state in an object store: S3, Google Cloud Storage or Azure, ``<prefix>/<name>``.

Object stores have no directories. A marker object in each directory, written before the directory's first file, lets
the directory exist without files. A conditional request ensures that a name is created only once. A rename copies the
file and deletes the old one, so the file may keep both names if the process ends in between. Directories cannot be
renamed; Spark's checkpoints do not need that. A file's generation is its entity tag: files with equal bytes may have
equal tags.

Object stores do not prevent a file and a directory of the same name: two processes that create them at the same moment
may both succeed. All calls to obstore block, for the reason given in ``adapters.blobs.objects``.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

import obstore
from obstore.exceptions import AlreadyExistsError

from emberkeep.adapters.object_store.clients import parse_object_location
from emberkeep.adapters.state.names import DIRECTORY_MARKER, INCOMING, is_temporary, parts_of
from emberkeep.adapters.state.object_requests import PART_BYTES, ObjectRequests, directory_status, file_status
from emberkeep.adapters.state.source import StagedSource, opened_source
from emberkeep.base.errors import Absent, Conflict, EmberkeepError, Fatal
from emberkeep.local_state.errors import NotADirectory, NotEmpty
from emberkeep.local_state.file_names import is_unique
from emberkeep.local_state.model import FileKind, FileStatus

_LISTED_AT_ONCE = 1000
_MOST_KNOWN = 10_000
_LEFTOVER_SECONDS = 24 * 3600.0


class ObjectState:
    """The durable state below one prefix of an object store; implements ``local_state.ports.DurableState``."""

    def __init__(self, location: str) -> None:
        """``location``: s3://bucket/prefix, gs://bucket/prefix or az://container/prefix. Raises Fatal."""
        self._requests = ObjectRequests(parse_object_location(location, "the checkpoint"))
        self._known: set[str] = set()  # directories that are known to have their marker
        self._swept = False

    @property
    def location(self) -> str:
        return self._requests.root.location

    # --- reading ------------------------------------------------------------------------------------------------------

    def status(self, name: str) -> FileStatus:
        if parts_of(name):
            status = self._requests.find(name)
            if status is not None:
                return status
        if not self._requests.is_directory(name):
            raise self._requests.root.absent(name)
        return directory_status(name)

    def listing(self, name: str) -> tuple[FileStatus, ...]:
        parts = parts_of(name)
        with self._requests.errors("list", name):
            found = obstore.list_with_delimiter(self._requests.store, name or None)
        objects, directories = found["objects"], found["common_prefixes"]
        if not objects and not directories:
            status = self.status(name)
            return (status,) if status.kind is FileKind.FILE else ()
        entries = [file_status(each["path"], each) for each in objects if not each["path"].endswith(DIRECTORY_MARKER)]
        entries += [directory_status(each) for each in directories if parts or each != INCOMING]
        return tuple(sorted(entries, key=lambda status: status.name))

    def read(self, name: str, offset: int, length: int | None) -> tuple[FileStatus, Iterator[bytes]]:
        if not parts_of(name):
            raise self._requests.root.is_a_directory(name)
        try:
            found = self._requests.get(name, offset, length)
        except Absent:
            if self._requests.is_directory(name):
                raise self._requests.root.is_a_directory(name) from None
            raise self._requests.root.absent(name) from None
        except Fatal:
            # HTTP has no empty ranges: the range may begin at or beyond the end of the file.
            status = self.status(name)
            if status.kind is FileKind.FILE and offset >= status.length:
                return status, iter(())
            raise
        pieces = iter(()) if length == 0 else self._requests.pieces(found, name)
        return file_status(name, found.meta), pieces

    # --- making -------------------------------------------------------------------------------------------------------

    def make_directory(self, name: str) -> None:
        self._make_directories(parts_of(name))

    def _make_directories(self, parts: Sequence[str]) -> None:
        """Write the markers of the directory and of all directories above it, up to the root. Raises NotADirectory."""
        for depth in range(len(parts) + 1):
            name = "/".join(parts[:depth])
            if name in self._known:
                continue
            if name and self._requests.find(name) is not None:
                raise NotADirectory(f"{self._requests.root.at(name)} is a file")
            with contextlib.suppress(AlreadyExistsError), self._requests.errors("make", name):
                obstore.put(self._requests.store, _marker(name), b"", mode="create", use_multipart=False)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known.add(name)

    def create(self, name: str, source: Path, *, overwrite: bool) -> FileStatus:
        parts = parts_of(name)
        if not parts:
            raise self._requests.root.is_a_directory(name)
        self._make_directories(parts[:-1])
        self._check_no_directory(name, overwrite=overwrite)
        with opened_source(source) as file:
            size = file.size()
            if size <= PART_BYTES:
                data = b"".join(iter(lambda: file.read(PART_BYTES), b""))
                return self._requests.put(name, data, overwrite=overwrite)
            if overwrite:
                return self._requests.put_parts(name, file, size)
            return self._create_in_parts(name, file, size)

    def _create_in_parts(self, name: str, file: StagedSource, size: int) -> FileStatus:
        if self._requests.find(name) is not None:
            raise self._requests.root.exists(name)
        temporary = f"{INCOMING}/{secrets.token_hex(12)}"
        try:
            self._requests.put_parts(temporary, file, size)
            self._sweep(temporary)
            return self._requests.copy(temporary, name, overwrite=False, own=True)
        finally:
            with contextlib.suppress(EmberkeepError):
                self._requests.delete([temporary])

    def _check_no_directory(self, name: str, *, overwrite: bool) -> None:
        if is_temporary(name.rpartition("/")[2]):
            return  # no process creates a directory with such a name
        if name in self._known or self._requests.is_directory(name):
            raise self._requests.root.is_a_directory(name) if overwrite else self._requests.root.exists(name)

    def _sweep(self, newest: str) -> None:
        """Delete temporary objects that crashed uploads left more than 24 hours ago. Runs once per process.

        ``newest``: an object that was stored just now, so that the store's clock counts.
        """
        if self._swept:
            return
        self._swept = True
        found = self._requests.find(newest)
        if found is None:
            return
        oldest = found.modified_ms / 1000 - _LEFTOVER_SECONDS
        with self._requests.errors("list", INCOMING):
            for batch in obstore.list(self._requests.store, INCOMING):
                self._requests.delete([each["path"] for each in batch if each["last_modified"].timestamp() < oldest])

    # --- moving -------------------------------------------------------------------------------------------------------

    def rename(self, source: str, target: str, *, overwrite: bool) -> FileStatus:
        froms, to = parts_of(source), parts_of(target)
        if froms != to and to[: len(froms)] == froms:
            raise Conflict(f"{self._requests.root.at(source)} cannot be moved into itself")
        if not to:
            raise self._requests.root.exists(target)
        if froms == to:
            return self._renamed_to_itself(source, overwrite=overwrite)
        self._check_parent(to[:-1])
        self._check_no_directory(target, overwrite=overwrite)
        try:
            status = self._copy(source, target, overwrite=overwrite)
        except Absent:
            self._check_movable(source)
            raise self._requests.root.absent(source) from None
        self._requests.delete([source])
        return status

    def _renamed_to_itself(self, name: str, *, overwrite: bool) -> FileStatus:
        found = self.status(name)
        if found.kind is FileKind.DIRECTORY:
            self._check_movable(name)
        if not overwrite:
            raise self._requests.root.exists(name)
        return found

    def _check_movable(self, name: str) -> None:
        """Raise Fatal if ``name``, which is no file, is a directory."""
        if self._requests.is_directory(name):
            raise Fatal(
                f"{self._requests.root.at(name)} is a directory: an object store cannot rename it",
                hint="use a shared directory for checkpoints that need renamed directories",
            )

    def _check_parent(self, parts: Sequence[str]) -> None:
        name = "/".join(parts)
        if name in self._known:
            return
        for depth in range(len(parts), -1, -1):
            each = "/".join(parts[:depth])
            if each and self._requests.find(each) is not None:
                raise NotADirectory(f"{self._requests.root.at(each)} is a file")
            if self._requests.is_directory(each):
                if depth == len(parts):
                    return
                break
        raise self._requests.root.absent(name)

    def _copy(self, source: str, target: str, *, overwrite: bool) -> FileStatus:
        """Copy a file, without a request that only looks for it. Raises Absent if it does not exist."""
        if overwrite:
            return self._requests.copy(source, target, overwrite=True)
        # A repeated rename finds what it wrote before it could not delete the source. No other file has a unique name.
        own = is_unique(source)
        # Read and write small files here: ``put`` tags them, so that after a lost reply we know whether it succeeded.
        data = self._requests.get_small(source)
        if data is None:
            return self._requests.copy(source, target, overwrite=False, own=own)
        writer = hashlib.sha256(source.encode()).hexdigest()[:24] if own else ""
        return self._requests.put(target, data, overwrite=False, writer=writer)

    # --- deleting -----------------------------------------------------------------------------------------------------

    def delete(self, name: str, *, recursive: bool) -> bool:
        if parts_of(name) and self._requests.find(name) is not None:
            self._requests.delete([name])
            return True
        with self._requests.errors("list", name):
            batches = obstore.list(self._requests.store, name or None, chunk_size=_LISTED_AT_ONCE)
            found = [each["path"] for batch in batches for each in batch]
        if not found:
            return False
        own = [path for path in found if path == _marker(name)]
        inner = [path for path in found if path != _marker(name)]
        if inner and not recursive:
            raise NotEmpty(f"{self._requests.root.at(name)} is not empty")
        known = self._known.copy()  # in one step: other threads add names
        self._known -= {each for each in known if each == name or each.startswith(f"{name}/" if name else "")}
        self._requests.delete(inner)
        self._requests.delete(own)
        return True

    def close(self) -> None:
        """Do nothing: connections end with the process."""


def _marker(name: str) -> str:
    return f"{name}/{DIRECTORY_MARKER}" if name else DIRECTORY_MARKER
