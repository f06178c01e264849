"""Class-data archives: Spark's classes, parsed and linked once per installation, then mapped into every JVM.

A Spark JVM spends most of its start-up loading thousands of classes from jars. The JVM itself checks that an archive
matches the JVM and the jars on its class path, and starts without the archive if not. A truncated archive would crash
the JVM, so this module records and checks the archive's size, and the JVM's options make it verify checksums.

A build works in a directory of its own beside the archives. Whatever a killed build leaves there, the next one removes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from emberkeep.base.configuration.layout import home_directory
from emberkeep.base.errors import Absent, Fatal, Unavailable
from emberkeep.base.files.durable import read_record, sync_directory, write_record
from emberkeep.base.files.private import make_private
from emberkeep.base.import_path import with_safe_path
from emberkeep.spark.distribution import spark_home
from emberkeep.spark.errors import ClassArchiveBusy, ClassArchiveFailed
from emberkeep.spark.java import JavaRuntime, jvm_open_options

BUILD_SECONDS = 600.0
_RECORD_KIND = "class-archive"
_RECORD_VERSION = 1
_KEPT = 3  # archives in all, including those of other Java or Spark versions, which may still be in use
_NEEDED_MB = 512  # free space for an archive (200 MB) and the training run's files
_UNFINISHED = ".unfinished-"
_LAST_WRITES_SECONDS = 5.0


def default_directory(environ: Mapping[str, str]) -> Path:
    """Return the archives' directory in the user's cache. An archive is executable code, so users never share one.

    As the XDG specification says, a relative path in its variable is ignored: each process would take it for another.
    """
    base = environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else home_directory(environ) / ".cache") / "emberkeep" / "class-archives"


def find_class_archive(java: JavaRuntime, directory: Path, environ: Mapping[str, str]) -> Path | None:
    """Return the archive for this Java and this Spark; None unless it is complete and only this user can write it."""
    path = _archive_path(java, directory, environ)
    try:
        size = int(read_record(_record_path(path), _RECORD_KIND, _RECORD_VERSION))
        status = path.stat()
    except (Absent, Unavailable, Fatal, FileNotFoundError, ValueError):
        return None
    private = status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return path if private and status.st_size == size else None


def build_class_archive(
    java: JavaRuntime,
    directory: Path,
    environ: Mapping[str, str],
    *,
    waits: bool = True,
    seconds: float = BUILD_SECONDS,
) -> Path:
    """Return the archive; build it first if needed (30 s on one core, 150 MB on disk). One process builds at a time.

    ``seconds`` limits the build itself, not the wait for another process that builds.

    Raises ClassArchiveFailed; jobs also run without an archive. Raises ClassArchiveBusy if another process builds and
    this call must not wait for it.
    """
    try:
        make_private(directory)
        with _building(directory, waits=waits):
            found = find_class_archive(java, directory, environ)
            if found is not None:
                return found
            _remove_unfinished(directory)
            _check_space(directory)
            return _build(java, directory, environ, seconds)
    except OSError as error:
        raise ClassArchiveFailed(
            f"cannot write the class archive to {directory}: {error}", hint="check that directory"
        ) from error


def is_being_built(directory: Path) -> bool:
    """True if a process is building an archive there."""
    try:
        with _building(directory, waits=False):
            return False
    except ClassArchiveBusy:
        return True
    except OSError:  # then this user cannot build one there either
        return False


def discard_unfinished(directory: Path, pid: int) -> None:
    """Remove what the build by the process ``pid`` has left, which was killed but need not have ended yet."""
    _remove_unfinished(directory, f"{pid}-")


def _remove_unfinished(directory: Path, whose: str = "") -> None:
    for left in directory.glob(f"{_UNFINISHED}{whose}*"):
        shutil.rmtree(left, ignore_errors=True)


def _check_space(directory: Path) -> None:
    free = shutil.disk_usage(directory).free // 1024**2
    if free < _NEEDED_MB:
        raise ClassArchiveFailed(
            f"the class archive needs {_NEEDED_MB} MiB of disk space: {free} MiB are free in {directory}",
            hint="free some space there, or set XDG_CACHE_HOME to a directory on another disk",
        )


def _build(java: JavaRuntime, directory: Path, environ: Mapping[str, str], seconds: float = BUILD_SECONDS) -> Path:
    path = _archive_path(java, directory, environ)
    # The name is new each time: the JVM of a build that was killed may still write under the old one.
    place = Path(tempfile.mkdtemp(prefix=f"{_UNFINISHED}{os.getpid()}-", dir=directory))
    try:
        unfinished = place / path.name
        _train(unfinished, java, environ, seconds)
        _publish(unfinished, path)
    finally:
        remove_place(place)
    _remove_old(directory, path)
    return path


def remove_place(place: Path) -> None:
    """Remove the directory of a build, although its JVM, which was killed, may write for a moment longer."""
    deadline = time.monotonic() + _LAST_WRITES_SECONDS
    while True:
        shutil.rmtree(place, ignore_errors=True)
        if not place.exists() or time.monotonic() > deadline:
            return
        time.sleep(0.02)


def _train(archive: Path, java: JavaRuntime, environ: Mapping[str, str], seconds: float) -> None:
    """Let a training run write the archive. However this ends, no process of that run is left."""
    module = "emberkeep.spark.jvm.class_archive_training"
    with subprocess.Popen(
        [sys.executable, "-P", "-m", module, str(archive), str(os.getpid())],
        env={**with_safe_path(environ, None)[0], "JAVA_HOME": str(java.executable.resolve().parent.parent)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        process_group=0,
    ) as process:
        try:
            _, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise ClassArchiveFailed(f"the training run took longer than {seconds:.0f} s") from error
        finally:
            if process.returncode is None:  # not reaped, so its pid still names its group
                os.killpg(process.pid, signal.SIGKILL)  # and its JVM, which would go on to write the archive
    if process.returncode != 0 or not archive.exists():
        said = [line for line in errors.splitlines() if line.strip() and not line[0].isspace()]
        last = said[-1] if said else "it printed nothing"
        raise ClassArchiveFailed(f"the training run ended with exit code {process.returncode}: {last}")


def _publish(unfinished: Path, path: Path) -> None:
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
    size = unfinished.stat().st_size
    unfinished.rename(path)
    sync_directory(path.parent)
    write_record(_record_path(path), _RECORD_KIND, _RECORD_VERSION, str(size).encode())


def _remove_old(directory: Path, current: Path) -> None:
    others = [path for path in directory.glob("spark-*.jsa") if path != current]
    others.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in others[_KEPT - 1 :]:
        _record_path(path).unlink(missing_ok=True)
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _building(directory: Path, *, waits: bool) -> Iterator[None]:
    """Hold the lock of the process that builds. Raises ClassArchiveBusy, OSError."""
    descriptor = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ClassArchiveBusy(f"another process is building the class archive in {directory}") from None
        yield
    finally:
        os.close(descriptor)


def _record_path(archive: Path) -> Path:
    return archive.with_suffix(".record")


def _archive_path(java: JavaRuntime, directory: Path, environ: Mapping[str, str]) -> Path:
    digest = hashlib.sha256()
    executable = java.executable.resolve()
    modules = executable.parent.parent / "lib" / "modules"
    jars = spark_home(environ) / "jars"
    for path in (executable, *filter(Path.exists, [modules]), *sorted(jars.iterdir())):
        status = path.stat()
        digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    digest.update("\0".join(jvm_open_options()).encode())
    return directory / f"spark-{digest.hexdigest()[:24]}.jsa"
