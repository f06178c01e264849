"""Uploads and downloads of BLOBs on loopback, through a real JobManager and the adapters that task managers use.

Everything is verified by SHA-256, and what is stored is durable before it is acknowledged. The limit is the same work
by hand in the same order: sendfile on one side, recv into a file on the other, one SHA-256, one sync.
"""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import secrets
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.blobs import swarm
from bench.blobs.limits import Limits, limits_server, make_durable
from bench.commands import temporary_directory
from bench.daemons import Server, job_manager
from bench.load.reply_times import WorstReply
from bench.measure import Figure, Goal, ratios
from bench.plan import Plan, say
from emberkeep.adapters.blobs.client import BlobThreads, HttpBlobSource, HttpBlobUploads, blob_path
from emberkeep.adapters.blobs.files import BlobFiles
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobKey, permanent, transient

_AT_ONCE = 16  # small BLOBs, in each direction
_SMALL = 16 * 1024
_LIMIT = 2**40
_MB = 1e6


@dataclass
class _Samples:
    """Of one figure: ours beside the limit, in the same unit."""

    ours: list[float] = field(default_factory=list)
    limit: list[float] = field(default_factory=list)

    def figures(self, name: str, unit: str, *, share: Goal | None = None, rate: Goal | None = None) -> list[Figure]:
        return [
            Figure(name, unit, tuple(self.ours), rate),
            Figure(f"{name}: limit", unit, tuple(self.limit)),
            Figure(f"{name}: ours / limit", "×", ratios(self.ours, self.limit), share),
        ]


@dataclass
class _Found:
    """All samples of all repetitions."""

    up: _Samples = field(default_factory=_Samples)
    up_both: _Samples = field(default_factory=_Samples)
    down: _Samples = field(default_factory=_Samples)
    cached: _Samples = field(default_factory=_Samples)
    small_up: _Samples = field(default_factory=_Samples)
    small_down: _Samples = field(default_factory=_Samples)
    small_cached: _Samples = field(default_factory=_Samples)
    copied: list[float] = field(default_factory=list)
    small_copied: list[float] = field(default_factory=list)
    up_cpu: list[float] = field(default_factory=list)  # µs of the JobManager's for each small BLOB
    down_cpu: list[float] = field(default_factory=list)
    quiet: list[float] = field(default_factory=list)
    beside_limit: list[float] = field(default_factory=list)
    beside_ours: list[float] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)  # ms, of the event loop for a processor, in the same time


@dataclass
class _Bench:
    """What one repetition works with."""

    server: Server
    limits: str
    served: Path  # the limits' server's directory
    directory: Path
    source: HttpBlobSource
    uploads: HttpBlobUploads

    def path(self, name: str) -> Path:
        return self.directory / name


def measure(plan: Plan) -> list[Figure]:
    """One large BLOB and many small ones, each way; then peers."""
    size, count = plan.size(256, 32) * 1024**2, plan.size(2_000, 200)
    found = _Found()
    for _ in plan.turns("blobs"):
        with temporary_directory() as directory:
            (directory / "state").mkdir()
            with job_manager(directory / "state") as server, limits_server(directory / "limits") as limits:
                asyncio.run(_repetition(server, limits, directory, size, count, found))
    large, share = f"{size // 1024**2} MiB", Goal(at_least=0.85)
    small = f"{count:,} of 16 KiB"
    return [
        *found.up.figures(f"{large} up, local store", "MB/s", share=share),
        *found.up_both.figures(f"{large} up, local and HA store", "MB/s", share=share),
        *found.down.figures(f"{large} down, into a file", "MB/s", share=share),
        *found.cached.figures(f"{large} down, into a cache", "MB/s", share=share),
        Figure(f"{large}: cp, sync, sha256sum", "MB/s", tuple(found.copied)),
        *found.small_up.figures(f"{small} up", "1/s", rate=Goal(at_least=1000)),
        *found.small_down.figures(f"{small} down, into files", "1/s", rate=Goal(at_least=3000)),
        *found.small_cached.figures(f"{small} down, into a cache", "1/s"),
        Figure(f"{small}: cp, sync, sha256sum", "1/s", tuple(found.small_copied)),
        Figure(f"{small} up: CPU time of the JobManager for each", "µs", tuple(found.up_cpu)),
        Figure(f"{small} down: CPU time of the JobManager for each", "µs", tuple(found.down_cpu)),
        Figure("worst reply of the JobManager, idle", "ms", tuple(found.quiet)),
        Figure("worst reply beside a large transfer of the limit's", "ms", tuple(found.beside_limit)),
        Figure("worst reply beside a large transfer of its own", "ms", tuple(found.beside_ours)),
        Figure("in that time its event loop waited for a processor", "ms", tuple(found.waited)),
        *swarm.measure(plan),
    ]


