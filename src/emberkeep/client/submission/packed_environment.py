"""Check a packed Python environment before it is sent, for errors that would keep Python workers from starting.

This reads only the archive's table of contents. Each node finds out for itself whether the interpreter starts.
"""

from __future__ import annotations

import posixpath
import stat
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from emberkeep.base.errors import InvalidInput
from emberkeep.base.files.archive_entries import DAMAGED, TarMembers, zip_link_target
from emberkeep.client.submission.job_files import JobFile
from emberkeep.jobs.archives import (
    PACKING_HINT,
    TAR_SUFFIXES,
    WORKER_PYTHON,
    ZIP_SUFFIXES,
    is_unpacked,
    is_zip,
    packed_interpreter,
)
from emberkeep.jobs.model import ArtefactRole

_OPTION = "--archives"
_MOST_LINKS = 40  # the kernel's limit

_Member = str | int
"""The target of a link, or the mode of a file."""


def check_environment(conf: Mapping[str, str], files: Sequence[JobFile]) -> str | None:
    """Look in the job's archives for the interpreter that ``spark.pyspark.python`` names.

    Returns a notice if the interpreter needs more than the job's archives, else None. Raises InvalidInput.
    """
    python = conf.get(WORKER_PYTHON, "")
    archives = {file.fragment or file.path.name: file.path for file in files if file.role is ArtefactRole.ARCHIVE}
    packed = packed_interpreter(python, archives)
    if packed is None:
        first, _, rest = posixpath.normpath(python).partition("/")
        if python.startswith("/") or not rest or conf.get("spark.archives"):
            return None
        return f"{WORKER_PYTHON}={python}: no archive of the job is called {first}; the script must add it"
    name, path = packed
    archive = archives[name]
    if not is_unpacked(archive.name):
        endings = ", ".join((*ZIP_SUFFIXES, *TAR_SUFFIXES))
        raise InvalidInput(
            f"{_OPTION}: {archive.name} is not unpacked, so {WORKER_PYTHON}={python} does not exist on the nodes",
            field=_OPTION,
            hint=f"archives end in {endings}",
        )
    return _check_interpreter(archive, path)


def _check_interpreter(archive: Path, path: str) -> str | None:
    members = _members(archive)
    here = path
    for _ in range(_MOST_LINKS):
        member = members.get(here)
        if member is None and any(str(parent) in members for parent in PurePosixPath(here).parents):
            return None  # a link to a directory is on the path; the nodes resolve it
        if member is None:
            raise InvalidInput(
                f"{_OPTION}: there is no {here} in {archive.name}"
                + (f", the target of its {path}" if here != path else ""),
                field=_OPTION,
                hint=f"{WORKER_PYTHON} must be a path in the unpacked archive",
            )
        if isinstance(member, int):
            _check_mode(archive, here, member)
            return None
        here = posixpath.normpath(posixpath.join(posixpath.dirname(here), member))
        if here.startswith(("/", "../")):
            return (
                f"{archive.name}: {path} is a link to {member}, which is not in the archive: "
                f"every node needs that interpreter ({PACKING_HINT})"
            )
    raise InvalidInput(f"{_OPTION}: {path} in {archive.name} is a link to itself", field=_OPTION)


def _check_mode(archive: Path, path: str, mode: int) -> None:
    if not mode & 0o111:
        raise InvalidInput(
            f"{_OPTION}: {path} in {archive.name} may not be executed",
            field=_OPTION,
            hint="pack the environment with tar, which keeps permissions",
        )


def _members(archive: Path) -> dict[str, _Member]:
    """Return the archive's files and links by their normalised paths. Raises InvalidInput."""
    try:
        found = _zip_members(archive) if is_zip(archive.name) else _tar_members(archive)
    except (*DAMAGED, OSError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise InvalidInput(
            f"{_OPTION}: {archive} cannot be read as an archive: {reason}", field=_OPTION, hint="pack it again"
        ) from None
    return {posixpath.normpath(name).lstrip("/"): member for name, member in found.items()}


def _tar_members(archive: Path) -> dict[str, _Member]:
    with TarMembers.open(archive, "r:*") as source:
        return {
            member.name: member.linkname if member.issym() else member.mode
            for member in iter(source.next, None)
            if member.issym() or member.isreg() or member.islnk()
        }


def _zip_members(archive: Path) -> dict[str, _Member]:
    members: dict[str, _Member] = {}
    with zipfile.ZipFile(archive) as source:
        for info in source.infolist():
            mode = info.external_attr >> 16
            if stat.S_ISLNK(mode):
                members[info.filename] = zip_link_target(source, info)
            elif not info.is_dir():
                members[info.filename] = mode
    return members
