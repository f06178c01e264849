"""Private directories of ``emberkeep run``: created, kept for their logs, and removed when no process uses them.

A directory is in use while the command, or the cluster that it started, holds the lock on the file ``lock`` in it. A
command that is killed removes nothing. So each later run looks for unused directories, ends the processes that still
run there, and removes everything except what a user may need: logs for LOGS_KEPT, savepoints permanently. If such a
directory's shared storage is unavailable, later runs try again to remove the data there, for up to STORAGE_AWAITED.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from emberkeep.base.cluster_identity import IDENTITY_FILE
from emberkeep.base.errors import Fatal
from emberkeep.base.files.private import make_private
from emberkeep.client.clusters.leftovers import kill_below
from emberkeep.client.clusters.private_storage import PrivateStorage

LOGS_KEPT = 24 * 3600.0  # seconds, for a run whose command was killed
STORAGE_AWAITED = 30 * 24 * 3600.0
_PREFIX = "run-"
_LOCK, _ENDED = "lock", "ended"
_LOGS = ("local.out", "local.err", "jobmanager/logs", "taskmanagers/*/logs")
_SAVEPOINTS = "storage/savepoints"


def make_run_directory(parent: Path) -> tuple[Path, int]:
    """Make and lock a directory (0700). Return its path and its lock.

    The directory is below ``parent``, or below the system's temporary directory if that fails. Raises Fatal.
    """
    try:
        make_private(parent)
        while True:
            directory = parent / f"{_PREFIX}{secrets.token_hex(4)}"
            directory.mkdir(mode=0o700)
            lock = _hold_new(directory)
            if lock is not None:  # else another run mistook the directory for unused and removed it
                return directory, lock
    except OSError:
        try:
            directory = Path(tempfile.mkdtemp(prefix="emberkeep-"))
            return directory, _locked(directory)
        except OSError as error:
            raise Fatal(
                f"cannot make a directory below {parent} or the temporary directory: {error.strerror}",
                hint="name another with -D emberkeep.state-dir=PATH",
            ) from error


def _hold_new(directory: Path) -> int | None:
    """Return the lock of a new directory; None if the directory has been removed."""
    try:
        lock = _locked(directory)
    except FileNotFoundError:
        return None
    if _is_lock_of(directory, lock):
        return lock
    os.close(lock)
    return None


def _locked(directory: Path) -> int:
    """Create the lock file and wait for its lock. Raises OSError."""
    lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _is_lock_of(directory: Path, lock: int) -> bool:
    """True if the locked file is still the directory's lock file, and was not removed during the wait for the lock."""
    try:
        return os.path.samestat((directory / _LOCK).stat(), os.fstat(lock))
    except FileNotFoundError:
        return False


def keep_logs(directory: Path) -> Path:
    """Move a run's logs to a directory of their own, which is never removed. Return its path. Raises OSError."""
    target = directory.with_name(f"logs-of-{directory.name}")
    target.mkdir(mode=0o700)
    for path in _found(directory, _LOGS):
        place = target / path.relative_to(directory)
        make_private(place.parent)
        path.rename(place)
    return target


def clear_dead_runs(parent: Path, storage: PrivateStorage, now: float) -> list[Path]:
    """Remove the runs that no process uses any longer, but their logs only after LOGS_KEPT. Blocks.

    ``now`` is in seconds since the epoch.

    Returns the directories that have logs and were not known as unused before.
    """
    found = []
    for directory in sorted(parent.glob(f"{_PREFIX}*")):
        with _unused(directory) as is_unused:
            if is_unused and not kill_below([directory]):
                is_new = not (directory / _ENDED).exists()
                with contextlib.suppress(OSError):  # the next run tries again
                    remove_run(directory, storage, now, logs_kept=LOGS_KEPT)
                if is_new and _found(directory, _LOGS):
                    found.append(directory)
    return found


@contextlib.contextmanager
def _unused(directory: Path) -> Iterator[bool]:
    """Lock a directory and yield True. Yields False if another process holds the lock or has removed the directory."""
    try:
        lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        with contextlib.suppress(OSError):
            directory.rmdir()  # succeeds if it is empty: its command was killed before it created the lock
        yield False
        return
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_held = _is_lock_of(directory, lock)
        except OSError:
            is_held = False
        yield is_held
    finally:
        os.close(lock)


def remove_run(directory: Path, storage: PrivateStorage, now: float, *, logs_kept: float = 0.0) -> None:
    """Remove what a run has left. Its processes must have ended, and the caller must hold its lock.

    Savepoints stay, and logs stay for ``logs_kept`` seconds after the end was first noticed. While the storage is
    unavailable, the directory keeps enough for the next run to try again.
    """
    age = now - _ended_at(directory, now)
    again = not storage.remove(directory) and age < STORAGE_AWAITED
    logs = _found(directory, _LOGS) if age < logs_kept else []
    savepoints = _found(directory, (_SAVEPOINTS,))
    if logs or again:
        names = (_LOCK, _ENDED, IDENTITY_FILE) if again else (_LOCK, _ENDED)
        _remove_all_but(directory, {*logs, *savepoints, *(directory / name for name in names)})
    elif savepoints:
        _remove_all_but(directory, set(savepoints))
    else:
        shutil.rmtree(directory, ignore_errors=True)


def _ended_at(directory: Path, now: float) -> float:
    """Return the time at which the run's end was first noticed: ``now`` on the first call."""
    path = directory / _ENDED
    with contextlib.suppress(OSError):
        if path.exists():
            return path.stat().st_mtime
        path.touch(mode=0o600)
        os.utime(path, (now, now))
    return now


def savepoints_of(directory: Path) -> Path | None:
    """Return the directory of the run's savepoints, which stay after the run; None if there are none."""
    return next(iter(_found(directory, (_SAVEPOINTS,))), None)


def _found(directory: Path, patterns: Iterable[str]) -> list[Path]:
    """Return the paths that match the patterns, except empty directories."""
    paths = (path for pattern in patterns for path in sorted(directory.glob(pattern)))
    return [path for path in paths if not path.is_dir() or any(path.iterdir())]


def _remove_all_but(directory: Path, kept: Collection[Path]) -> None:
    for path in directory.iterdir():
        if path in kept:
            continue
        if any(path in one.parents for one in kept):
            _remove_all_but(path, kept)
        elif path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()
