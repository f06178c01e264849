"""The limits of a JobManager at their real size: filled up to each, one more asked for, and nothing lost.

Each limit has a JobManager of its own, with its job store in SQLite and all limits at their defaults. Task managers
exist as messages only, and jobs wait for them. What is beyond a limit must be refused, and what was accepted must be
there: a figure exists only if both are so. Jobs must also be there after the JobManager has been killed.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from bench.commands import JOBS, temporary_directory
from bench.daemons import Server, job_manager
from bench.load.simulated import registration, task_manager
from bench.load.submissions import another
from bench.measure import Figure
from bench.plan import Plan, say
from emberkeep.adapters.http.rpc import HttpRpcClient
from emberkeep.base.configuration.options.blobs import BLOB_MAX_COUNT, BLOB_MAX_SIZE
from emberkeep.base.configuration.options.job_managers import MAX_JOBS, MAX_TASK_MANAGERS
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobContent, BlobKey, BlobKind
from emberkeep.blocklist.model import BlockAction
from emberkeep.client.rest_client import RestClient
from emberkeep.client.submission.preparation import PreparedJob, Program, prepare, upload
from emberkeep.client.submission.spark_options import SparkOptions
from emberkeep.protocol.messages.task_managers import TaskManagerRegistered
from emberkeep.protocol.rest_blocklist import BlockRequest
from emberkeep.rest.blobs.blobs import MAX_GROUP
from emberkeep.rest.jobs.submission_checks import MAX_ARTEFACTS
from emberkeep.rest.serving.waiting import MAX_WAITING
from tests.support.no_progress import NoProgress

_CLIENTS = 16
_WAITS = {"slot.request.timeout": "0s"}  # otherwise jobs that wait fail before all have been submitted
_SILENT = ("heartbeat.timeout=1h",)  # these task managers send no heartbeats
_CHUNK = bytes(1024**2)


@dataclass(frozen=True)
class _Filled:
    """``count``: how many were accepted, within ``seconds``, before one more was refused."""

    count: int
    seconds: float
    mebibytes: float  # memory of the JobManager then


def measure(plan: Plan) -> list[Figure]:
    """Fill a JobManager to each of its limits, once."""
    figures: list[Figure] = []
    with temporary_directory() as directory:
        figures += _jobs(directory / "jobs", plan.size(MAX_JOBS.default, 200), plan)
        figures += _task_managers(directory / "task-managers", plan.size(MAX_TASK_MANAGERS.default, 200), plan)
        figures += _blocked(directory / "blocked", plan.size(100_000, 50))
        figures += _blobs(directory / "blobs", plan.size(BLOB_MAX_COUNT.default, 20_000), plan)
        figures += _streams(directory / "streams")
        figures += _large_blob(directory / "large-blob", plan.size(BLOB_MAX_SIZE.default, 64 * 1024**2), plan)
        figures += _files(directory / "files")
    return figures


# --- each limit -------------------------------------------------------------------------------------------------------


def _jobs(directory: Path, limit: int, plan: Plan) -> list[Figure]:
    options = _limit(plan, f"{MAX_JOBS.key}={limit}")
    prepared = prepare(Program(str(JOBS / "tiny.py"), None, ()), SparkOptions(), _WAITS, {})
    with job_manager(directory, settings=options) as server:
        filled = asyncio.run(_fill(server, limit, lambda client, _: _submit(client, prepared), "jobs"))
        listed = asyncio.run(_listed(server, lambda client: client.jobs(), limit, "jobs"))
        server.process.kill()
        server.process.wait()
    began = time.monotonic()
    with job_manager(directory, settings=options) as server:
        asyncio.run(_listed(server, lambda client: client.jobs(), limit, "jobs after a kill"))
        back = time.monotonic() - began
    return [
        *_figures("jobs that wait", filled),
        Figure("jobs that wait: all are listed", "s", (listed,)),
        Figure("jobs that wait: JobManager killed and started → all are listed", "s", (back,)),
    ]


def _task_managers(directory: Path, limit: int, plan: Plan) -> list[Figure]:
    options = (*_limit(plan, f"{MAX_TASK_MANAGERS.key}={limit}"), *_SILENT)

    async def fill(server: Server) -> tuple[_Filled, float]:
        rpc = HttpRpcClient(server.token, connections_per_peer=_CLIENTS)

        async def register(_: RestClient, number: int) -> None:
            message = registration(task_manager(number))
            await rpc.call(server.address, message, TaskManagerRegistered, timeout=60.0)

        try:
            filled = await _fill(server, limit, register, "task managers")
        finally:
            await rpc.close()
        return filled, await _listed(server, lambda client: client.task_managers(), limit, "task managers")

    with job_manager(directory, settings=options) as server:
        filled, listed = asyncio.run(fill(server))
    return [
        *_figures("task managers", filled),
        Figure("task managers: all are listed", "s", (listed,)),
    ]


def _blocked(directory: Path, most: int) -> list[Figure]:
    """The limit is the size of the list, so that many are blocked until one is refused. ``most``: for a quick look."""
    request = BlockRequest(action=BlockAction.MARK_BLOCKED, cause="its disk is failing, ticket 4711")

    async def fill(server: Server) -> tuple[_Filled, float]:
        async def block(client: RestClient, number: int) -> None:
            await client.block(f"node-{number:05d}.cluster.example.com", request)

        filled = await _fill(server, most, block, "blocked nodes", clients=1, until_refused=True)

        async def entries(client: RestClient) -> Sequence[object]:
            return list((await client.blocklist()).blocked_nodes)

        return filled, await _listed(server, entries, filled.count, "blocked nodes")

    with job_manager(directory) as server:
        filled, listed = asyncio.run(fill(server))
    return [*_figures("blocked nodes", filled), Figure("blocked nodes: all are listed", "s", (listed,))]


def _blobs(directory: Path, limit: int, plan: Plan) -> list[Figure]:
    options = _limit(plan, f"{BLOB_MAX_COUNT.key}={limit}")

    async def announce(client: RestClient, _: int) -> None:
        contents = [BlobContent(sha256=secrets.token_hex(32), size=1) for _ in range(MAX_GROUP)]
        await client.blobs.open_group(JobId(secrets.token_hex(16)), contents)

    with job_manager(directory, settings=options) as server:
        filled = asyncio.run(_fill(server, limit // MAX_GROUP, announce, "groups of BLOBs", clients=1))
    return _figures("announced BLOBs", _Filled(filled.count * MAX_GROUP, filled.seconds, filled.mebibytes))


def _streams(directory: Path) -> list[Figure]:
    async def fill(server: Server) -> _Filled:
        async with AsyncExitStack() as stack:
            connector = aiohttp.TCPConnector(limit=0)
            headers = {"Authorization": f"Bearer {server.token}"}
            session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector, headers=headers))

            async def follow(_: RestClient, __: int) -> None:
                stream = await stack.enter_async_context(session.get(f"http://{server.address}/v1/events/stream"))
                if stream.status != 200:
                    raise EmberkeepError((await stream.text()).strip())

            return await _fill(server, MAX_WAITING, follow, "event streams")

    with job_manager(directory) as server:
        return _figures("event streams", asyncio.run(fill(server)))


def _large_blob(directory: Path, limit: int, plan: Plan) -> list[Figure]:
    options = _limit(plan, f"{BLOB_MAX_SIZE.key}={limit}b")

    async def put(client: RestClient, size: int) -> None:
        job, content = JobId(secrets.token_hex(16)), BlobContent(sha256=_sha256_of_zeros(size), size=size)
        await client.blobs.open_group(job, [content])
        key = BlobKey(kind=BlobKind.PERMANENT, sha256=content.sha256)
        await client.blobs.upload(job, key, lambda: _zeros(size), size)

    async def fill(server: Server) -> _Filled:
        async with RestClient(server.endpoint, patience=0.0) as client:
            began = time.monotonic()
            await put(client, limit)
            seconds = time.monotonic() - began
            await _refused(put(client, limit + 1), "a BLOB that is one byte larger")
            return _Filled(limit // 1024**2, seconds, _mebibytes(server))

    say(f"limits: a BLOB of {limit // 1024**2:,} MiB")
    with job_manager(directory, settings=options) as server:
        filled = asyncio.run(fill(server))
    return _figures("MiB in one BLOB", filled)


def _files(directory: Path) -> list[Figure]:
    """The script is one of them."""
    place = directory / "files"
    place.mkdir(parents=True)
    paths = [place / f"file-{number}.txt" for number in range(MAX_ARTEFACTS)]
    for path in paths:
        path.write_text(path.name)

    def with_files(count: int) -> PreparedJob:
        files = SparkOptions(files=",".join(str(path) for path in paths[: count - 1]))
        return prepare(Program(str(JOBS / "tiny.py"), None, ()), files, _WAITS, {})

    async def fill(server: Server) -> _Filled:
        async with RestClient(server.endpoint, patience=0.0) as client:
            began = time.monotonic()
            await _submit(client, with_files(MAX_ARTEFACTS))
            seconds = time.monotonic() - began
            await _refused(_submit(client, with_files(MAX_ARTEFACTS + 1)), "a job with one file more")
            return _Filled(MAX_ARTEFACTS, seconds, _mebibytes(server))

    say(f"limits: a job of {MAX_ARTEFACTS:,} files")
    with job_manager(directory / "state") as server:
        return _figures("files of a job", asyncio.run(fill(server)))


# --- parts ------------------------------------------------------------------------------------------------------------


def _limit(plan: Plan, definition: str) -> tuple[str, ...]:
    """Return the settings: a full measurement leaves the limit at its default."""
    return (definition,) if plan.quick else ()


async def _fill(
    server: Server,
    limit: int,
    one: Callable[[RestClient, int], Awaitable[None]],
    what: str,
    *,
    clients: int = _CLIENTS,
    until_refused: bool = False,
) -> _Filled:
    """Ask for ``limit`` times ``one``, and once more, which must be refused. Raises SystemExit.

    ``until_refused``: the limit is not known. It is where the first one is refused, or ``limit``.
    """
    say(f"limits: {what}")
    began, done = time.monotonic(), 0
    async with RestClient(server.endpoint, patience=0.0) as client:
        numbers = iter(range(limit))

        async def work() -> None:
            nonlocal done
            for number in numbers:
                try:
                    await one(client, number)
                except EmberkeepError as error:
                    if not until_refused:
                        raise SystemExit(f"only {done:,} of {limit:,} {what} were accepted: {error}") from error
                    return
                done += 1

        await asyncio.gather(*(work() for _ in range(clients)))
        seconds = time.monotonic() - began
        if not until_refused or done < limit:
            await _refused(one(client, limit), f"{what}: one more than {done:,}")
    return _Filled(done, seconds, _mebibytes(server))


async def _refused(asked: Awaitable[None], what: str) -> None:
    try:
        await asked
    except EmberkeepError as error:
        say(f"  {what} is refused: {error}")
    else:
        raise SystemExit(f"{what}: was accepted")


async def _submit(client: RestClient, prepared: PreparedJob) -> None:
    await client.submit(await upload(client, another(prepared), NoProgress()))


async def _listed(
    server: Server, ask: Callable[[RestClient], Awaitable[Sequence[object]]], expected: int, what: str
) -> float:
    """Return how long the whole list takes, in seconds. Raises SystemExit if something is missing."""
    async with RestClient(server.endpoint, patience=60.0) as client:
        began = time.monotonic()
        found = len(await ask(client))
        seconds = time.monotonic() - began
    if found != expected:
        raise SystemExit(f"{found:,} of {expected:,} {what} are listed: some are lost")
    return seconds


def _mebibytes(server: Server) -> float:
    return server.resident_bytes() / 1024**2


def _figures(name: str, filled: _Filled) -> list[Figure]:
    return [
        Figure(f"{name}: accepted before one is refused", "", (float(filled.count),)),
        Figure(f"{name}: until then", "s", (filled.seconds,)),
        Figure(f"{name}: memory of the JobManager", "MiB", (filled.mebibytes,)),
    ]


async def _zeros(size: int) -> AsyncIterator[bytes]:
    for sent in range(0, size, len(_CHUNK)):
        yield _CHUNK[: size - sent]


def _sha256_of_zeros(size: int) -> str:
    digest = hashlib.sha256()
    for hashed in range(0, size, len(_CHUNK)):
        digest.update(_CHUNK[: size - hashed])
    return digest.hexdigest()
