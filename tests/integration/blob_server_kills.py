"""Kills a BLOB server at each of its steps, one after the other, and looks at what its next life makes of it.

A step is one use of a file below the stores (opening, renaming, linking, deleting, … told by the interpreter's audit
events) or one chunk of an upload. Each life is forked from this process, which has imported everything and runs
nothing. Prints a summary as JSON:

    python tests/integration/blob_server_kills.py <directory>
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from emberkeep.adapters.blobs.files import BlobFiles
from emberkeep.adapters.blobs.ha_store import open_blob_storage
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobContent, BlobKey, permanent
from emberkeep.jobmanager.blobs.server import BlobServer
from tests.support.memory_blobs import always_leads

RECOVERIES = (0.4, 0.8)  # shares of the first life's steps, after which the second one is killed at each of its own
LIFE_SECONDS = 120
CHUNK = 500

A, B, C, D, E = (JobId(letter * 32) for letter in "abcde")
SCRIPT, WHEEL, ARCHIVE, SECOND_SCRIPT, ORPHAN, MESSAGE = (
    (name * 400).encode() for name in ("script", "wheel", "archive", "second", "orphan", "message")
)
FILES = {A: (SCRIPT, WHEEL, ARCHIVE), B: (SCRIPT, SECOND_SCRIPT)}
STEPS = {
    "open",
    "os.chmod",
    "os.link",
    "os.listdir",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.scandir",
    "os.truncate",
    "shutil.rmtree",
}

Tell = Callable[[str], None]
Life = Callable[[Path, Tell], Awaitable[None]]


def key_of(content: bytes) -> BlobKey:
    return permanent(hashlib.sha256(content).hexdigest())


def announced(contents: tuple[bytes, ...]) -> list[BlobContent]:
    return [BlobContent(sha256=key_of(content).sha256, size=len(content)) for content in contents]


class Executioner:
    """Counts this process's steps and kills it at the ``at``-th; 0: never."""

    def __init__(self) -> None:
        self.root = "/nowhere"
        self.at = 0
        self.count = 0

    def watch(self, event: str, arguments: tuple[object, ...]) -> None:
        if event in STEPS and any(isinstance(one, str) and one.startswith(self.root) for one in map(_text, arguments)):
            self.step()

    def step(self) -> None:
        self.count += 1
        if self.count == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


def _text(argument: object) -> object:
    return os.fspath(argument) if isinstance(argument, os.PathLike) else argument


EXECUTIONER = Executioner()


# --- lives ------------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def serving(root: Path, jobs: list[JobId], ended: list[JobId]) -> AsyncIterator[BlobServer]:
    ha = open_blob_storage(str(root / "ha"))
    server = BlobServer(Configuration(), BlobFiles(root / "local"), ha, confirm=always_leads)
    await server.open(jobs, ended)
    running = asyncio.create_task(server.run())
    await asyncio.sleep(0)
    try:
        yield server
        server.check_invariants()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def put(server: BlobServer, owner: JobId, content: bytes) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(content), CHUNK):
            EXECUTIONER.step()
            yield content[start : start + CHUNK]

    await server.upload(owner, key_of(content), chunks(), size=len(content))


async def submit(server: BlobServer, owner: JobId, tell: Tell) -> None:
    contents = FILES[owner]
    missing = await server.open_group(owner, announced(contents))
    for content in contents:
        if key_of(content).sha256 in missing:
            await put(server, owner, content)
    await server.claim(owner, announced(contents))
    tell(f"durable {owner}")
    server.job_submitted(owner, [key_of(content) for content in contents])


async def first_life(root: Path, tell: Tell) -> None:
    """Everything that a server does: jobs come and end, clients vanish, messages, damage, clean-up, an orderly exit."""
    async with serving(root, [], []) as server:
        await submit(server, A, tell)
        message = await server.store_bytes(A, MESSAGE, ["tm-1", "tm-2"])
        await submit(server, B, tell)
        await put(server, C, ORPHAN)
        await server.open_group(D, announced((ORPHAN, SCRIPT, WHEEL)))
        server.release(A, message, "tm-1")
        server.release(A, message, "tm-2")
        for _ in range(2):
            await server.collect()
        damage(root)
        for content in FILES[A]:
            assert (await server.path(A, key_of(content))).read_bytes() == content
        assert (await server.verify()).findings == ()
        server.job_restarting(A, 1)
        tell(f"ended {B}")
        server.job_ended(B)
        for _ in range(4):
            await server.collect()
        await server.close()
        assert not list((root / "local").glob("?" * 32)), "an orderly exit leaves nothing in the local store"


def damage(root: Path) -> None:
    """One local file is lost, one is flipped."""
    local = root / "local" / A
    (local / str(key_of(SCRIPT))).unlink(missing_ok=True)
    flipped = local / str(key_of(WHEEL))
    flipped.unlink(missing_ok=True)
    flipped.write_bytes(WHEEL[::-1])


@dataclass
class JobStore:
    """What is durable about jobs: told by the lives, survives them."""

    durable: set[JobId] = field(default_factory=set)
    ended: set[JobId] = field(default_factory=set)

    @property
    def unfinished(self) -> list[JobId]:
        return sorted(self.durable - self.ended)

    def take(self, line: str) -> None:
        what, owner = line.split()
        (self.durable if what == "durable" else self.ended).add(JobId(owner))

    def next_life(self, root: Path, tell: Tell) -> Awaitable[None]:
        return next_life(root, self.unfinished, sorted(self.ended))