async def _repetition(server: Server, limits: str, directory: Path, size: int, count: int, found: _Found) -> None:
    threads = BlobThreads(server.token)
    try:
        bench = _Bench(
            server,
            limits,
            directory / "limits",
            directory,
            HttpBlobSource(threads, lambda: server.address, max_size=_LIMIT),
            HttpBlobUploads(threads, lambda: server.address),
        )
        say("  large")
        await _large(bench, size, found)
        say("  small")
        await _small(bench, count, found)
    finally:
        threads.close()


# --- one large BLOB ---------------------------------------------------------------------------------------------------


async def _large(bench: _Bench, size: int, found: _Found) -> None:
    file = bench.path("large")
    sha256 = await asyncio.to_thread(_make_file, file, size)
    owner, rate = JobId(secrets.token_hex(16)), size / _MB
    limit = Limits(bench.limits)
    worst = WorstReply(bench.server)
    found.quiet.append(await worst.during(asyncio.sleep(1.0)))

    def limit_up(*, twice: bool) -> None:
        limit.put(file, sha256, twice=twice)

    sample = await _timed(worst.during(asyncio.to_thread(limit_up, twice=False)))
    found.up.limit.append(rate / sample.seconds)
    found.beside_limit.append(sample.result)
    waited = worst.waited()
    sample = await _timed(worst.during(_put(bench, owner, transient(sha256), file)))
    found.waited.append(worst.waited() - waited)
    found.up.ours.append(rate / sample.seconds)
    found.beside_ours.append(sample.result)

    found.up_both.limit.append(rate / (await _timed(asyncio.to_thread(limit_up, twice=True))).seconds)
    found.up_both.ours.append(rate / (await _timed(_put(bench, owner, permanent(sha256), file))).seconds)

    (bench.served / f"{sha256}.stored").rename(bench.served / sha256)
    copy = bench.path("copy")
    found.down.limit.append(rate / (await _timed(asyncio.to_thread(limit.get, copy, size, sha256))).seconds)
    copy.unlink()
    key = transient(sha256)
    found.down.ours.append(rate / (await _timed(bench.source.download(owner, key, copy))).seconds)
    copy.unlink()

    def limit_into_cache() -> None:
        limit.get(copy, size, sha256)
        make_durable(copy, bench.path("durable"))

    found.cached.limit.append(rate / (await _timed(asyncio.to_thread(limit_into_cache))).seconds)
    bench.path("durable").unlink()
    cache = BlobFiles(bench.path("cache"))
    await cache.open_store()
    found.cached.ours.append(rate / (await _timed(_into_cache(bench, cache, owner, key))).seconds)
    await cache.delete_owner(owner)
    command = f"cp {file} {copy} && sync {copy} && sha256sum {copy}"
    found.copied.append(rate / (await _timed(asyncio.to_thread(_shell, command))).seconds)
    copy.unlink()
    limit.close()


async def _put(bench: _Bench, owner: JobId, key: BlobKey, file: Path) -> None:
    """The transfer alone: whoever uploads has hashed the file before, to know its key."""

    def work() -> int:
        connection = http.client.HTTPConnection(bench.server.address, timeout=300)
        with closing(connection), file.open("rb") as opened:
            connection.putrequest("PUT", blob_path(owner, key))
            connection.putheader("Authorization", f"Bearer {bench.server.token}")
            connection.putheader("Content-Type", "application/octet-stream")
            connection.putheader("Content-Length", str(file.stat().st_size))
            connection.endheaders()
            connection.sock.sendfile(opened)
            return connection.getresponse().status

    status = await asyncio.to_thread(work)
    if status != 201:
        raise SystemExit(f"an upload was answered with {status}: a bug, so there is no measurement")


async def _into_cache(bench: _Bench, cache: BlobFiles, owner: JobId, key: BlobKey) -> None:
    file = cache.temporary()
    sha256 = await bench.source.download(owner, key, file)
    await cache.adopt(owner, key, file, sha256=sha256)


# --- many small ones --------------------------------------------------------------------------------------------------


