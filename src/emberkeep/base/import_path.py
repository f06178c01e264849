"""Decide from which folders Python may import: never from those that other users can write.

A module that another user plants in such a folder would run with the rights of this process. Write access to a parent
directory or to a symbolic link on the way counts as well, because its holder can put another folder in that place.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "PYTHONPATH"
_MOST_LINKS = 40  # the kernel's limit
_OTHERS_MAY_WRITE = "other users can write to {}"


@dataclass(frozen=True)
class RefusedFolder:
    """A folder that is not used for imports, and the reason."""

    folder: str
    reason: str

    def __str__(self) -> str:
        return f"{self.folder} is not used for imports: {self.reason}"


@dataclass(frozen=True)
class ImportPath:
    """Folders and archives to import from, in order, and those that were refused."""

    folders: tuple[str, ...]
    refused: tuple[RefusedFolder, ...]


def why_unsafe(folder: str | Path, owners: Collection[int] | None = ()) -> str:
    """Return why others than root, this user and ``owners`` can change what is in ``folder``; "" if they cannot.

    ``owners``: ids of other users who are trusted; None trusts the owner of each folder. The folder may be missing, and
    may be an archive.
    """
    trusted = None if owners is None else {0, os.geteuid(), *owners}
    try:
        return _weakness(Path(folder).absolute(), trusted)
    except OSError as error:
        return f"{error.filename} cannot be checked: {error.strerror}"


def import_path(text: str, base: Path | None) -> ImportPath:
    """Return the safe folders of a search path such as ``PYTHONPATH``.

    A relative folder is below ``base``; if ``base`` is None, it is refused. An empty entry, which Python would take for
    the current directory, is left out. Whoever sets the variable trusts the owners of the absolute folders in it.
    """
    folders: list[str] = []
    refused: list[RefusedFolder] = []
    for entry in filter(None, text.split(os.pathsep)):
        if Path(entry).is_absolute():
            folder, reason = entry, why_unsafe(entry, None)
        elif base is None:
            folder, reason = entry, "it is a relative path"
        else:
            folder = str(base / entry)
            reason = why_unsafe(folder)
        if reason:
            refused.append(RefusedFolder(folder, reason))
        else:
            folders.append(folder)
    return ImportPath(tuple(folders), tuple(refused))


def with_safe_path(
    environ: Mapping[str, str], base: Path | None, first: Iterable[str] = ()
) -> tuple[dict[str, str], tuple[RefusedFolder, ...]]:
    """Return a process's environment with only the safe folders in ``PYTHONPATH``, and the refused ones.

    ``base``: see ``import_path``. ``first``: folders that come before those in the variable.
    """
    text = os.pathsep.join((*first, *filter(None, [environ.get(VARIABLE, "")])))
    path = import_path(text, base)
    others = {name: value for name, value in environ.items() if name != VARIABLE}
    return others | ({VARIABLE: os.pathsep.join(path.folders)} if path.folders else {}), path.refused


def _weakness(path: Path, trusted: Collection[int] | None) -> str:
    """Follow ``path`` from the root as the kernel does; return the first place that others can change, or ""."""
    here, links = Path("/"), 0
    rest = list(path.parts[1:])
    weakness = _weakness_of_directory(here, here.stat(), trusted, is_last=not rest)
    while rest and not weakness:
        part = rest.pop(0)
        if part == "..":
            here = here.parent
            continue
        entry = here / part
        try:
            status = entry.lstat()
        except FileNotFoundError:
            return _OTHERS_MAY_WRITE.format(here) if _others_may_write(here, here.stat()) else ""
        if not stat.S_ISLNK(status.st_mode):
            here = entry
            weakness = _weakness_of_directory(here, status, trusted, is_last=not rest)
            continue
        links += 1
        if links > _MOST_LINKS:
            return f"{path} has too many symbolic links"
        if trusted is not None and status.st_uid not in trusted:
            return f"{entry} belongs to {_user(status.st_uid)}"
        target = entry.readlink()
        here = Path("/") if target.is_absolute() else here
        rest = [*(target.parts[1:] if target.is_absolute() else target.parts), *rest]
    return weakness


def _weakness_of_directory(
    path: Path, status: os.stat_result, trusted: Collection[int] | None, *, is_last: bool
) -> str:
    if trusted is not None and status.st_uid not in trusted:
        return f"{path} belongs to {_user(status.st_uid)}"
    # In a sticky directory others can add entries, but cannot replace another user's.
    if not is_last and status.st_mode & stat.S_ISVTX:
        return ""
    return _OTHERS_MAY_WRITE.format(path) if _others_may_write(path, status) else ""


def _others_may_write(path: Path, status: os.stat_result) -> bool:
    by_group = status.st_mode & stat.S_IWGRP and not _is_private_group(status)
    if not (by_group or status.st_mode & stat.S_IWOTH):
        return False
    return not os.statvfs(path).f_flag & os.ST_RDONLY


def _is_private_group(status: os.stat_result) -> bool:
    """True if the group is the owner's own: it has the owner's name and no other member."""
    try:
        owner, group = pwd.getpwuid(status.st_uid), grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    return group.gr_gid == owner.pw_gid and group.gr_name == owner.pw_name and set(group.gr_mem) <= {owner.pw_name}


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user id {uid}"
