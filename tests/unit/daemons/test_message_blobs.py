"""A job configuration of 64 MiB is deployed to three task managers: stored once, fetched by each, then gone.

And what may go wrong on the way: lost and repeated acknowledgements, receivers that die, jobs that fail or end.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NoReturn

import pytest

from emberkeep.base.errors import RetryLater, Unavailable, UnknownOutcome
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import NO_JOB, BlobKey, transient
from emberkeep.daemons.message_blobs import read
from emberkeep.jobs.model import EntryPoint, EntryPointKind, JobGraph, JobResources
from emberkeep.protocol.messages.root import Ack
from emberkeep.protocol.messages.task_managers import StartDriver
from tests.unit.daemons.message_sites import JobManagerSite, TaskManagerSite, job_manager_site, task_manager_site

pytestmark = [pytest.mark.anyio, pytest.mark.req("BLOB-19")]

JOB = JobId("0" * 31 + "7")
MIB = 1024**2
PATIENCE = 120.0  # seconds; no test waits for it


def start(size: int, *, attempt: int = 1) -> StartDriver:
    graph = JobGraph(
        job_id=JOB,
        name="large",
        entry_point=EntryPoint(kind=EntryPointKind.MODULE, name="app"),
        arguments=(),
        artefacts=(),
        spark_conf={"spark.large": "x" * size},
        options={},
        working_directory="/",
        resources=JobResources(
            driver_memory_mb=100,
            driver_overhead_mb=10,
            executors=1,
            executor_cores=1,
            executor_memory_mb=100,
            executor_overhead_mb=10,
        ),
        python="3.11",
        submitted_ms=0,
        idempotency_key="k",
    )
    return StartDriver(
        epoch=1, graph=graph, attempt=attempt, memory_mb=110, job_manager="127.0.0.1:1", checkpoint_root="/"
    )


@pytest.fixture
async def job_manager(tmp_path: Path) -> AsyncIterator[JobManagerSite]:
    async with job_manager_site(tmp_path / "jobmanager") as site:
        site.server.job_submitted(JOB, ())
        yield site


@pytest.fixture
async def task_managers(tmp_path: Path, job_manager: JobManagerSite) -> AsyncIterator[list[TaskManagerSite]]:
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(task_manager_site(tmp_path / f"tm-{number}", job_manager, number))
            for number in range(3)
        ]


async def deploy(job_manager: JobManagerSite, *receivers: TaskManagerSite, message: StartDriver) -> None:
    await asyncio.gather(
        *(job_manager.rpc.call(receiver.address, message, Ack, timeout=PATIENCE) for receiver in receivers)
    )


def started(site: TaskManagerSite) -> list[StartDriver]:
    return [request for request in site.launcher.started if isinstance(request, StartDriver)]


def stored(directory: Path) -> list[Path]:
    """The BLOB server's files of messages."""
    return [path for path in (directory / "jobmanager").rglob("t-*") if path.is_file()]


async def keys(job_manager: JobManagerSite) -> list[str]:
    return [str(view.key) for view in await job_manager.server.blobs(JOB)]


async def test_64_mib_to_three_task_managers(
    job_manager: JobManagerSite, task_managers: list[TaskManagerSite], tmp_path: Path
) -> None:
    message = start(64 * MIB)

    await deploy(job_manager, *task_managers, message=message)

    for site in task_managers:
        assert started(site) == [message]
        assert len(site.blobs.fetched) == len(site.blobs.released) == 1
        assert site.cache.report().received_bytes > 64 * MIB
    assert job_manager.server.statistics().uploads == 1
    assert len(await keys(job_manager)) == 1
    assert job_manager.references(JOB) == 0
    assert await job_manager.server.collect() == 0  # staged since the last receiver acknowledged
    assert await job_manager.server.collect() == 1
    assert await keys(job_manager) == []
    assert stored(tmp_path) == []
    for site in task_managers:
        await site.cache.collect()
        await site.cache.collect()
        assert site.cache.report().blobs == 0