async def _small(bench: _Bench, count: int, found: _Found) -> None:
    contents = [secrets.token_bytes(_SMALL) for _ in range(count)]
    keys = [transient(hashlib.sha256(content).hexdigest()) for content in contents]
    files = bench.path("small")
    files.mkdir()
    for key, content in zip(keys, contents, strict=True):
        (files / key.sha256).write_bytes(content)
    owner = JobId(secrets.token_hex(16))
    with _limits_pool(bench) as at_limit:

        def limit_up(limit: Limits, key: BlobKey) -> None:
            limit.put(files / key.sha256, key.sha256)

        def limit_down(limit: Limits, key: BlobKey) -> None:
            limit.get(copies / key.sha256, _SMALL, key.sha256)

        def limit_cached(limit: Limits, key: BlobKey) -> None:
            limit_down(limit, key)
            make_durable(copies / key.sha256, copies / f"{key.sha256}.stored")

        async def up(index: int) -> None:
            await bench.uploads.put_bytes(owner, contents[index], ())

        async def down(index: int) -> None:
            await bench.source.download(owner, keys[index], copies / keys[index].sha256)

        async def cached(index: int) -> None:
            await _into_cache(bench, cache, owner, keys[index])

        found.small_up.limit.append(await at_limit(limit_up, keys))
        before = bench.server.cpu_seconds()
        found.small_up.ours.append(await _all_at_once(up, count))
        found.up_cpu.append((bench.server.cpu_seconds() - before) / count * 1e6)
        for key in keys:
            (bench.served / f"{key.sha256}.stored").rename(bench.served / key.sha256)
        copies = _new(bench.path("limit-copies"))
        found.small_down.limit.append(await at_limit(limit_down, keys))
        copies = _new(bench.path("copies"))
        before = bench.server.cpu_seconds()
        found.small_down.ours.append(await _all_at_once(down, count))
        found.down_cpu.append((bench.server.cpu_seconds() - before) / count * 1e6)
        copies = _new(bench.path("limit-cached"))
        found.small_cached.limit.append(await at_limit(limit_cached, keys))
        cache = BlobFiles(bench.path("small-cache"))
        await cache.open_store()
        found.small_cached.ours.append(await _all_at_once(cached, count))
    target = bench.path("cp")
    command = f"cp -r {files} {target} && sync --file-system {target} && cd {target} && sha256sum * > ../sums"
    found.small_copied.append(count / (await _timed(asyncio.to_thread(_shell, command))).seconds)


async def _all_at_once(work: Callable[[int], Awaitable[None]], count: int) -> float:
    """How many per second."""
    waiting = iter(range(count))

    async def go_on() -> None:
        for index in waiting:
            await work(index)

    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(go_on())
    return count / (time.perf_counter() - begin)


_AtLimit = Callable[[Callable[[Limits, BlobKey], None], Sequence[BlobKey]], Awaitable[float]]


@contextmanager
def _limits_pool(bench: _Bench) -> Iterator[_AtLimit]:
    """As many connections to the limits' server as there are threads that use them: 8, as BlobThreads has."""
    connections = [Limits(bench.limits) for _ in range(8)]
    with ThreadPoolExecutor(len(connections)) as pool:

        async def run(work: Callable[[Limits, BlobKey], None], keys: Sequence[BlobKey]) -> float:
            waiting = iter(list(keys))

            def go_on(limit: Limits) -> None:
                for key in waiting:
                    work(limit, key)

            begin = time.perf_counter()
            loop = asyncio.get_running_loop()
            await asyncio.gather(*(loop.run_in_executor(pool, go_on, limit) for limit in connections))
            return len(keys) / (time.perf_counter() - begin)

        try:
            yield run
        finally:
            for connection in connections:
                connection.close()


# --- small parts ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Timed:
    seconds: float
    result: float


async def _timed(work: Awaitable[float | str | None]) -> _Timed:
    begin = time.perf_counter()
    result = await work
    return _Timed(time.perf_counter() - begin, result if isinstance(result, float) else 0.0)


def _make_file(path: Path, size: int) -> str:
    """Random bytes, in the page cache and on disk; returns their SHA-256."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for _ in range(size // 1024**2):
            piece = secrets.token_bytes(1024**2)
            digest.update(piece)
            file.write(piece)
    subprocess.run(["sync", str(path)], check=True)
    return digest.hexdigest()


def _shell(command: str) -> None:
    subprocess.run(["sh", "-c", command], check=True, stdout=subprocess.DEVNULL)


def _new(directory: Path) -> Path:
    directory.mkdir()
    return directory
