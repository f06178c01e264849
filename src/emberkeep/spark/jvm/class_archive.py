"""Class-data archives: Spark's classes, parsed and linked once per installation, then mapped into every JVM.

A Spark JVM spends most of its start-up loading thousands of classes from jars. The JVM itself checks that an archive
matches the JVM and the jars on its class path, and starts without the archive if not. A truncated archive would crash
the JVM, so this module records and checks the archive's size, and the JVM's options make it verify checksums.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from emberkeep.base.errors import Absent, Fatal, Unavailable
from emberkeep.base.files.durable import read_record, sync_directory, write_record
from emberkeep.base.import_path import with_safe_path
from emberkeep.spark.distribution import spark_home
from emberkeep.spark.errors import ClassArchiveFailed
from emberkeep.spark.java import JavaRuntime, jvm_open_options

BUILD_SECONDS = 600.0
_RECORD_KIND = "class-archive"
_RECORD_VERSION = 1
_KEPT = 3  # archives in all, including those of other Java or Spark versions, which may still be in use


def default_directory(environ: Mapping[str, str]) -> Path:
    """Return the archives' directory in the user's cache. An archive is executable code, so users never share one."""
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "emberkeep" / "class-archives"


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


def build_class_archive(java: JavaRuntime, directory: Path, environ: Mapping[str, str]) -> Path:
    """Return the archive; build it first if needed (30 s on one core, 150 MB on disk). One process builds at a time.

    Raises ClassArchiveFailed; jobs also run without an archive.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _building(directory):
            found = find_class_archive(java, directory, environ)
            return found if found is not None else _build(java, directory, environ)
    except OSError as error:
        raise ClassArchiveFailed(
            f"cannot write the class archive to {directory}: {error}", hint="check that directory"
        ) from error


def _build(java: JavaRuntime, directory: Path, environ: Mapping[str, str]) -> Path:
    path = _archive_path(java, directory, environ)
    unfinished = directory / f".{path.name}.unfinished"
    unfinished.unlink(missing_ok=True)
    command = [sys.executable, "-P", "-m", "emberkeep.spark.jvm.class_archive_training", str(unfinished)]
    try:
        done = subprocess.run(
            command,
            env={**with_safe_path(environ, None)[0], "JAVA_HOME": str(java.executable.resolve().parent.parent)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ClassArchiveFailed(f"the training run took longer than {BUILD_SECONDS:.0f} s") from error
    if done.returncode != 0 or not unfinished.exists():
        said = [line for line in done.stderr.splitlines() if line.strip() and not line[0].isspace()]
        last = said[-1] if said else "it printed nothing"
        raise ClassArchiveFailed(f"the training run ended with exit code {done.returncode}: {last}")
    _publish(unfinished, path)
    _remove_old(directory, path)
    return path


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


@contextmanager
def _building(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
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
