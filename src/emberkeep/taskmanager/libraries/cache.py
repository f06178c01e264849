"""Gives a task, which is a driver or an executor, the files of its job from the node's caches.

Each task has its own directory with the job's files, under the names that the job uses. Files that a task may change
(script, modules, plain files) are copied. Jars and packages are links to the node's BLOB cache. Archives and wheels are
links to where the node has unpacked them, once for all tasks. One reference per task and BLOB keeps the BLOB until the
task has ended (BLOB-13).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path

from emberkeep.base.compatible import Compatible
from emberkeep.base.errors import Absent, Fatal, RetryLater
from emberkeep.base.files.errors import shortage
from emberkeep.base.files.hostile import remove_tree
from emberkeep.base.ids import JobId
from emberkeep.base.processes.os_user import OsUser
from emberkeep.blobs.model import permanent
from emberkeep.blobs.ports import BlobAccess
from emberkeep.jobs.archives import is_unpacked, is_wheel, packed_interpreter
from emberkeep.jobs.model import Artefact, ArtefactRole
from emberkeep.taskmanager.libraries.archives import UnpackedArchives
from emberkeep.taskmanager.libraries.python import check_interpreter

TRANSFERS = 4  # artefacts of one task that are fetched at once
# Version of the drivers' Python; packed interpreters must have the same one.
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


class BoundFile(Compatible, frozen=True, kw_only=True):
    """An artefact in a task's directory.

    ``name``: as the job sees it. ``path``: absolute; a directory if an archive or a wheel was unpacked.
    """

    role: ArtefactRole
    name: str
    path: str


class _Placing(Enum):
    COPY = "copy"
    LINK = "link"
    UNPACK = "unpack"


class LibraryCache:
    """The job files that tasks on this node run with. ``start`` it first; ``run`` cleans up.

    ``holder`` in all methods names the task, uniquely on this node.
    """

    def __init__(
        self,
        blobs: BlobAccess,
        archives: UnpackedArchives,
        *,
        retention: float,
        of_users: Mapping[OsUser, UnpackedArchives] | None = None,
    ) -> None:
        """``retention``: seconds between two clean-ups of unpacked archives. ``of_users``: other users' archives."""
        self._blobs = blobs
        self._archives: dict[OsUser | None, UnpackedArchives] = {None: archives}
        for user, theirs in (of_users or {}).items():
            self._archives[user] = theirs
        self._retention = retention
        self._checked: set[tuple[str, str, OsUser | None]] = set()

    async def start(self) -> None:
        """Take over what an earlier process has unpacked. Raises Fatal."""
        for archives in self._archives.values():
            await archives.start()

    async def run(self) -> None:
        """Clean up at every interval, until cancelled."""
        while True:
            await asyncio.sleep(self._retention)
            for archives in self._archives.values():
                await archives.collect()

    async def close(self) -> None:
        """Delete all unpacked archives. Call at an orderly shutdown, when all tasks have ended."""
        for archives in self._archives.values():
            await archives.close()

    async def leave(self) -> None:
        """Keep all unpacked archives for tasks that outlive this process. ``close`` does nothing afterwards."""
        for archives in self._archives.values():
            await archives.leave()

    async def bind(
        self,
        owner: JobId,
        holder: str,
        artefacts: Sequence[Artefact],
        directory: Path,
        *,
        python: str = "",
        user: OsUser | None = None,
    ) -> tuple[BoundFile, ...]:
        """Replace ``directory`` with one that has all ``artefacts``, and hold them until ``release``.

        ``python``: the interpreter of Python workers; one from an archive is tested first. ``user``: the user whom the
        task runs as; None: this process's user. Another user gets copies instead of links to the BLOB cache, which only
        this process's user can read. Raises Fatal, RetryLater; after an error nothing is held.
        """
        try:
            wanted = _by_name(artefacts)
            sources = await self._bring(owner, holder, wanted.values(), user)
            await self._check_python(python, wanted, sources, user)
            await asyncio.to_thread(_fill, directory, wanted, sources, links_blobs=user is None)
        except Absent as error:
            self.release(owner, holder)
            raise Fatal(f"cannot fetch a file of the job: {error}") from error
        except OSError as error:
            self.release(owner, holder)
            problem = f"cannot put the job's files into {directory}: {error.strerror} ({error.filename})"
            if hint := shortage(error):
                raise RetryLater(problem, hint=hint) from error
            raise Fatal(problem, hint="check that disk: space and permissions") from error
        except BaseException:
            self.release(owner, holder)
            raise
        return tuple(
            BoundFile(role=artefact.role, name=_name(artefact), path=str(directory / _name(artefact)))
            for artefact in artefacts
        )

    async def take_back(
        self, owner: JobId, holder: str, artefacts: Sequence[Artefact], user: OsUser | None = None
    ) -> None:
        """Hold the files of an adopted task, which runs as ``user``, again; they are already in its directory.

        They are held until ``release``. Raises EmberkeepError if one of them is unavailable; the others are held.
        """
        found = await asyncio.gather(
            *(self._bring(owner, holder, [artefact], user) for artefact in _by_name(artefacts).values()),
            return_exceptions=True,
        )
        for problem in found:
            if isinstance(problem, BaseException):
                raise problem

    def release(self, owner: JobId, holder: str) -> None:
        """Release all files of a task that has ended. Unknown tasks are ignored."""
        for archives in self._archives.values():
            archives.release(holder)
        self._blobs.release_all(owner, holder)

    async def _bring(
        self, owner: JobId, holder: str, artefacts: Iterable[Artefact], user: OsUser | None
    ) -> dict[str, Path]:
        """Return the path of each artefact's content on this node, by name: a file, or a directory."""
        gate = asyncio.Semaphore(TRANSFERS)

        async def bring(artefact: Artefact) -> Path:
            async with gate:
                path = await self._blobs.acquire(owner, permanent(artefact.sha256), holder)
                if _placing(artefact) is not _Placing.UNPACK:
                    return path
                return await self._archives[user].use(artefact.sha256, path, artefact.name, holder)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = {_name(artefact): group.create_task(bring(artefact)) for artefact in artefacts}
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return {name: task.result() for name, task in tasks.items()}

    async def _check_python(
        self, python: str, artefacts: Mapping[str, Artefact], sources: Mapping[str, Path], user: OsUser | None
    ) -> None:
        archives = [name for name, artefact in artefacts.items() if artefact.role is ArtefactRole.ARCHIVE]
        packed = packed_interpreter(python, archives)
        if packed is None:
            return
        name, path = packed
        key = (artefacts[name].sha256, path, user)
        if key not in self._checked:
            await asyncio.to_thread(check_interpreter, sources[name], path, artefacts[name].name, PYTHON, user)
            self._checked.add(key)


