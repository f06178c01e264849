"""Files of checkpoints and savepoints, on any file system that Hadoop in the driver's JVM can access.

Files on this node's disks are read and written without the JVM, in which each of them would take several calls. For
them, ``write`` syncs the file and its directory, and ``sync_copies`` makes copies durable. Log entries are not synced,
like Spark's own. On other file systems, a file counts as durable once it is closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from emberkeep.base.errors import Absent, Conflict, Fatal
from emberkeep.lifecycle.manifest import SavepointFile, described
from emberkeep.spark.files.disk import (
    check_on_disk,
    copy_on_disk,
    delete_on_disk,
    exists_on_disk,
    make_private_directory,
    names_on_disk,
    path_on_disk,
    paths_to_sync,
    sizes_on_disk,
    sync_each,
    sync_file_system,
    write_on_disk,
)
from emberkeep.spark.files.hadoop_classes import HadoopClasses

_BUFFER = 1 << 17  # bytes


@dataclass(frozen=True)
class FoundFile:
    """A file in a listing. ``name``: relative to the listed directory. ``size``: in bytes."""

    name: str
    size: int


class HadoopFiles:
    """Access to files through Hadoop. Locations are URIs or paths in Spark's notation.

    Every method raises Absent (no such file), Conflict (the file exists) or Fatal (any other error from Hadoop). Any
    number of threads may use it.
    """

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    @cached_property
    def _hadoop(self) -> HadoopClasses:
        return HadoopClasses(self._spark)

    def below(self, directory: str) -> list[FoundFile]:
        """Return all files below a directory, at any depth; an empty list if the directory does not exist."""
        on_disk = self.path_on_disk(directory)
        with _translated(directory):
            if on_disk is not None:
                return [FoundFile(name, size) for name, size in sizes_on_disk(on_disk).items()]
            path, system = self._hadoop.reach(directory)
            if not system.exists(path):
                return []
            found, ahead = [], [("", path)]
            while ahead:
                prefix, directory_path = ahead.pop()
                for status in system.listStatus(directory_path):
                    name = prefix + str(status.getPath().getName())
                    if status.isDirectory():
                        ahead.append((f"{name}/", status.getPath()))
                    else:
                        found.append(FoundFile(name, int(status.getLen())))
            return found

    def numbered(self, directory: str) -> list[int]:
        """Return the names in a directory that are numbers, in ascending order; an empty list if it does not exist."""
        on_disk = self.path_on_disk(directory)
        with _translated(directory):
            names = self._names(directory) if on_disk is None else names_on_disk(on_disk)
        return sorted(int(name) for name in names if name.isdecimal())

    def _names(self, directory: str) -> list[str]:
        path, system = self._hadoop.reach(directory)
        if not system.exists(path):
            return []
        return [str(status.getPath().getName()) for status in system.listStatus(path)]

    def exists(self, location: str) -> bool:
        on_disk = self.path_on_disk(location)
        with _translated(location):
            if on_disk is not None:
                return exists_on_disk(on_disk)
            path, system = self._hadoop.reach(location)
            return bool(system.exists(path))

    def read_text(self, location: str) -> str:
        return self.read_bytes(location).decode(errors="replace")

    def read_bytes(self, location: str) -> bytes:
        """Return the content of a small file."""
        on_disk = self.path_on_disk(location)
        with _translated(location):
            if on_disk is not None:
                return Path(on_disk).read_bytes()
            path, system = self._hadoop.reach(location)
            stream = system.open(path)
            try:
                return bytes(self._hadoop.text.toByteArray(stream))
            finally:
                stream.close()

    def read_zip_entry(self, location: str, entry: str) -> str:
        """Return the text of one entry of a ZIP file. Raises Absent if the file has no such entry."""
        with _translated(location):
            path, system = self._hadoop.reach(location)
            stream = self._hadoop.zip(system.open(path))
            try:
                while (found := stream.getNextEntry()) is not None:
                    if found.getName() == entry:
                        return str(self._hadoop.text.toString(stream, "UTF-8"))
            finally:
                stream.close()
        raise Absent(f"{location} has no entry {entry!r}")

    def add_log_entry(self, location: str, text: str, *, overwrite: bool = False) -> None:
        """Write a log entry as Spark does: the whole file appears at once, or not at all.

        Raises Conflict if the entry exists and ``overwrite`` is false.
        """
        with _translated(location):
            stream = self._hadoop.atomic_stream(location, overwrite=overwrite)
            try:
                stream.write(text.encode())
            except BaseException:
                stream.cancel()
                raise
            stream.close()

    def write(self, location: str, data: bytes) -> SavepointFile:
        """Write a small file to ``location``, replacing an existing one. The result's path is ``location``.

        The file is written under a temporary name and renamed. On the local file system, the rename replaces an
        existing file. Elsewhere Hadoop's rename does not: the existing file is deleted just before the rename, so a
        crash in between leaves no file.
        """
        on_disk = self.path_on_disk(location)
        with _translated(location):
            if on_disk is None:
                self._write(location, data)
            else:
                write_on_disk(on_disk, data)
        return described(location, data)

    def _write(self, location: str, data: bytes) -> None:
        aside = f"{location}.tmp"
        path, system = self._hadoop.reach(aside)
        if str(system.getUri().getScheme()) == "file":  # a location in a form that only Hadoop understands
            write_on_disk(str(system.makeQualified(self._hadoop.path(location)).toUri().getPath()), data)
            return
        self._make(system, path.getParent())
        stream = system.create(path, True)
        try:
            stream.write(data)
        finally:
            stream.close()
        target = self._hadoop.path(location)
        system.delete(target, False)
        if not system.rename(path, target):
            raise Fatal(f"cannot rename {aside} to {location}", hint="check the permissions there")

    def copy(self, source: str, target: str) -> SavepointFile:
        """Copy a file to ``target``, replacing an existing one. The result's path is ``target``.

        The checksum covers the bytes that were read. A power loss may remove the copy until ``sync_copies``.
        """
        read, written = self.path_on_disk(source), self.path_on_disk(target)
        with _translated(source):
            if read is not None and written is not None:
                return msgspec.structs.replace(copy_on_disk(read, written), path=target)
            source_path, source_system = self._hadoop.reach(source)
            digest = self._hadoop.digest.getInstance("SHA-256")
            reading = self._hadoop.digest_stream(source_system.open(source_path), digest)
            try:
                size = self._write_all(reading, target)
            finally:
                reading.close()
            return SavepointFile(path=target, size=size, sha256=bytes(digest.digest()).hex())

    def _write_all(self, reading: Any, target: str) -> int:
        with _translated(target):
            path, system = self._hadoop.reach(target)
            writing = system.create(path, True)
            try:
                self._hadoop.io.copyBytes(reading, writing, _BUFFER, False)
                size = int(writing.getPos())
            finally:
                writing.close()
            return size

    def check(self, location: str) -> SavepointFile:
        """Return size and checksum of a file."""
        with _translated(location):
            on_disk = self.path_on_disk(location)
            if on_disk is not None:
                return msgspec.structs.replace(check_on_disk(on_disk), path=location)
            path, system = self._hadoop.reach(location)
            size = int(system.getFileStatus(path).getLen())
            digest = self._hadoop.digest.getInstance("SHA-256")
            reading = self._hadoop.digest_stream(system.open(path), digest)
            try:
                self._hadoop.io.copyBytes(reading, self._hadoop.discard(), _BUFFER, False)
            finally:
                reading.close()
            return SavepointFile(path=location, size=size, sha256=bytes(digest.digest()).hex())

    def make_directories(self, directories: Iterable[str]) -> None:
        """Create directories that only their owner can use. Missing parents get the usual permissions."""
        for directory in directories:
            on_disk = self.path_on_disk(directory)
            with _translated(directory):
                if on_disk is not None:
                    make_private_directory(on_disk)  # Hadoop starts a process for the permissions of each
                    continue
                path, system = self._hadoop.reach(directory)
                if not self._make(system, path):
                    raise Fatal(f"cannot create directory {directory}", hint="check the permissions there")

    def _make(self, system: Any, path: Any) -> bool:
        """Create a private directory. Hadoop's default, whatever this process's umask, is readable by all users."""
        return bool(system.mkdirs(path, self._hadoop.private))

    def sync_copies(self, root: str, files: Iterable[str]) -> None:
        """Make copies at these locations below ``root``, and the directories in between, survive a power loss."""
        directory = self.path_on_disk(root)
        if directory is None:
            return
        with _translated(root):
            if not sync_file_system(directory):
                sync_each(paths_to_sync(directory, [self.path_on_disk(file) or file for file in files]))

    def delete(self, location: str) -> None:
        """Delete a file, or a directory with its content; do nothing if it does not exist."""
        on_disk = self.path_on_disk(location)
        with _translated(location):
            if on_disk is not None:
                delete_on_disk(on_disk)
                return
            path, system = self._hadoop.reach(location)
            system.delete(path, True)

    def is_directory(self, location: str) -> bool:
        on_disk = self.path_on_disk(location)
        with _translated(location):
            if on_disk is not None:
                return exists_on_disk(on_disk) and Path(on_disk).is_dir()
            path, system = self._hadoop.reach(location)
            return bool(system.exists(path) and system.getFileStatus(path).isDirectory())

    def path_on_disk(self, location: str) -> str | None:
        """Return the local path of a location; None if it is not on this node's file systems."""
        if not location.startswith("/"):
            return path_on_disk(location, paths_are_local=False)
        with _translated(location):
            return path_on_disk(location, paths_are_local=self._hadoop.paths_are_local)


@contextmanager
def _translated(location: str) -> Iterator[None]:
    """Translate exceptions from Hadoop and Py4J into EmberkeepErrors."""
    from py4j.protocol import Py4JError, Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        java = error.java_exception
        name, text = str(java.getClass().getSimpleName()), str(java.getMessage() or java.toString())
        if name in ("FileNotFoundException", "NoSuchFileException"):
            raise Absent(f"{location}: {text}") from error
        if name == "FileAlreadyExistsException":
            raise Conflict(f"{location} exists already: {text}") from error
        raise Fatal(f"{location}: {name}: {text}", hint="check the file system: space, permissions, address") from error
    except FileNotFoundError as error:
        raise Absent(f"{location} does not exist") from error
    except (Py4JError, OSError) as error:
        raise Fatal(f"{location}: {error}", hint="check the file system: space, permissions, address") from error
