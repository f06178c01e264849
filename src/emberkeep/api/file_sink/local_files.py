"""The sink's files on a file system that this process has mounted."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from emberkeep.api.file_sink.ports import ListedFile
from emberkeep.base.errors import Absent, Conflict, RetryLater
from emberkeep.base.files.durable import give_new_name, sync_directory
from emberkeep.base.files.operations import SYSTEM_FILES


class LocalFiles:
    """Implements SinkFiles. A created file appears complete and only once; a move does not overwrite."""

    def read(self, path: str) -> bytes:
        with _explained(path):
            try:
                return Path(path).read_bytes()
            except FileNotFoundError:
                raise Absent(f"{path} does not exist") from None

    def create(self, path: str, data: bytes) -> None:
        target = Path(path)
        temporary = str(target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp"))
        with _explained(path):
            _make_directories(target.parent)
            descriptor = SYSTEM_FILES.create(temporary, 0o644)
            try:
                SYSTEM_FILES.write(descriptor, data)
                SYSTEM_FILES.sync(descriptor)
                give_new_name(temporary, path, SYSTEM_FILES)
            except FileExistsError:
                raise Conflict(f"{path} exists already") from None
            finally:
                os.close(descriptor)
                with suppress(FileNotFoundError):
                    SYSTEM_FILES.unlink(temporary)
            sync_directory(target.parent)

    def names(self, directory: str) -> list[str]:
        with _explained(directory):
            try:
                return sorted(os.listdir(directory))  # noqa: PTH208 - names, not paths
            except FileNotFoundError:
                return []

    def files(self, directory: str) -> list[ListedFile]:
        with _explained(directory):
            found = [
                ListedFile(path=os.path.relpath(path, directory), size=Path(path).stat().st_size)
                for place, _, names in os.walk(directory, onerror=_raise)
                for path in (f"{place}/{name}" for name in names)
            ]
            return sorted(found, key=lambda file: file.path)

    def move(self, source: str, target: str) -> None:
        with _explained(target):
            _make_directories(Path(target).parent)
            with suppress(FileNotFoundError):
                self._move_new(source, target)
            sync_directory(Path(target).parent)

    def _move_new(self, source: str, target: str) -> None:
        try:
            SYSTEM_FILES.rename_new(source, target)
        except FileExistsError:
            pass
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOSYS):
                raise
            with suppress(FileExistsError):
                SYSTEM_FILES.link(source, target)
        else:
            return
        # The disk may lose the old name first, and after a power loss the file would have neither.
        sync_directory(Path(target).parent)
        SYSTEM_FILES.unlink(source)

    def keep(self, paths: Sequence[str], root: str) -> None:
        with _explained(paths[0] if paths else ""):
            for path in paths:
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    SYSTEM_FILES.sync(descriptor)
                finally:
                    os.close(descriptor)
            # The batch's directory and those of its partitions are new: their names must be synced, too.
            above = {parent for path in paths for parent in Path(path).parents}
            for directory in sorted(parent for parent in above if parent.is_relative_to(root)):
                sync_directory(directory)

    def delete(self, path: str) -> None:
        with _explained(path):
            target = Path(path)
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target, ignore_errors=True)
            else:
                target.unlink(missing_ok=True)
                # Spark's local file system keeps a checksum file beside each file.
                target.with_name(f".{target.name}.crc").unlink(missing_ok=True)


def _make_directories(directory: Path) -> None:
    if not directory.is_dir():
        _make_directories(directory.parent)
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)


def _raise(error: OSError) -> NoReturn:
    raise error


@contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RetryLater(
            f"{error.filename or path}: {error.strerror or error}", hint="check free space and permissions there"
        ) from error
