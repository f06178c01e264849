"""Unpacks an archive of unknown origin without letting it write or point outside its directory.

Links are created last, so nothing is written through a link; their targets are checked once all links exist. The
content is shared by jobs, so it is made read-only. ``unpack_process`` runs this with bounded memory.
"""

from __future__ import annotations

import os
import re
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

import msgspec

from emberkeep.base.errors import Fatal
from emberkeep.base.files.archive_entries import DAMAGED, LONGEST_PATH, TarMembers, zip_link_target
from emberkeep.jobs.archives import is_zip

_CHUNK_BYTES = 1024**2
_LONGEST_PART = 255  # bytes of a file's name; the limit of most file systems
_DEEPEST = 128  # directories; code that walks a tree recurses
_SHOWN = 120  # characters of a name in a message
# An environment made by `python -m venv` links to the interpreter that made it. Whether that interpreter exists here is
# checked when the environment is used.
_INTERPRETER = re.compile(r"(.*/)?bin/python[0-9.]*")


class UnpackLimits(msgspec.Struct, frozen=True):
    """Limits of an unpacked archive, and of unpacking it.

    The unpacked content may have ``free`` bytes plus ``ratio`` bytes for each packed byte, and never more than ``size``
    bytes. ``members`` includes all directories that are created.
    """

    members: int = 1_000_000
    size: int = 64 * 1024**3  # bytes
    ratio: int = 200
    free: int = 1024**3  # bytes
    memory: int = 512 * 1024**2  # bytes; a zip file's table of contents is in memory, some 1 KiB for each member
    cpu: int = 3600  # seconds

    def content(self, packed: int) -> int:
        """Return how many bytes an archive of ``packed`` bytes may unpack to."""
        return min(self.size, self.free + packed * self.ratio)


def unpack(archive: Path, name: str, target: Path, limits: UnpackLimits, is_over: Callable[[], bool]) -> None:
    """Unpack into the new directory ``target``; ``name`` determines the format. Blocks until done or ``is_over()``.

    Raises Fatal if the archive is damaged, too large or points outside, if the disk is full, or if ``is_over()``.
    In that case the contents of ``target`` are unusable.
    """
    tree = _Tree(name, target, limits, limits.content(archive.stat().st_size), is_over)
    try:
        target.mkdir(mode=0o700)
        if is_zip(name):
            _unpack_zip(archive, tree)
        else:
            _unpack_tar(archive, tree)
        tree.finish()
    except DAMAGED as error:
        reason = str(error).partition("\n")[0].rstrip(":") or type(error).__name__
        raise Fatal(f"cannot unpack {name}: {reason}", hint="pack it again") from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise Fatal(
            f"cannot unpack {name}: {reason} ({_shown(str(error.filename or target))})",
            hint="check that disk: space and permissions",
        ) from error


def _unpack_tar(archive: Path, tree: _Tree) -> None:
    with TarMembers.open(archive, "r:*") as source:
        for member in iter(source.next, None):
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
                raise Fatal(
                    f"{tree.name} contains {_shown(member.name)}, which is neither a file nor a directory nor a link",
                    hint="pack it again",
                )


def _unpack_zip(archive: Path, tree: _Tree) -> None:
    with zipfile.ZipFile(archive) as source:
        for info in source.infolist():
            mode = info.external_attr >> 16
            if info.is_dir():
                tree.directory(info.filename)
            elif stat.S_ISLNK(mode):
                tree.link(info.filename, zip_link_target(source, info))
            else:
                with source.open(info) as content:
                    tree.file(info.filename, info.file_size, content, mode)


