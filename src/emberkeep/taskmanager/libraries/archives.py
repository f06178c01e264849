"""Archives unpacked once on a node, for all tasks of all jobs that use the same content.

``<directory>/<sha256>/content`` holds the archive's content; ``<sha256>/complete.record`` marks it complete. An archive
is unpacked under a temporary name and renamed at the end, so a crash leaves either a complete archive or one without a
record. If tasks run as another user, this user unpacks and owns the content, and nobody else can read it; everything
else here belongs to this process's user. Files are not synced one by one: the record names the boot in which it was
written, and after a reboot the archive is unpacked again. Unused archives are deleted in two stages, as BLOBs are.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import threading
from pathlib import Path

import structlog

from emberkeep.base.errors import EmberkeepError, Fatal
from emberkeep.base.files.durable import read_record, sync_directory, write_record
from emberkeep.base.files.hostile import hand_over, remove_tree
from emberkeep.base.files.private import make_private
from emberkeep.base.processes.os_user import OsUser
from emberkeep.base.processes.process_identity import boot_id
from emberkeep.blobs.staging import Staging
from emberkeep.taskmanager.libraries.unpack_process import unpack_apart
from emberkeep.taskmanager.libraries.unpacking import UnpackLimits

log = structlog.get_logger(__name__)

RECORD_KIND, RECORD_VERSION = "unpacked-archive", 1
RECORD_FILE = "complete.record"
CONTENT = "content"
_COPY = "archive"
_PASSABLE = 0o711
_TEMPORARY_PREFIX = ".incoming-"
_REMOVED_PREFIX = ".removed-"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LIMITS = UnpackLimits()


class UnpackedArchives:
    """The unpacked archives of one node. Call ``start`` first.

    Methods belong to one event loop; disk work runs in threads.
    """

    def __init__(self, directory: Path, limits: UnpackLimits = _LIMITS, user: OsUser | None = None) -> None:
        """``user``: the user whom tasks that use the archives run as; None: this process's user."""
        self._directory = directory
        self._user = user
        self._limits = limits
        self._present: set[str] = set()
        self._holders: dict[str, set[str]] = {}
        self._flights: dict[str, asyncio.Task[None]] = {}
        self._staging: Staging[str] = Staging()
        self._stop = threading.Event()
        self._left = False

    async def start(self) -> None:
        """Create the directory, delete an earlier process's incomplete archives, stage the others. Raises Fatal."""
        try:
            self._present = await asyncio.to_thread(_take_over, self._directory, self._user)
        except OSError as error:
            raise Fatal(
                f"cannot use {self._directory}: {error.strerror}", hint="check free space and permissions"
            ) from error
        for sha256 in sorted(self._present):
            self._staging.stage(sha256)

    async def use(self, sha256: str, archive: Path, name: str, holder: str) -> Path:
        """Return the directory with the content of ``archive``, a file with this hash and this ``name``.

        The directory stays until the holder is released. Concurrent calls unpack once. Raises Fatal, see ``unpack``.
        """
        self._holders.setdefault(sha256, set()).add(holder)
        self._staging.unstage(sha256)
        try:
            if not await self._is_there(sha256):
                await self._unpacked(sha256, archive, name)
        except BaseException:
            self._drop(sha256, holder)
            raise
        return self._directory / sha256 / CONTENT

    def release(self, holder: str) -> None:
        """End all uses of this holder. Unknown holders are ignored."""
        for sha256 in list(self._holders):
            self._drop(sha256, holder)

    def users(self, sha256: str) -> int:
        """Return the number of holders that use this archive."""
        return len(self._holders.get(sha256, ()))

    async def collect(self) -> list[str]:
        """Delete the archives that have been unused for a whole retention interval. Return their hashes.

        Call once at the end of each interval.
        """
        due = self._staging.turn()
        removed = [self._put_aside(sha256) for sha256 in due]
        await asyncio.to_thread(_remove_all, removed)
        return due

    async def close(self) -> None:
        """Delete everything. Call at an orderly shutdown, when no task is left."""
        if self._left:
            return
        self._stop.set()
        await asyncio.gather(*self._flights.values(), return_exceptions=True)
        self._present.clear()
        await asyncio.to_thread(remove_tree, self._directory)

    async def leave(self) -> None:
        """Stop unpacking and leave all archives to the next task manager process."""
        self._left = True
        self._stop.set()
        await asyncio.gather(*self._flights.values(), return_exceptions=True)

    async def _is_there(self, sha256: str) -> bool:
        return sha256 in self._present and await asyncio.to_thread((self._directory / sha256 / CONTENT).is_dir)

    async def _unpacked(self, sha256: str, archive: Path, name: str) -> None:
        """Unpack the archive, or wait for the unpacking under way. A cancelled caller does not stop it for others."""
        flight = self._flights.get(sha256)
        if flight is None:
            flight = asyncio.create_task(self._fly(sha256, archive, name), name=f"unpack-{sha256[:8]}")
            self._flights[sha256] = flight
            flight.add_done_callback(lambda _: self._landed(sha256))
        await asyncio.shield(flight)

    async def _fly(self, sha256: str, archive: Path, name: str) -> None:
        await asyncio.to_thread(self._unpack_aside, sha256, archive, name)
        self._present.add(sha256)
        log.info("archive unpacked", archive=name, sha256=sha256)

    def _unpack_aside(self, sha256: str, archive: Path, name: str) -> None:
        directory, user = self._directory, self._user
        temporary = directory / f"{_TEMPORARY_PREFIX}{secrets.token_hex(8)}"
        target = directory / sha256
        try:
            temporary.mkdir(mode=0o700)
            if user is None:
                unpack_apart(archive, name, temporary / CONTENT, self._limits, self._stop)
            else:
                self._unpack_as(user, archive, name, temporary)
            write_record(temporary / RECORD_FILE, RECORD_KIND, RECORD_VERSION, boot_id().encode())
            if target.exists():  # part of it was deleted by hand
                remove_tree(target)
            temporary.rename(target)
            sync_directory(directory)
        except BaseException as error:
            remove_tree(temporary)
            if isinstance(error, OSError) and not isinstance(error, EmberkeepError):
                raise Fatal(
                    f"cannot unpack {name} below {directory}: {error.strerror}",
                    hint="check that disk: space and permissions",
                ) from error
            raise

    def _unpack_as(self, user: OsUser, archive: Path, name: str, directory: Path) -> None:
        """Let ``user`` unpack a copy of the archive into ``directory``, then make this process its owner again."""
        copy = directory / _COPY
        shutil.copyfile(archive, copy)
        copy.chmod(0o600)
        hand_over(directory, user)
        unpack_apart(copy, name, directory / CONTENT, self._limits, self._stop, user)
        os.chown(directory, os.geteuid(), os.getegid())
        directory.chmod(_PASSABLE)
        copy.unlink()
        content = os.open(directory / CONTENT, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchmod(content, 0o500)
        finally:
            os.close(content)

    def _landed(self, sha256: str) -> None:
        flight = self._flights.pop(sha256)
        if not flight.cancelled() and flight.exception() is not None:
            log.warning("cannot unpack an archive", sha256=sha256, reason=str(flight.exception()))
        self._settle(sha256)

    def _drop(self, sha256: str, holder: str) -> None:
        holders = self._holders.get(sha256)
        if holders is not None:
            holders.discard(holder)
            self._settle(sha256)

    def _settle(self, sha256: str) -> None:
        """Stage the archive for deletion if no holder uses it."""
        if self._holders.get(sha256):
            return
        self._holders.pop(sha256, None)
        if sha256 in self._present:
            self._staging.stage(sha256)

    def _put_aside(self, sha256: str) -> Path:
        """Move the archive away at once, so that it can be unpacked again while the old one is being deleted."""
        self._present.discard(sha256)
        aside = self._directory / f"{_REMOVED_PREFIX}{secrets.token_hex(8)}"
        try:
            (self._directory / sha256).rename(aside)
        except OSError as error:
            log.warning("cannot remove an unpacked archive", sha256=sha256, reason=str(error))
        return aside


def _take_over(directory: Path, user: OsUser | None) -> set[str]:
    """Return the complete archives of an earlier process; delete incomplete and temporary ones."""
    make_private(directory)
    if user is not None:
        directory.chmod(_PASSABLE)
    present = set()
    for path in sorted(directory.iterdir()):
        if _SHA256.fullmatch(path.name) and _is_complete(path):
            present.add(path.name)
        elif _SHA256.fullmatch(path.name) or path.name.startswith((_TEMPORARY_PREFIX, _REMOVED_PREFIX)):
            remove_tree(path)
        else:
            log.warning("ignoring a foreign file among the unpacked archives", path=str(path))
    return present


def _is_complete(path: Path) -> bool:
    try:
        return read_record(path / RECORD_FILE, RECORD_KIND, RECORD_VERSION) == boot_id().encode()
    except EmberkeepError:
        return False


def _remove_all(paths: list[Path]) -> None:
    for path in paths:
        remove_tree(path)