async def next_life(root: Path, unfinished: list[JobId], ended: list[JobId]) -> None:
    """Recovers, and checks what must be true whatever moment the last life ended at."""
    check_whole(root)
    async with serving(root, unfinished, ended) as server:
        for owner in sorted(FILES.keys() - {*unfinished, *ended}):  # their clients try again, and cancel then
            await submit(server, owner, lambda _: None)
            assert stored(root / "ha")[owner] >= {str(key_of(content)) for content in FILES[owner]}
            server.job_ended(owner)
        server.give_up(server.unknown_owners())  # as the storage's keeper does, after a period
        await server.collect()
        for owner in unfinished:
            keys = [key_of(content) for content in FILES[owner]]
            server.job_submitted(owner, keys)
            for content in FILES[owner]:
                assert (await server.path(owner, key_of(content))).read_bytes() == content
        for _ in range(2):
            await server.collect()
        wanted = {owner: {str(key_of(content)) for content in FILES[owner]} for owner in unfinished}
        # What a job leaves is deleted beside the clean-up.
        await holds(lambda: stored(root / "ha") == wanted, "what is referenced is kept, all else is gone")
        await holds(lambda: stored(root / "local") == wanted, "what is referenced is kept here, all else is gone")
        await holds(lambda: not list((root / "local" / ".incoming").iterdir()), "no transfer leaves anything")
        await server.open_group(E, announced((ORPHAN,)))
        await put(server, E, ORPHAN)
        assert (await server.path(E, key_of(ORPHAN))).read_bytes() == ORPHAN
        server.job_ended(E)
        assert await server.collect() == 0
        for owner in unfinished:
            assert not (await server.verify(owner)).findings


async def holds(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIFE_SECONDS / 2
    while not condition():
        assert time.monotonic() < deadline, f"not so: {what}"
        await asyncio.sleep(0.02)


def stored(store: Path) -> dict[str, set[str]]:
    """Return names of files by directory, without transfers, and without a directory that is deleted meanwhile."""
    found = {}
    for directory in store.iterdir() if store.exists() else ():
        with contextlib.suppress(FileNotFoundError):
            if not directory.name.startswith("."):
                found[directory.name] = {path.name for path in directory.iterdir()}
    found.pop(E, None)
    return found


def check_whole(root: Path) -> None:
    """Nothing partial has the name of a BLOB. What ``damage`` has spoiled is found when it is read."""
    for path in [*root.glob("local/?*/*"), *root.glob("ha/?*/*")]:
        if path.parent.name.startswith(".") or path == root / "local" / A / str(key_of(WHEEL)):
            continue
        content = path.read_bytes()
        assert path.name[2:] == hashlib.sha256(content).hexdigest(), f"{path} is partial"


# --- processes --------------------------------------------------------------------------------------------------------


def live(root: Path, life: Life, jobs: JobStore, kill_at: int = 0) -> tuple[bool, str]:
    """Fork a life; returns whether it was killed at that step, and what went wrong in it."""
    told_read, told_write = os.pipe()
    error_read, error_write = os.pipe()
    child = os.fork()
    if child == 0:
        _run(root, life, kill_at, told_write, error_write)
    os.close(told_write)
    os.close(error_write)
    with os.fdopen(told_read) as lines, os.fdopen(error_read) as errors:
        for line in lines:
            jobs.take(line)
        error = errors.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return number == signal.SIGKILL, "" if number == signal.SIGKILL else f"ended by signal {number}"
    return False, error


def _run(root: Path, life: Life, kill_at: int, told: int, errors: int) -> None:
    """The forked process; does not return."""
    signal.alarm(LIFE_SECONDS)
    EXECUTIONER.root, EXECUTIONER.at, EXECUTIONER.count = str(root), kill_at, 0
    try:
        asyncio.run(life(root, lambda line: _write(told, f"{line}\n")))  # type: ignore[arg-type]
    except (AssertionError, EmberkeepError, OSError, RuntimeError, BaseExceptionGroup):
        _write(errors, traceback.format_exc())
    finally:
        os._exit(0)


def _write(descriptor: int, text: str) -> None:
    os.write(descriptor, text.encode())


def enumerate_kills(root: Path) -> tuple[int, int, list[str]]:
    """Kill the first life at each step; then, in some of the states that leaves, the second one at each of its own."""
    failures: list[str] = []
    kills = _kill_first_lives(root, failures)
    recovery_kills = 0
    for share in RECOVERIES if not failures else ():
        recovery_kills += _kill_second_lives(root, int(share * kills), failures)
    return kills, recovery_kills, failures


def _kill_first_lives(root: Path, failures: list[str]) -> int:
    at = 0
    while not failures:
        at += 1
        jobs, here = JobStore(), root / f"first-{at}"
        here.mkdir()
        killed, error = live(here, first_life, jobs, at)
        if error:
            failures.append(f"first life, to be killed at step {at}: {error}")
        _, error = live(here, jobs.next_life, jobs)
        if error:
            failures.append(f"after a kill at step {at}: {error}")
        else:
            shutil.rmtree(here)
        if not killed:
            break
    return at - 1


def _kill_second_lives(root: Path, first_at: int, failures: list[str]) -> int:
    at = 0
    while not failures:
        at += 1
        jobs, here = JobStore(), root / f"second-{first_at}-{at}"
        here.mkdir()
        live(here, first_life, jobs, first_at)
        killed, error = live(here, jobs.next_life, jobs, at)
        for _ in range(2):
            error = error or live(here, jobs.next_life, jobs)[1]
        if error:
            failures.append(f"after kills at step {first_at} and at step {at} of the next life: {error}")
        else:
            shutil.rmtree(here)
        if not killed:
            break
    return at - 1


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    sys.addaudithook(EXECUTIONER.watch)
    kills, recovery_kills, failures = enumerate_kills(Path(sys.argv[1]))
    sys.stdout.write(json.dumps({"kills": kills, "recovery_kills": recovery_kills, "failures": failures}))


if __name__ == "__main__":
    main()
