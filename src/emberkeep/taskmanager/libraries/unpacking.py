"""Unpacks an archive of unknown origin without letting it write or point outside its directory.

Links are created last, so nothing is written through a link; their targets are checked once all links exist. The
content is shared by jobs, so it is made read-only.
"""

from __future__ import annotations

import gzip
import lzma
import os
import re
import shutil
import stat
import tarfile
import threading
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from tarfile import (  # type: ignore[attr-defined]  # the first is missing in the type information
    EOFHeaderError,
    HeaderError,
    ReadError,
)
from typing import IO, Self

from emberkeep.base.errors import Fatal
from emberkeep.jobs.archives import is_zip

_CHUNK_BYTES = 1024**2
_DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,  # a compression that Python does not know
    RuntimeError,  # a zip file that needs a password
    UnicodeError,
    ValueError,
)
# An environment made by `python -m venv` links to the interpreter that made it. Whether that interpreter exists here is
# checked when the environment is used.
_INTERPRETER = re.compile(r"(.*/)?bin/python[0-9.]*")


@dataclass(frozen=True)
class UnpackLimits:
    """Limits of an unpacked archive.

    The unpacked content may have ``free`` bytes plus ``ratio`` bytes for each packed byte, and never more than ``size``
    bytes.
    """

    members: int = 1_000_000
    size: int = 64 * 1024**3  # bytes
    ratio: int = 200
    free: int = 1024**3  # bytes


def unpack(archive: Path, name: str, target: Path, limits: UnpackLimits, stop: threading.Event) -> None:
    """Unpack into the new directory ``target``; ``name`` determines the format. Blocks until done or ``stop`` is set.

    Raises Fatal if the archive is damaged, too large or points outside, if the disk is full, or if ``stop`` is set.
    In that case the contents of ``target`` are unusable.
    """
    tree = _Tree(name, target, limits, archive.stat().st_size, stop)
    try:
        target.mkdir(mode=0o700)
        if is_zip(name):
            _unpack_zip(archive, tree)
        else:
            _unpack_tar(archive, tree)
        tree.finish()
    except _DAMAGED as error:
        reason = str(error).partition("\n")[0].rstrip(":") or type(error).__name__
        raise Fatal(f"cannot unpack {name}: {reason}", hint="pack it again") from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise Fatal(
            f"cannot unpack {name}: {reason} ({error.filename or target})",
            hint="check that disk: space and permissions",
        ) from error


def remove_tree(path: Path) -> None:
    """Delete a directory that ``unpack`` made, including read-only directories in it. Links are not followed."""
    for directory, _, _ in os.walk(path):
        Path(directory).chmod(0o700)
    shutil.rmtree(path, ignore_errors=True)


def _unpack_tar(archive: Path, tree: _Tree) -> None:
    with tarfile.open(archive, "r:*", tarinfo=_StrictHeader) as source:
        for member in source:
            if member.isreg():
                content = source.extractfile(member)
                assert content is not None, "it is a regular file"  # noqa: S101
                tree.file(member.name, member.size, content, member.mode)
            elif member.isdir():
                tree.directory(member.name)
            elif member.issym():
                tree.link(member.name, member.linkname)
            elif member.islnk():
                tree.hard_link(member.name, member.linkname)
            else:
                raise Fatal(f"{tree.name} contains {member.name!r}, which is neither a file nor a directory nor a link")


class _StrictHeader(tarfile.TarInfo):
    """Reports a truncated or damaged header, which tarfile itself takes for the end of the archive."""

    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(tarfile)
        except EOFHeaderError:
            raise  # the end-of-archive mark
        except HeaderError as error:
            raise ReadError(f"it is truncated or damaged ({error})") from error


def _unpack_zip(archive: Path, tree: _Tree) -> None:
    with zipfile.ZipFile(archive) as source:
        for info in source.infolist():
            mode = info.external_attr >> 16
            if info.is_dir():
                tree.directory(info.filename)
            elif stat.S_ISLNK(mode):
                tree.check_size(info.file_size)
                tree.link(info.filename, source.read(info).decode())
            else:
                with source.open(info) as content:
                    tree.file(info.filename, info.file_size, content, mode)


class _Tree:
    """A directory that is being filled from an archive."""

    def __init__(self, name: str, root: Path, limits: UnpackLimits, packed: int, stop: threading.Event) -> None:
        self.name = name
        self._root = root
        self._limits = limits
        self._most = min(limits.size, limits.free + packed * limits.ratio)
        self._stop = stop
        self._members = 0
        self._size = 0
        self._links: dict[str, str] = {}

    def directory(self, name: str) -> None:
        path = self._place(name)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def file(self, name: str, size: int, content: IO[bytes], mode: int) -> None:
        """Write a file of ``size`` bytes. Only the executable bits of ``mode`` are used."""
        self.check_size(size)
        path = self._new(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            written = 0
            while chunk := content.read(_CHUNK_BYTES):
                written += len(chunk)
                if written > size:
                    break
                file.write(chunk)
            if written != size:
                raise Fatal(f"{self.name} is damaged: the size of {name!r} differs from its header")
            os.fchmod(file.fileno(), 0o555 if mode & 0o111 else 0o444)

    def link(self, name: str, target: str) -> None:
        """Add a symbolic link, which ``finish`` creates."""
        path = self._new(name)
        self._links[str(path.relative_to(self._root))] = target

    def hard_link(self, name: str, target: str) -> None:
        """Create a hard link to ``target``, an earlier member."""
        source = self._root / _inside(self.name, target)
        path = self._new(name)
        if not source.is_file():
            raise Fatal(f"{self.name} is damaged: {name!r} is a link to {target!r}, which did not come before it")
        path.hardlink_to(source)

    def check_size(self, size: int) -> None:
        """Add ``size`` bytes to the total. Raises Fatal if that exceeds the limit."""
        self._size += size
        if size < 0 or self._size > self._most:
            raise Fatal(
                f"{self.name} unpacks to more than {self._most} bytes", hint="check that it is the right archive"
            )

    def finish(self) -> None:
        for name, target in self._links.items():
            path = self._root / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.symlink_to(target)
        for name, target in self._links.items():
            real = Path(os.path.realpath(self._root / name))
            if not real.is_relative_to(self._root.resolve()) and not _INTERPRETER.fullmatch(name):
                raise Fatal(
                    f"{self.name} contains {name!r}, a link to {target!r}, which is outside the archive",
                    hint="pack the link's target instead (tar --dereference)",
                )
        for directory, _, _ in os.walk(self._root):
            Path(directory).chmod(0o555)

    def _new(self, name: str) -> Path:
        """Make room for the archive member ``name``, which is not a directory, and return the path to write it to.

        Create the directories above the path, and delete an earlier member of the same name, as tar does.
        """
        path = self._place(name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        self._links.pop(str(path.relative_to(self._root)), None)
        return path

    def _place(self, name: str) -> Path:
        if self._stop.is_set():
            raise Fatal(f"{self.name} was not unpacked: the task manager ends")
        self._members += 1
        if self._members > self._limits.members:
            raise Fatal(f"{self.name} has more than {self._limits.members} members", hint="pack fewer files")
        return self._root / _inside(self.name, name)


def _inside(archive: str, name: str) -> str:
    """Return a member's path below the root. A leading "/" is ignored, as in tar and zip. Raises Fatal for ".."."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in name:
        raise Fatal(f"{archive} contains {name!r}, which is outside the archive", hint="pack it again")
    return "/".join(parts)
