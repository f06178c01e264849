"""Storage of savepoints as the driver uses it: a directory that Hadoop reaches, or a prefix in an object store.

Directories are accessed through HadoopFiles. Objects pass through files on this node's disk, because the JVM reads the
checkpoint and this Python process has the object store's client.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from emberkeep.base.errors import Fatal
from emberkeep.base.files.private import make_private
from emberkeep.lifecycle.manifest import MANIFEST_NAME, SavepointFile, described
from emberkeep.lifecycle.ports import SavepointObjects
from emberkeep.spark.files.hadoop import HadoopFiles


class SavepointStorage(Protocol):
    """The files of one savepoint, by name relative to its directory or prefix. Results have the name as their path.

    Any number of threads may call the methods, which raise Absent (no such file), RetryLater, Fatal.
    """

    def prepare(self, names: Iterable[str]) -> None:
        """Prepare for saving files with these names: make directories where they are needed."""

    def save(self, source: str, name: str) -> SavepointFile:
        """Copy a checkpoint's file to ``name``, replacing any such file. ``source``: a location that Hadoop accepts.

        The checksum covers the bytes that were read from ``source``.
        """

    def write(self, name: str, data: bytes) -> SavepointFile:
        """Write a small file atomically, replacing any file of that name. The file is durable when this returns."""

    def seal(self, names: Iterable[str]) -> None:
        """Make the files saved under these names survive a power loss."""

    def read(self, name: str) -> bytes:
        """Return the content of a small file."""

    def check(self, name: str) -> SavepointFile:
        """Return size and checksum of the stored file."""

    def fetch(self, name: str, target: str) -> SavepointFile:
        """Copy a file to ``target``, a location that Hadoop accepts. The checksum covers the bytes that were copied."""

    def remove(self) -> None:
        """Delete all files, the manifest first: without a manifest there is no savepoint."""


class SavepointStorages:
    """Opens the storage of a savepoint by its location.

    ``open_objects``: returns the objects at a location; None if the location is a directory. ``staging``: directory on
    this node's disk that only this process uses.
    """

    def __init__(self, open_objects: Callable[[str], SavepointObjects | None], staging: Path) -> None:
        self._open_objects = open_objects
        self._staging = staging

    def at(self, location: str, files: HadoopFiles) -> SavepointStorage:
        """Return the storage at a location, without contacting it. Raises Fatal (the location cannot be used)."""
        objects = self._open_objects(location)
        return DirectoryStorage(location, files) if objects is None else ObjectStorage(objects, files, self._staging)


class DirectoryStorage:
    """A savepoint in a directory of a file system that Hadoop supports: a local path, or a URI such as hdfs:."""

    def __init__(self, location: str, files: HadoopFiles) -> None:
        self._root = location.rstrip("/")
        self._files = files

    def prepare(self, names: Iterable[str]) -> None:
        self._files.make_directories([self._root, *self._directories(names)])

    def save(self, source: str, name: str) -> SavepointFile:
        return _named(name, self._files.copy(source, self._at(name)))

    def write(self, name: str, data: bytes) -> SavepointFile:
        return _named(name, self._files.write(self._at(name), data))

    def seal(self, names: Iterable[str]) -> None:
        self._files.sync_copies(self._root, map(self._at, names))

    def read(self, name: str) -> bytes:
        return self._files.read_bytes(self._at(name))

    def check(self, name: str) -> SavepointFile:
        return _named(name, self._files.check(self._at(name)))

    def fetch(self, name: str, target: str) -> SavepointFile:
        return _named(name, self._files.copy(self._at(name), target))

    def remove(self) -> None:
        self._files.delete(self._at(MANIFEST_NAME))
        self._files.delete(self._root)

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _directories(self, names: Iterable[str]) -> Sequence[str]:
        return sorted({self._at(name).rpartition("/")[0] for name in names})


class ObjectStorage:
    """A savepoint in an object store. An object is durable as soon as it exists, and needs no directory."""

    def __init__(self, objects: SavepointObjects, files: HadoopFiles, staging: Path) -> None:
        self._objects = objects
        self._files = files
        self._staging = staging

    def prepare(self, names: Iterable[str]) -> None:
        del names

    def save(self, source: str, name: str) -> SavepointFile:
        with self._staged() as file:
            saved = self._files.copy(source, f"file:{file}")
            self._objects.put(name, file)
        return _named(name, saved)

    def write(self, name: str, data: bytes) -> SavepointFile:
        self._objects.write(name, data)
        return described(name, data)

    def seal(self, names: Iterable[str]) -> None:
        del names

    def read(self, name: str) -> bytes:
        return b"".join(self._objects.read(name))

    def check(self, name: str) -> SavepointFile:
        digest, size = hashlib.sha256(), 0
        for piece in self._objects.read(name):
            digest.update(piece)
            size += len(piece)
        return SavepointFile(path=name, size=size, sha256=digest.hexdigest())

    def fetch(self, name: str, target: str) -> SavepointFile:
        with self._staged() as file:
            pieces = self._objects.read(name)
            try:
                with file.open("xb") as staged:
                    staged.writelines(pieces)
            except OSError as error:
                raise _no_staging(file, error) from error
            return _named(name, self._files.copy(f"file:{file}", target))

    def remove(self) -> None:
        self._objects.remove(MANIFEST_NAME)

    @contextmanager
    def _staged(self) -> Iterator[Path]:
        """Yield the path for a temporary file, which is deleted afterwards. Raises Fatal."""
        file = self._staging / secrets.token_hex(12)
        try:
            make_private(self._staging)
        except OSError as error:
            raise _no_staging(file, error) from error
        try:
            yield file
        finally:
            file.unlink(missing_ok=True)


def _named(name: str, file: SavepointFile) -> SavepointFile:
    return msgspec.structs.replace(file, path=name)


def _no_staging(file: Path, error: OSError) -> Fatal:
    return Fatal(f"cannot write {file}: {error.strerror or error}", hint="check that disk: space and permissions")
