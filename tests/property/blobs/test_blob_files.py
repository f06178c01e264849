"""The local BLOB store on a disk that stops at any step: what is readable is always complete and right (BLOB-3)."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import errno
import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from emberkeep.adapters.blobs.files import BlobFiles
from emberkeep.base.errors import Absent, InvalidInput
from emberkeep.base.ids import JobId
from emberkeep.blobs.errors import DamagedBlob
from emberkeep.blobs.model import BlobKey, permanent, transient
from tests.campaign import examples

OWNERS = [JobId(f"{number:032x}") for number in range(2)]
NOTHING, ONE_PIECE, MORE = b"", b"a" * 3000, bytes(range(256)) * 8000  # the last is more than one thread's work
KEYS = {
    permanent(hashlib.sha256(NOTHING).hexdigest()): NOTHING,
    permanent(hashlib.sha256(ONE_PIECE).hexdigest()): ONE_PIECE,
    transient(hashlib.sha256(ONE_PIECE).hexdigest()): ONE_PIECE,
    permanent(hashlib.sha256(MORE).hexdigest()): MORE,
}
PLACES = [(owner, key) for owner in OWNERS for key in KEYS]

Place = tuple[JobId, BlobKey]


class PowerCut(BaseException):
    """The machine is off. No clean-up of the program's reaches the disk any more."""


