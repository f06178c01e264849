"""The local BLOB store: a directory that one process uses. Implements ``blobs.ports.LocalStore``.

```
<directory>/<owner>/<key>     complete, verified, durable (0600 in 0700)
<directory>/.incoming/<name>  in transfer, or being deleted; emptied at start
```
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from emberkeep.adapters.blobs.files_copy import cannot_store
from emberkeep.adapters.blobs.files_incoming import IncomingBlob, Intake
from emberkeep.adapters.blobs.files_index import Place
from emberkeep.adapters.blobs.files_tree import BlobTree, Placed
from emberkeep.adapters.blocking.file_threads import DiskThreads
from emberkeep.base.errors import Absent, Fatal, InvalidInput, Unavailable
from emberkeep.base.files.errors import shortage
from emberkeep.base.ids import JobId
from emberkeep.blobs.errors import DamagedBlob
from emberkeep.blobs.model import BlobKey, StoredBlob

_WRITERS = 16  # most of the time they wait for the disk
# Small BLOBs come in large numbers. Each of a few threads writes and syncs several, then syncs their directory once.
_SMALL_WRITERS = 8
_AT_ONCE = 16
_SMALL = 1024**2  # bytes
_READERS = 2  # each takes a core while it hashes

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _Verdict:
    """The result of verifying a file. ``actual``: its SHA-256 if it is damaged; ``dropped``: the BLOBs then deleted."""

    actual: str = ""
    dropped: frozenset[Place] = frozenset()


@dataclass(frozen=True)
class _Arrival:
    """A file that will become a BLOB. ``prepare`` completes its content and makes it durable, or raises."""

    owner: JobId
    key: BlobKey
    path: Path
    prepare: Callable[[], None]


class BlobFiles:
    """See LocalStore. Belongs to one event loop; blocking work runs in threads."""

    def __init__(self, directory: Path) -> None:
        self._tree = BlobTree(directory)
        self._writers = DiskThreads(_WRITERS, "emberkeep-blob-write")
        self._together = DiskThreads(_SMALL_WRITERS, "emberkeep-blob-write-small", together=_AT_ONCE)
        self._readers = DiskThreads(_READERS, "emberkeep-blob-verify")
        self._checks: dict[str, asyncio.Task[_Verdict]] = {}  # verifications in progress, by SHA-256

    async def open_store(self) -> None:
        await self._writers.run(self._open)

    def _open(self) -> None:
        with _writing(self._tree.root):
            self._tree.make()
            self._tree.remove_leftovers()
            for owner, blobs in self._tree.listing().items():
                if not blobs:
                    self._tree.delete(owner, ())  # left by a crash between creating it and its first file

    # --- storing ------------------------------------------------------------------------------------------------------

    def temporary(self) -> Path:
        return self._tree.temporary()

    async def receive(
        self, owner: JobId, key: BlobKey, chunks: AsyncIterable[bytes], *, max_size: int, size: int | None = None
    ) -> int:
        incoming = IncomingBlob(self._tree.temporary())
        try:
            with _writing(self._tree.root):
                rest = await Intake(self._writers, incoming).take(chunks, max_size=max_size, size=size)
            threads = self._writers if incoming.size else self._together
            await self._store(threads, _Arrival(owner, key, incoming.path, lambda: incoming.finish(rest, key)))
        except BaseException:
            await self._writers.run(incoming.discard)
            raise
        return incoming.size

    async def adopt(self, owner: JobId, key: BlobKey, file: Path, *, sha256: str | None = None) -> int:
        actual = sha256
        if actual is None:
            actual = await self._readers.run(lambda: _digest(file))
        if actual != key.sha256:
            await self._writers.run(lambda: file.unlink(missing_ok=True))
            raise DamagedBlob(owner, key, actual, str(file))
        size = self._size(file)
        threads = self._together if size <= _SMALL else self._writers
        await self._store(threads, _Arrival(owner, key, file, lambda: _make_durable(file)))
        return size

    def _size(self, file: Path) -> int:
        with _writing(self._tree.root):
            return file.lstat().st_size

    async def _store(self, threads: DiskThreads, arrival: _Arrival) -> None:
        await threads.run_together(self._store_all, arrival, lambda placed: self._undo(arrival, placed))

    def _store_all(self, arrivals: Sequence[_Arrival]) -> list[Placed | BaseException]:
        """Store the files. Return for each how, or why it was not stored."""
        outcomes = [self._place(arrival) for arrival in arrivals]
        stored = [(index, outcome) for index, outcome in enumerate(outcomes) if isinstance(outcome, Placed)]
        failed: dict[JobId, OSError] = {}
        for owner in {arrivals[index].owner for index, _ in stored}:
            try:
                self._tree.sync(owner)
            except OSError as error:
                failed[owner] = error
        for index, placed in stored:
            arrival = arrivals[index]
            if arrival.owner in failed:
                self._undo(arrival, placed)
                outcomes[index] = cannot_store(self._tree.root, failed[arrival.owner])
            else:
                self._tree.replace_others(arrival.owner, arrival.key)
        return outcomes

    def _place(self, arrival: _Arrival) -> Placed | BaseException:
        try:
            arrival.prepare()
            return self._tree.place(arrival.path, arrival.owner, arrival.key)
        except OSError as error:
            return cannot_store(self._tree.root, error)
        except InvalidInput as error:
            return error

    def _undo(self, arrival: _Arrival, placed: Placed) -> None:
        """Delete a BLOB that was stored just now, because it is not durable or its caller was cancelled.

        Does nothing if the BLOB existed before, or if another upload has stored it since then.
        """
        with contextlib.suppress(OSError):
            self._tree.take_back(arrival.owner, arrival.key, placed)

    async def share(self, owner: JobId, key: BlobKey) -> bool:
        for source in await self._writers.run(lambda: self._tree.places(key)):
            if source == (owner, key):
                continue
            try:
                await self._verified(*source)
            except (Absent, DamagedBlob, Unavailable):
                continue
            if await self._writers.run(lambda source=source: self._share(source, owner, key)):  # type: ignore[misc]
                return True
        return False

    def _share(self, source: Place, owner: JobId, key: BlobKey) -> bool:
        with _writing(self._tree.root):
            return self._tree.share(source, owner, key)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def path(self, owner: JobId, key: BlobKey) -> Path:
        await self._verified(owner, key)
        return self._tree.file(owner, key)

    async def _verified(self, owner: JobId, key: BlobKey) -> None:
        """Return once the file is verified; concurrent callers share one verification of the same content.

        Raises Absent, Damaged, Unavailable, Fatal.
        """
        place = (owner, key)
        while not self._tree.is_verified(owner, key):
            check = self._checks.get(key.sha256)
            own = check is None
            if check is None:
                check = asyncio.create_task(self._readers.run(lambda: self._check(place)), name=f"verify {key}")
                self._checks[key.sha256] = check
                check.add_done_callback(lambda done: self._checked(key, done))
            await asyncio.wait([check])
            if check.cancelled():
                raise Fatal(f"BLOB {key} was not verified: this process is shutting down")
            if not own and check.exception() is not None:
                continue  # the error may be about another owner's file: verify ours
            verdict = check.result()
            if place in verdict.dropped:
                raise DamagedBlob(owner, key, verdict.actual, str(self._tree.file(owner, key)))
            if own:
                return

    def _check(self, place: Place) -> _Verdict:
        path = self._tree.file(*place)
        try:
            damage = self._tree.verify(*place)
        except OSError as error:
            raise Unavailable(
                f"BLOB {place[1]} of job {place[0]} cannot be read now in {path}: {error.strerror or error}",
                hint="check that disk; another store may have the BLOB",
            ) from error
        if damage is None:
            return _Verdict()
        with _using(self._tree.root, "delete"):
            dropped = self._tree.drop(*place, damage)
        log.warning("deleted a damaged BLOB", path=str(path), actual=damage.actual, owners=len(dropped))
        return _Verdict(damage.actual, frozenset([place, *dropped]))

    def _checked(self, key: BlobKey, check: asyncio.Task[_Verdict]) -> None:
        del self._checks[key.sha256]
        if not check.cancelled():
            check.exception()  # waiting callers raise it; reading it here avoids a warning if none is left

    async def listing(self) -> Mapping[JobId, tuple[StoredBlob, ...]]:
        def read() -> Mapping[JobId, tuple[StoredBlob, ...]]:
            with _using(self._tree.root, "read"):
                return self._tree.listing()

        return await self._readers.run(read)

    # --- deleting -----------------------------------------------------------------------------------------------------

    async def delete(self, owner: JobId, keys: Iterable[BlobKey]) -> None:
        wanted = list(keys)

        def delete() -> None:
            with _using(self._tree.root, "delete"):
                self._tree.delete(owner, wanted)

        await self._writers.run(delete)

    async def delete_owner(self, owner: JobId) -> None:
        def delete() -> None:
            with _using(self._tree.root, "delete"):
                self._tree.delete_owner(owner)

        await self._writers.run(delete)


@contextlib.contextmanager
def _writing(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise cannot_store(root, error) from error


@contextlib.contextmanager
def _using(root: Path, verb: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        problem = f"cannot {verb} BLOBs in {root}: {error.strerror or error}"
        if hint := shortage(error):
            raise Unavailable(problem, hint=hint) from error
        raise Fatal(problem, hint="check that disk") from error


def _digest(file: Path) -> str:
    with _using(file.parent, "read"), file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _make_durable(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchmod(descriptor, 0o600)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