class _Tree:
    """A directory that is being filled from an archive."""

    def __init__(self, name: str, root: Path, limits: UnpackLimits, most: int, is_over: Callable[[], bool]) -> None:
        """``most``: bytes of content."""
        self.name = name
        self._root = root
        self._limits = limits
        self._most = most
        self._is_over = is_over
        self._members = 0
        self._size = 0
        self._links: dict[str, str] = {}

    def directory(self, name: str) -> None:
        self._make(self._place(name))

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
                self._check_not_over()
                file.write(chunk)
            if written != size:
                raise Fatal(f"{self.name} is damaged: the size of {_shown(name)} differs from its header")
            os.fchmod(file.fileno(), 0o555 if mode & 0o111 else 0o444)

    def link(self, name: str, target: str) -> None:
        """Add a symbolic link, which ``finish`` creates."""
        length = len(os.fsencode(target))
        if length > LONGEST_PATH:
            raise Fatal(
                f"{self.name} contains {_shown(name)}, a link whose target has {length} bytes; {LONGEST_PATH} are "
                "allowed",
                hint="pack it again",
            )
        path = self._new(name)
        self._links[str(path.relative_to(self._root))] = target

    def hard_link(self, name: str, target: str) -> None:
        """Create a hard link to ``target``, an earlier member."""
        source = self._root / _inside(self.name, target)
        path = self._new(name)
        if not source.is_file():
            raise Fatal(
                f"{self.name} is damaged: {_shown(name)} is a link to {_shown(target)}, which did not come before it"
            )
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
            self._make(path.parent)
            path.symlink_to(target)
        for name, target in self._links.items():
            real = Path(os.path.realpath(self._root / name))
            if not real.is_relative_to(self._root.resolve()) and not _INTERPRETER.fullmatch(name):
                raise Fatal(
                    f"{self.name} contains {_shown(name)}, a link to {_shown(target)}, which is outside the archive",
                    hint="pack the link's target instead (tar --dereference)",
                )
        for directory, _, _ in os.walk(self._root):
            Path(directory).chmod(0o555)

    def _new(self, name: str) -> Path:
        """Make room for the archive member ``name``, which is not a directory, and return the path to write it to.

        Create the directories above the path, and delete an earlier member of the same name, as tar does.
        """
        path = self._place(name)
        self._make(path.parent)
        path.unlink(missing_ok=True)
        self._links.pop(str(path.relative_to(self._root)), None)
        return path

    def _place(self, name: str) -> Path:
        self._check_not_over()
        self._count()
        return self._root / _inside(self.name, name)

    def _make(self, directory: Path) -> None:
        """Create a directory and those above it up to the root, unless they exist."""
        missing = []
        while directory != self._root and not directory.is_dir():
            missing.append(directory)
            directory = directory.parent
        for path in reversed(missing):
            self._count()
            path.mkdir(mode=0o700)

    def _count(self) -> None:
        self._members += 1
        if self._members > self._limits.members:
            raise Fatal(
                f"{self.name} has more than {self._limits.members} members and directories", hint="pack fewer files"
            )

    def _check_not_over(self) -> None:
        if self._is_over():
            raise Fatal(f"{self.name} was not unpacked: the task manager ends")


def _inside(archive: str, name: str) -> str:
    """Return a member's path below the root. A leading "/" is ignored, as in tar and zip.

    Raises Fatal for "..", and if the name is too long.
    """
    length = len(os.fsencode(name))
    if length > LONGEST_PATH:
        raise Fatal(
            f"{archive} contains {_shown(name)}, a name of {length} bytes; {LONGEST_PATH} are allowed",
            hint="pack it again with shorter names",
        )
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in name:
        raise Fatal(f"{archive} contains {_shown(name)}, which is outside the archive", hint="pack it again")
    if len(parts) > _DEEPEST or any(len(os.fsencode(part)) > _LONGEST_PART for part in parts):
        raise Fatal(
            f"{archive} contains {_shown(name)}, which is more than {_DEEPEST} directories deep or has a part of more "
            f"than {_LONGEST_PART} bytes",
            hint="pack it again with shorter names",
        )
    return "/".join(parts)


def _shown(name: str) -> str:
    return repr(name if len(name) <= _SHOWN else name[:_SHOWN] + "…")
