"""Files on this node's own file systems, without the JVM.

A checkpoint has thousands of small files, and one call into the JVM takes longer than copying such a file. To list one
entry of a directory takes several.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from emberkeep.base.errors import Fatal
from emberkeep.base.files.durable import make_directories
from emberkeep.base.files.private import NOT_FOR_ALL
from emberkeep.lifecycle.manifest import SavepointFile

_BUFFER = 1 << 20  # bytes
_LARGE = 1 << 20  # bytes; the disk writes such a file while others are copied
_FILE_URI = re.compile(r"file:(?://)?(/(?!/).*)", re.DOTALL)


def path_on_disk(location: str, *, paths_are_local: bool) -> str | None:
    """Return the local path of a location, read as Hadoop reads it (nothing is unescaped); None if it is not local.

    ``paths_are_local``: true if a location without a scheme is on the local file system.
    """
    if location.startswith("/"):
        return location if paths_are_local else None
    found = _FILE_URI.fullmatch(location)
    return found.group(1) if found else None


def make_private_directory(path: str) -> None:
    """Create a directory that only its owner can use, unless it exists. Raises OSError."""
    parent = Path(path).parent
    if not parent.is_dir():
        make_directories(parent, NOT_FOR_ALL)  # what is copied is synced up to the parent of the savepoint
    try:
        Path(path).mkdir(mode=0o700)
    except FileExistsError:
        if not Path(path).is_dir():
            raise


def names_on_disk(directory: str) -> list[str]:
    """Return the names in a directory; an empty list if it does not exist. Raises OSError."""
    try:
        return os.listdir(directory)  # noqa: PTH208 - names, not paths
    except FileNotFoundError:
        return []


def sizes_on_disk(directory: str) -> dict[str, int]:
    """Return the sizes of all files below a directory, at any depth, by their names relative to it.

    Empty if the directory does not exist. A file that is removed in the meantime is left out. Raises OSError.
    """
    found: dict[str, int] = {}
    ahead = [("", directory)]
    while ahead:
        prefix, path = ahead.pop()
        for name, size in _entries(path):
            if size is None:
                ahead.append((f"{prefix}{name}/", f"{path}/{name}"))
            else:
                found[prefix + name] = size
    return found


def _entries(directory: str) -> Iterator[tuple[str, int | None]]:
    """Yield name and size of each entry; None instead of the size of a directory. Links are followed."""
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                yield entry.name, None if entry.is_dir() else entry.stat().st_size


def exists_on_disk(path: str) -> bool:
    """True if there is a file or a directory. Raises OSError if that cannot be seen."""
    try:
        os.stat(path)  # noqa: PTH116 - Path.exists() hides errors
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def write_on_disk(path: str, data: bytes) -> None:
    """Replace ``path`` with ``data`` atomically and durably, in a directory for its owner only. Raises Fatal."""
    directory, aside = path.rpartition("/")[0] or "/", f"{path}.tmp"
    with _errors_of(path):
        make_private_directory(directory)
        make_directories(Path(directory))  # it exists now: this syncs its name
        with Path(aside).open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(aside).replace(path)
        sync_each([directory])


def delete_on_disk(path: str) -> None:
    """Delete a file durably, or a directory with its content; do nothing if it does not exist. Raises OSError.

    What is deleted after a file does not go before it in a power loss.
    """
    try:
        if Path(path).is_dir() and not Path(path).is_symlink():
            shutil.rmtree(path)
        else:
            Path(path).unlink()
            sync_each([path.rpartition("/")[0] or "/"])
    except FileNotFoundError:
        return


def copy_on_disk(source: str, target: str) -> SavepointFile:
    """Copy a file, replacing ``target``. The checksum covers the bytes that were read.

    A large file is synced. To make small ones durable, the caller syncs the file system once for all of them. Raises
    OSError if ``source`` cannot be opened, Fatal if reading or writing fails later.
    """
    digest, size = hashlib.sha256(), 0
    with Path(source).open("rb", buffering=0) as reading, _errors_of(target), _created(target) as writing:
        while data := _read(reading, source):
            digest.update(data)
            size += len(data)
            _write(writing.fileno(), data)
        if size >= _LARGE:
            os.fsync(writing.fileno())
    return SavepointFile(path=target, size=size, sha256=digest.hexdigest())


def sync_file_system(directory: str) -> bool:
    """Make everything written to the file system of ``directory`` durable. Raises OSError.

    Return False, without doing anything, where the system cannot do this or does not report errors: not Linux, or a
    kernel before 5.8.
    """
    if not _REPORTS_ERRORS:
        return False
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), directory)
    finally:
        os.close(descriptor)
    return True


def sync_each(paths: Iterable[str]) -> None:
    """Make files and directories durable, one after the other. Raises OSError."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def check_on_disk(path: str) -> SavepointFile:
    """Return size and checksum of a file. Raises OSError."""
    with Path(path).open("rb", buffering=0) as reading:
        digest = hashlib.file_digest(reading, "sha256")
        return SavepointFile(path=path, size=reading.tell(), sha256=digest.hexdigest())


def paths_to_sync(root: str, files: Iterable[str]) -> list[str]:
    """Return these files, the directories between them and ``root``, ``root`` and its parent: the innermost first."""
    directories = {root, root.rpartition("/")[0] or "/"}
    paths = list(files)
    for file in paths:
        below = file.rpartition("/")[0]
        while len(below) > len(root) and below not in directories:
            directories.add(below)
            below = below.rpartition("/")[0]
    return [*paths, *sorted(directories, key=len, reverse=True)]


@contextmanager
def _errors_of(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Fatal(f"{path}: {error.strerror or error}", hint="check the file system: space, permissions") from error


def _created(path: str) -> FileIO:
    try:
        return Path(path).open("wb", buffering=0)
    except FileNotFoundError:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return Path(path).open("wb", buffering=0)


def _read(file: FileIO, path: str) -> bytes:
    with _errors_of(path):
        return file.read(_BUFFER)


def _write(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _kernel_reports_errors(system: str, release: str) -> bool:
    """Return whether ``syncfs`` of this kernel returns the errors of earlier writes."""
    numbers = re.match(r"(\d+)\.(\d+)", release)
    return system == "Linux" and numbers is not None and (int(numbers[1]), int(numbers[2])) >= (5, 8)


_REPORTS_ERRORS = _kernel_reports_errors(os.uname().sysname, os.uname().release)