async def test_large_parts_are_hashed_and_read_beside_the_event_loop(
    job_manager: JobManagerSite, task_managers: list[TaskManagerSite], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    hashed, read = hashlib.sha256, Path.read_bytes

    def sha256(data: bytes = b"") -> hashlib._Hash:
        if len(data) > MIB:
            threads.append(threading.current_thread().name)
        return hashed(data)

    def read_bytes(path: Path) -> bytes:
        threads.append(threading.current_thread().name)
        return read(path)

    monkeypatch.setattr(hashlib, "sha256", sha256)
    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    await deploy(job_manager, task_managers[0], message=start(2 * MIB))
    assert len(threads) >= 2
    assert threading.current_thread().name not in threads


async def test_a_repeated_message_is_a_delivery_of_its_own(
    job_manager: JobManagerSite, task_managers: list[TaskManagerSite]
) -> None:
    receiver = task_managers[0]
    for _ in range(3):
        await deploy(job_manager, receiver, message=start(2 * MIB))
    assert len(started(receiver)) == 1
    assert len(receiver.blobs.released) == 3
    assert job_manager.server.statistics().uploads == 1
    assert job_manager.references(JOB) == 0


async def test_an_acknowledgement_that_arrives_twice_counts_once(
    job_manager: JobManagerSite, task_managers: list[TaskManagerSite]
) -> None:
    first, second = task_managers[:2]
    first.blobs.acknowledges = False
    await deploy(job_manager, first, second, message=start(2 * MIB))
    key = second.blobs.released[0]
    for _ in range(3):
        await second.uploads.release(JOB, key, "message-" + "0" * 32)
    assert job_manager.references(JOB) == 1


async def test_a_lost_acknowledgement_keeps_the_blob_until_its_job_fails(
    job_manager: JobManagerSite, task_managers: list[TaskManagerSite]
) -> None:
    task_managers[0].blobs.acknowledges = False
    await deploy(job_manager, *task_managers, message=start(2 * MIB))
    assert job_manager.references(JOB) == 1
    await job_manager.server.collect()
    await job_manager.server.collect()
    assert len(await keys(job_manager)) == 1

    job_manager.server.job_restarting(JOB, 1)

    assert job_manager.references(JOB) == 0
    await job_manager.server.collect()
    await job_manager.server.collect()
    assert await keys(job_manager) == []


async def test_a_lost_acknowledgement_keeps_the_blob_at_most_until_its_job_has_ended(
    job_manager: JobManagerSite, task_managers: list[TaskManagerSite], tmp_path: Path
) -> None:
    task_managers[0].blobs.acknowledges = False
    await deploy(job_manager, *task_managers, message=start(2 * MIB))
    job_manager.server.job_ended(JOB)
    async with asyncio.timeout(PATIENCE):
        while stored(tmp_path) or await keys(job_manager):  # noqa: ASYNC110 - files tell nobody that they are gone
            await asyncio.sleep(0.01)


async def test_a_receiver_that_dies_before_it_acknowledges(
    job_manager: JobManagerSite, task_managers: list[TaskManagerSite]
) -> None:
    receiver, other = task_managers[:2]
    fetched = asyncio.Event()

    async def die(owner: JobId, key: BlobKey, holder: str, attempt: int) -> None:
        fetched.set()
        await asyncio.Event().wait()

    receiver.blobs.release = die  # type: ignore[method-assign]
    call = asyncio.create_task(job_manager.rpc.call(receiver.address, start(2 * MIB), Ack, timeout=PATIENCE))
    await asyncio.wait_for(fetched.wait(), PATIENCE)
    await receiver.kill.aclose()
    with pytest.raises(UnknownOutcome):
        await call
    assert started(receiver) == []
    assert job_manager.references(JOB) == 1

    await deploy(job_manager, other, message=start(2 * MIB))
    assert job_manager.references(JOB) == 1
    job_manager.server.job_restarting(JOB, 1)
    assert job_manager.references(JOB) == 0


async def test_a_receiver_that_is_not_there_holds_nothing(
    job_manager: JobManagerSite, task_managers: list[TaskManagerSite]
) -> None:
    await task_managers[0].kill.aclose()
    with pytest.raises(RetryLater):
        await job_manager.rpc.call(task_managers[0].address, start(2 * MIB), Ack, timeout=PATIENCE)
    assert job_manager.references(JOB) == 0


async def test_a_blob_that_was_cleaned_up_before_it_was_fetched(
    job_manager: JobManagerSite, task_managers: list[TaskManagerSite]
) -> None:
    """The job failed between sending and fetching: the message is stale, and sending it again works."""
    receiver = task_managers[0]
    fetch = receiver.blobs.fetch

    async def late(owner: JobId, key: BlobKey, holder: str, limit: int) -> bytes:
        job_manager.server.job_restarting(JOB, 1)
        await job_manager.server.collect()
        await job_manager.server.collect()
        return await fetch(owner, key, holder, limit)

    receiver.blobs.fetch = late  # type: ignore[method-assign]
    with pytest.raises(RetryLater, match="no longer exists"):
        await deploy(job_manager, receiver, message=start(2 * MIB))
    assert started(receiver) == []

    receiver.blobs.fetch = fetch  # type: ignore[method-assign]
    await deploy(job_manager, receiver, message=start(2 * MIB))
    assert len(started(receiver)) == 1


async def test_messages_about_a_job_that_has_ended_belong_to_no_job(
    job_manager: JobManagerSite, task_managers: list[TaskManagerSite]
) -> None:
    job_manager.server.job_ended(JOB)
    await deploy(job_manager, task_managers[0], message=start(2 * MIB))
    assert len(started(task_managers[0])) == 1
    assert await keys(job_manager) == []
    assert len(await job_manager.server.blobs(NO_JOB)) == 1
    assert job_manager.references(NO_JOB) == 0


async def test_a_damaged_blob_is_stored_again_for_the_next_receiver(
    job_manager: JobManagerSite, task_managers: list[TaskManagerSite], tmp_path: Path
) -> None:
    first, second = task_managers[:2]
    await deploy(job_manager, first, message=start(2 * MIB))
    for file in stored(tmp_path):
        file.chmod(0o600)
        file.write_bytes(b"damaged")
    await deploy(job_manager, second, message=start(2 * MIB))
    assert len(started(second)) == 1
    assert started(second)[0].graph == started(first)[0].graph


async def test_what_a_task_manager_sends_is_off_loaded_too(
    job_manager: JobManagerSite, task_managers: list[TaskManagerSite]
) -> None:
    """From one task manager's process to another's, by way of the BLOB server."""
    sender, receiver = task_managers[:2]
    await sender.rpc.call(receiver.address, start(2 * MIB), Ack, timeout=PATIENCE)
    assert len(started(receiver)) == 1
    assert len(receiver.blobs.released) == 1
    assert job_manager.references(JOB) == 0


async def test_a_part_that_cannot_be_read_for_want_of_descriptors_is_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = tmp_path / "part"
    part.write_bytes(b"x")

    def refused(_: Path) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(Unavailable, match="cannot be read now") as raised:
        await read(JOB, transient("0" * 64), part, 5)
    assert "ulimit -n" in (raised.value.hint or "")
