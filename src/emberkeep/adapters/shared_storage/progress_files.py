"""Files with a job's progress, such as its queries' history, in the job's directory of default checkpoints.

Each attempt writes a file of its own, named by its number, and removes the files of earlier attempts, except those that
a newer release has written. The file with the highest number counts. So an attempt that does not know that it is over
harms nothing.

The directory belongs to the user of the job, who may have put anything there.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import structlog

from emberkeep.base.errors import Damaged, Fatal, NewerFormat
from emberkeep.base.files.durable import record_version, sync_directory, write_file
from emberkeep.base.files.errors import cannot_read, is_directory
from emberkeep.base.files.hostile import read_bytes
from emberkeep.jobs.progress.encoding import KIND, VERSION, decode_progress, encode_progress
from emberkeep.jobs.progress.kept_progress import NOTHING_KEPT, KeptProgress

log = structlog.get_logger(__name__)

PROGRESS = "_emberkeep_progress"
_NAME = re.compile(r"([0-9]{1,9})\.record")
_HEADER_BYTES = 128
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def read_progress(root: Path, *, before: int | None = None) -> KeptProgress:
    """Return the newest readable progress of a job; nothing if there is none.

    ``root``: the directory with the job's default checkpoints. ``before``: only of attempts with a lower number. A file
    that is damaged, or that a newer release has written, is logged and passed over. Raises Unavailable.
    """
    with _opened(root) as directory:
        if directory is None:
            return NOTHING_KEPT
        try:
            attempts = _attempts(directory)
        except OSError as error:
            raise cannot_read(root / PROGRESS, error) from error
        for attempt in sorted(attempts, reverse=True):
            if before is not None and attempt >= before:
                continue
            try:
                return decode_progress(read_bytes(directory / _name(attempt)), where=str(root / PROGRESS))
            except FileNotFoundError:
                continue  # a newer attempt has just removed it
            except (Damaged, NewerFormat, Fatal) as error:
                log.warning("a progress history cannot be used", root=str(root), attempt=attempt, reason=str(error))
            except OSError as error:
                raise cannot_read(root / PROGRESS, error) from error
    return NOTHING_KEPT


def write_progress(root: Path, attempt: int, kept: KeptProgress) -> None:
    """Replace what an attempt keeps, then remove the files of earlier attempts. Raises Fatal.

    Creates ``root``, but not its parent.
    """
    directory = root / PROGRESS
    path = directory / _name(attempt)
    try:
        if not path.exists():  # the attempt's first write
            _make(root)
            _make(directory)
        write_file(path, encode_progress(kept))
        for earlier in _attempts(directory):
            if earlier < attempt and not _is_newer(directory / _name(earlier)):
                with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                    (directory / _name(earlier)).unlink()
    except OSError as error:
        raise Fatal(
            f"cannot write {directory}: {error.strerror or error}",
            hint="check the free space and the permissions of that directory",
        ) from error


def _is_newer(path: Path) -> bool:
    """True if a newer release has written a file, or if that cannot be known now: then the file stays."""
    try:
        found = record_version(read_bytes(path, _HEADER_BYTES))
    except (FileNotFoundError, Damaged):
        return False
    except OSError:
        return True
    return found is not None and found[0] == KIND and found[1] > VERSION


def _make(directory: Path) -> None:
    """Make a directory whose parent exists, so that its name survives a power failure. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    with contextlib.suppress(PermissionError):  # the parent may be passed, and not read
        sync_directory(directory.parent)


@contextlib.contextmanager
def _opened(root: Path) -> Iterator[Path | None]:
    """Yield a path that names this directory even if somebody replaces it; None if there is no such directory."""
    try:
        descriptor = os.open(root / PROGRESS, _FLAGS)
    except NotADirectoryError:  # the user has put something else there
        yield None
        return
    except OSError as error:
        if isinstance(error, FileNotFoundError) and is_directory(root.parent):
            yield None
            return
        raise cannot_read(root / PROGRESS, error) from error
    try:
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _attempts(directory: Path) -> list[int]:
    return [int(match[1]) for name in os.listdir(directory) if (match := _NAME.fullmatch(name))]  # noqa: PTH208


def _name(attempt: int) -> str:
    return f"{attempt}.record"