class Disk:
    """Stops after some changes. What was not synced until then is torn."""

    STEPS = ("mkdir", "rmdir", "unlink", "rename", "link", "open", "write", "writev", "fsync", "fdatasync", "fchmod",
             "copy_file_range")  # fmt: skip

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: int | None = None
        self.has_links = True
        self._unsynced: set[int] = set()  # inodes

    @contextlib.contextmanager
    def stops_after(self, steps: int | None) -> Iterator[None]:
        """None: never."""
        self._left = steps
        with contextlib.ExitStack() as patches:
            for name in self.STEPS:
                real = getattr(os, name)
                patches.enter_context(mock.patch.object(os, name, self._counting(name, real)))
            yield

    def written(self, file: Path) -> None:
        """Somebody else did it, and did not sync."""
        self._unsynced.add(file.stat().st_ino)

    @property
    def is_off(self) -> bool:
        return self._left is not None and self._left < 0

    def _counting(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            changes = name != "open" or bool(arguments[1] & os.O_CREAT)
            with self._lock:
                if changes and self._left is not None:
                    self._left -= 1
                if self.is_off:
                    raise PowerCut
            if name == "link" and not self.has_links:
                raise OSError(errno.EMLINK, os.strerror(errno.EMLINK))
            if name in ("write", "writev"):
                self._unsynced.add(os.fstat(arguments[0]).st_ino)
            elif name == "copy_file_range":
                self._unsynced.add(os.fstat(arguments[1]).st_ino)
            result = real(*arguments, **options)
            if name in ("fsync", "fdatasync"):
                self._unsynced.discard(os.fstat(arguments[0]).st_ino)
            return result

        return step

    def tear(self, root: Path) -> None:
        """What the disk shows after the power cut."""
        for path in root.rglob("*"):
            if path.is_file() and path.stat().st_ino in self._unsynced:
                os.truncate(path, path.stat().st_size // 2)
        self._unsynced.clear()


class Known(enum.Enum):
    """What the model knows of a place."""

    THERE = "there"
    GONE = "gone"
    UNKNOWN = "unknown"  # it was damaged, or a power cut interrupted its coming or going


class BlobFilesMachine(RuleBasedStateMachine):
    @initialize(has_links=st.booleans())
    def start(self, has_links: bool) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="blob-files-"))
        self.disk = Disk()
        self.disk.has_links = has_links
        self.runner = asyncio.Runner()
        self.known = dict.fromkeys(PLACES, Known.GONE)
        self.open()

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.runner.close()
            shutil.rmtree(self.root)

    def open(self) -> None:
        self.store = BlobFiles(self.root)
        self.runner.run(self.store.open_store())
        assert list((self.root / ".incoming").iterdir()) == []

    def attempt(self, work: Coroutine[Any, Any, Any], steps: int | None) -> tuple[bool, Any]:
        """Whether it came to its end, and its result. ``steps``: changes to the disk after which the power is cut."""
        result = None
        with self.disk.stops_after(steps), contextlib.suppress(PowerCut):
            result = self.runner.run(work)
        if not self.disk.is_off:
            return True, result
        self.disk.tear(self.root)
        self.open()
        self.doubted = True
        return False, None

    steps = st.none() | st.integers(0, 14)

    @rule(place=st.sampled_from(PLACES), steps=steps)
    def receive(self, place: Place, steps: int | None) -> None:
        content = KEYS[place[1]]
        done, _ = self.attempt(self.store.receive(*place, pieces(content), max_size=10**9, size=len(content)), steps)
        if done:
            self.known[place] = Known.THERE
        elif self.known[place] is Known.GONE:
            self.known[place] = Known.UNKNOWN

    @rule(place=st.sampled_from(PLACES), steps=steps)
    def receive_something_else(self, place: Place, steps: int | None) -> None:
        async def refused() -> None:
            with pytest.raises(InvalidInput):
                await self.store.receive(*place, pieces(b"something else"), max_size=10**9)

        self.attempt(refused(), steps)

    @rule(place=st.sampled_from(PLACES), steps=steps, hashed=st.booleans())
    def adopt(self, place: Place, steps: int | None, hashed: bool) -> None:
        file = self.store.temporary()
        file.write_bytes(KEYS[place[1]])
        self.disk.written(file)
        sha256 = place[1].sha256 if hashed else None
        done, _ = self.attempt(self.store.adopt(*place, file, sha256=sha256), steps)
        if done:
            self.known[place] = Known.THERE
        elif self.known[place] is Known.GONE:
            self.known[place] = Known.UNKNOWN

    @rule(place=st.sampled_from(PLACES), steps=steps)
    def share(self, place: Place, steps: int | None) -> None:
        others = [self.known[other] for other in PLACES if other != place and other[1].sha256 == place[1].sha256]
        done, shared = self.attempt(self.store.share(*place), steps)
        if done and Known.THERE in others:
            assert shared
        if done and set(others) == {Known.GONE}:
            assert not shared
        if done and shared:
            self.known[place] = Known.THERE
        elif not done and self.known[place] is Known.GONE:
            self.known[place] = Known.UNKNOWN

    @rule(places=st.lists(st.sampled_from(list(KEYS)), min_size=1), owner=st.sampled_from(OWNERS), steps=steps)
    def delete(self, owner: JobId, places: list[BlobKey], steps: int | None) -> None:
        done, _ = self.attempt(self.store.delete(owner, places), steps)
        for key in places:
            if done:
                self.known[owner, key] = Known.GONE
            elif self.known[owner, key] is Known.THERE:
                self.known[owner, key] = Known.UNKNOWN

    @rule(owner=st.sampled_from(OWNERS), steps=steps)
    def delete_owner(self, owner: JobId, steps: int | None) -> None:
        done, _ = self.attempt(self.store.delete_owner(owner), steps)
        for key in KEYS:
            if done:
                self.known[owner, key] = Known.GONE
            elif self.known[owner, key] is Known.THERE:
                self.known[owner, key] = Known.UNKNOWN

    @rule(number=st.integers(0, 7), damage=st.sampled_from(["torn", "empty", "longer", "flipped"]))
    def damage(self, number: int, damage: str) -> None:
        """Of a file that is there, if there is any."""
        files = [self.root / owner / str(key) for owner, key in PLACES]
        files = [file for file in files if file.exists()]
        if not files:
            return
        file = files[number % len(files)]
        status, content = file.stat(), file.read_bytes()
        changed = {
            "torn": content[: len(content) // 2],
            "empty": b"",
            "longer": content + b"x",
            "flipped": content[:-1] + bytes([content[-1] ^ 1]) if content else b"x",
        }[damage]
        file.write_bytes(changed)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
        for other in PLACES:
            path = self.root / other[0] / str(other[1])
            if path.exists() and path.stat().st_ino == status.st_ino:
                self.known[other] = Known.UNKNOWN

    @rule()
    def reopen(self) -> None:
        self.open()

    @rule(place=st.sampled_from(PLACES))
    def read(self, place: Place) -> None:
        self.look(place)

    @rule()
    def read_all_that_is_doubtful(self) -> None:
        for place, known in list(self.known.items()):
            if known is Known.UNKNOWN:
                self.look(place)

    @invariant()
    def listing_is_true(self) -> None:
        if not hasattr(self, "store"):
            return
        listed = {
            (owner, stored.key) for owner, blobs in self.runner.run(self.store.listing()).items() for stored in blobs
        }
        for place, known in self.known.items():
            assert known is Known.UNKNOWN or (known is Known.THERE) == (place in listed), place

    @invariant()
    def all_that_was_stored_survives_a_power_cut(self) -> None:
        if getattr(self, "doubted", False):
            self.doubted = False
            for place, known in list(self.known.items()):
                if known is Known.THERE:
                    self.look(place)

    def look(self, place: Place) -> None:
        content: bytes | None = None
        with contextlib.suppress(Absent, DamagedBlob):
            content = self.runner.run(self.store.path(*place)).read_bytes()
        if content is None:
            assert self.known[place] is not Known.THERE
            self.known[place] = Known.GONE
        else:
            assert self.known[place] is not Known.GONE
            assert content == KEYS[place[1]]
            self.known[place] = Known.THERE


async def pieces(content: bytes) -> AsyncIterator[bytes]:
    for begin in range(0, len(content), 300_000):
        yield content[begin : begin + 300_000]


TestBlobFiles = pytest.mark.req("BLOB-3")(BlobFilesMachine.TestCase)
TestBlobFiles.settings = settings(max_examples=examples(25), stateful_step_count=40, deadline=None)
