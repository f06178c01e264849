"""Tries in a directory what recovery relies on. Leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from emberkeep.adapters.blocking.patience import FilePatience
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.files.durable import sync_directory
from emberkeep.base.files.operations import SYSTEM_FILES, FileOps
from emberkeep.diagnosis.machine import DiskFacts
from emberkeep.diagnosis.storage import Step, StorageFacts

_SECONDS = 20.0
_OLD, _NEW = b"old", b"new content of the file" * 1000


def try_storage(path: Path, purpose: str, files: FileOps = SYSTEM_FILES) -> StorageFacts:
    """Try all steps in a new directory below ``path``, and remove it. Blocks for 20 s at most."""
    reached = [Step.CREATE]  # the last step that was begun; it has failed if there is an error or no reply

    def look() -> StorageFacts:
        if not path.exists():
            is_writable = os.access(_nearest_existing(path), os.W_OK)
            return StorageFacts(path=str(path), purpose=purpose, missing=True, parent_writable=is_writable)
        kind = _file_system(path)
        with _working_directory(path) as directory:
            for step, work in _steps(directory, files):
                reached.append(step)
                work()
        return StorageFacts(path=str(path), purpose=purpose, file_system=kind)

    try:
        return FilePatience(_SECONDS).run(path, look)
    except (EmberkeepError, OSError) as error:
        return StorageFacts(path=str(path), purpose=purpose, failed=reached[-1], reason=_reason(error))


def read_disk(path: Path, purpose: str) -> DiskFacts:
    """Return the free bytes of the file system that holds ``path``, or its nearest directory that exists."""
    where = f"{path} ({purpose})"

    def look() -> int:
        return shutil.disk_usage(_nearest_existing(path)).free

    try:
        return DiskFacts(where=where, free=FilePatience(_SECONDS).run(path, look))
    except (EmberkeepError, OSError) as error:
        return DiskFacts(where=where, free=None, problem=_reason(error))


def _nearest_existing(path: Path) -> Path:
    return next(each for each in (path, *path.parents) if each.exists())


def _reason(error: EmberkeepError | OSError) -> str:
    return error.message if isinstance(error, EmberkeepError) else error.strerror or str(error)


@contextlib.contextmanager
def _working_directory(path: Path) -> Iterator[Path]:
    directory = path / f".emberkeep-doctor-{secrets.token_hex(6)}"
    directory.mkdir(mode=0o700)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _steps(directory: Path, files: FileOps) -> Iterator[tuple[Step, Callable[[], None]]]:
    """Yield each step with what does it. That raises OSError if the step does not work."""
    file, other = directory / "file", directory / "other"

    def create() -> None:
        for path, data in ((file, _OLD), (other, _NEW)):
            descriptor = files.create(str(path))
            try:
                files.write(descriptor, data)
            finally:
                os.close(descriptor)

    def sync() -> None:
        descriptor = os.open(other, os.O_RDONLY)
        try:
            files.sync(descriptor)
        finally:
            os.close(descriptor)

    def read_back() -> None:
        if file.read_bytes() != _NEW:
            raise OSError("the content differs from what was written")

    def list_names() -> None:
        names = sorted(each.name for each in directory.iterdir())
        if names != ["file"]:
            raise OSError(f"{names} are listed, not only 'file'")

    def create_once() -> None:
        try:
            os.close(files.create(str(file)))
        except FileExistsError:
            return
        raise OSError("a second file was created under the name")

    def delete() -> None:
        files.unlink(str(file))
        sync_directory(directory, files)
        if any(directory.iterdir()):
            raise OSError("the file is still listed")

    yield Step.CREATE, create
    yield Step.SYNC, sync
    yield Step.REPLACE, lambda: files.rename(str(other), str(file))
    yield Step.SYNC_DIRECTORY, lambda: sync_directory(directory, files)
    yield Step.READ_BACK, read_back
    yield Step.LIST, list_names
    yield Step.CREATE_ONCE, create_once
    yield Step.DELETE, delete


def _file_system(path: Path) -> str:
    """Return the type of the file system that holds ``path``; "" if unknown."""
    real = path.resolve()
    mounts = [(Path(each.mountpoint), each.fstype) for each in psutil.disk_partitions(all=True)]
    holding = [(len(mount.parts), kind) for mount, kind in mounts if real.is_relative_to(mount)]
    return max(holding, default=(0, ""))[1]