def _name(artefact: Artefact) -> str:
    return artefact.fragment or artefact.name


def _placing(artefact: Artefact) -> _Placing:
    """Return how an artefact is put into a task's directory."""
    match artefact.role:
        case ArtefactRole.ARCHIVE if is_unpacked(artefact.name):
            return _Placing.UNPACK
        case ArtefactRole.PY_FILE if is_wheel(artefact.name):
            return _Placing.UNPACK  # Python loads neither extension modules nor package data from a zip file
        case ArtefactRole.PY_FILE if not artefact.name.lower().endswith(".py"):
            return _Placing.LINK
        case ArtefactRole.JAR:
            return _Placing.LINK
    return _Placing.COPY


def _by_name(artefacts: Iterable[Artefact]) -> dict[str, Artefact]:
    """Return the artefact to place under each name. One file may have several roles.

    Raises Fatal if two different artefacts have the same name, or a name leads out of the directory.
    """
    named: dict[str, Artefact] = {}
    for artefact in artefacts:
        if not (_is_file_name(_name(artefact)) and _is_file_name(artefact.name)):  # it may come from the job's own code
            raise Fatal(f"{_name(artefact)!r} is not the name of a file in the job's directory")
        other = named.setdefault(_name(artefact), artefact)
        if other.sha256 != artefact.sha256 or _is_directory(other) != _is_directory(artefact):
            raise Fatal(
                f"two artefacts of the job have the name {_name(artefact)}", hint="give one an alias: path#name"
            )
        if _placing(artefact) is _Placing.COPY:
            named[_name(artefact)] = artefact
    return named


def _is_file_name(name: str) -> bool:
    try:
        return not {"/", "\0"} & set(name) and os.fsencode(name) not in (b"", b".", b"..")
    except UnicodeEncodeError:
        return False


def _is_directory(artefact: Artefact) -> bool:
    return _placing(artefact) is _Placing.UNPACK


def _fill(
    directory: Path, artefacts: Mapping[str, Artefact], sources: Mapping[str, Path], *, links_blobs: bool
) -> None:
    """Replace ``directory`` with one that has the artefacts. Blocks."""
    remove_tree(directory)
    directory.mkdir(mode=0o700, parents=True)
    for name, artefact in artefacts.items():
        target = directory / name
        placing = _placing(artefact)
        if placing is _Placing.COPY or (placing is _Placing.LINK and not links_blobs):
            shutil.copyfile(sources[name], target)
            target.chmod(0o700)  # executable, as in Spark: a file may be a program to pipe through
        else:
            _protect(sources[name])
            target.symlink_to(sources[name])


def _protect(source: Path) -> None:
    """Make a file that tasks reach by a link read-only, because they share it."""
    mode = source.stat().st_mode
    if source.is_file() and mode & 0o222:
        source.chmod(mode & 0o555)
