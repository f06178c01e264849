"""The stored logs of one leader, with bounded queues and a storage that may not answer."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from emberkeep.adapters.kept_logs import store as module
from emberkeep.adapters.kept_logs.files import KeepLimits, StitchedLog
from emberkeep.adapters.kept_logs.store import KeptLogStore
from emberkeep.base.clock import SystemClock
from emberkeep.base.errors import Absent, EmberkeepError, Fatal, InvalidInput, RetryLater, Unavailable
from emberkeep.base.ids import JobId
from emberkeep.kept_logs.ages import PACE
from emberkeep.kept_logs.model import LogPiece, Position
from tests.support.kept_logs.pieces import JOB, key, piece
from tests.unit.rest.server import eventually

KEEP_SECONDS = 3600


class HandClock:
    """Set by hand. It begins at the machine's time, as the files' times are the machine's."""

    def __init__(self) -> None:
        self.jumped_ms = 0
        self.passed = 0.0
        self._began_ms = SystemClock().now_ms()

    def now_ms(self) -> int:
        return self._began_ms + self.jumped_ms + round(self.passed * 1000)

    def monotonic(self) -> float:
        return self.passed


class Site:
    """``problem``: why the storage is not this cluster's."""

    def __init__(self, root: Path) -> None:
        self.problem: EmberkeepError | None = None
        limits = KeepLimits(most_bytes=1024**2, keep_ms=KEEP_SECONDS * 1000)
        self.clock = HandClock()
        self.store = KeptLogStore(root, limits, self.clock, lambda: self.problem)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "logs")


def end_of(opened: StitchedLog) -> int:
    return opened.stitched.size


async def test_what_is_stored_can_be_read(site: Site) -> None:
    assert await site.store.keep(1, key(), piece(0, b"one\n")) == Position(end=4, source=4)

    assert [log.end for log in (await site.store.logs(JOB)).logs] == [4]
    assert await site.store.examine(key(), end_of) == 4


async def test_nothing_is_stored_of_another_log(site: Site) -> None:
    await site.store.keep(1, key(), piece(0, b"one\n"))

    with pytest.raises(Absent):
        await site.store.examine(key(attempt=2), end_of)


async def test_an_invalid_piece_or_key_is_refused(site: Site, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        await site.store.keep(1, key(), LogPiece(header=piece(0, b"one\n").header, data=b"else"))
    with pytest.raises(InvalidInput):
        await site.store.keep(1, key("../x"), piece(0, b"one\n"))

    assert not (tmp_path / "logs").exists()


async def test_a_storage_that_is_not_ours_is_neither_written_nor_taken_for_empty(site: Site, tmp_path: Path) -> None:
    await site.store.keep(1, key(), piece(0, b"one\n"))
    site.problem = Unavailable("the storage is not mounted")

    for use in (site.store.keep(1, key(), piece(4, b"x\n")), site.store.logs(JOB), site.store.examine(key(), end_of)):
        with pytest.raises(RetryLater, match="not mounted"):
            await use
    with pytest.raises(RetryLater):
        await site.store.sweep()

    site.problem = None
    assert await site.store.examine(key(), end_of) == 4


async def test_a_sweep_deletes_what_is_too_old(site: Site, tmp_path: Path) -> None:
    await site.store.keep(1, key(), piece(0, b"one\n"))
    await site.store.sweep()
    assert [log.end for log in (await site.store.logs(JOB)).logs] == [4]

    site.clock.passed = KEEP_SECONDS + 60.0
    await site.store.sweep()
    assert (await site.store.logs(JOB)).logs == []


async def test_a_clock_that_jumps_ahead_deletes_nothing_at_once(site: Site) -> None:
    await site.store.keep(1, key(), piece(0, b"one\n"))
    await site.store.sweep()
    site.clock.jumped_ms = 10**12
    for _ in range(100):
        await site.store.sweep()
    assert [log.end for log in (await site.store.logs(JOB)).logs] == [4]

    site.clock.passed = KEEP_SECONDS / PACE + 60.0  # half of the time at least is left to set it right
    await site.store.sweep()
    assert (await site.store.logs(JOB)).logs == []


async def test_the_first_sweep_of_a_leader_whose_clock_is_ahead_deletes_nothing(site: Site) -> None:
    await site.store.sweep()  # nothing is stored yet, so nothing says what time it is
    await site.store.keep(1, key(), piece(0, b"one\n"))
    site.clock.jumped_ms = 10**12
    await site.store.sweep()
    assert [log.end for log in (await site.store.logs(JOB)).logs] == [4]


def date_segments(root: Path, epoch: int, ms: int) -> None:
    for path in root.rglob(f"*-{epoch:015d}.segment"):
        os.utime(path, ns=(ms * 10**6, ms * 10**6))


@pytest.mark.parametrize("other", [JOB, JobId("2" * 32)], ids=["same job", "other job"])
async def test_a_clock_that_was_ahead_when_the_leader_began_deletes_nothing_at_once(
    site: Site, tmp_path: Path, other: JobId
) -> None:
    await site.store.keep(1, key(), piece(0, b"one\n"))
    site = Site(tmp_path / "logs")
    right_ms = site.clock.now_ms()
    site.clock.jumped_ms = 10**12
    await site.store.keep(2, key(job_id=other, attempt=2), piece(0, b"two\n"))
    date_segments(tmp_path / "logs", 1, right_ms)
    date_segments(tmp_path / "logs", 2, site.clock.now_ms())

    await site.store.sweep()
    site.clock.passed = KEEP_SECONDS / PACE - 60.0
    await site.store.sweep()
    assert (tmp_path / "logs" / JOB / "1").exists()

    site.clock.passed = KEEP_SECONDS / PACE + 60.0
    await site.store.sweep()
    assert not (tmp_path / "logs" / JOB / "1").exists()


async def test_what_cannot_be_read_when_a_leader_begins_is_not_deleted_by_its_clock(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.store.keep(1, key(), piece(0, b"one\n"))
    site = Site(tmp_path / "logs")
    right_ms = site.clock.now_ms()
    site.clock.jumped_ms = 10**12
    await site.store.keep(2, key(job_id=JobId("2" * 32)), piece(0, b"two\n"))
    date_segments(tmp_path / "logs", 1, right_ms)
    date_segments(tmp_path / "logs", 2, site.clock.now_ms())
    stat = Path.stat

    def failing(path: Path, **more: bool) -> os.stat_result:
        if JOB in path.parts and path.suffix == ".segment":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return stat(path, **more)

    with monkeypatch.context() as broken:
        broken.setattr(Path, "stat", failing)
        with pytest.raises(RetryLater):
            await site.store.sweep()
    await site.store.sweep()

    assert [log.end for log in (await site.store.logs(JOB)).logs] == [4]


async def test_a_leader_reads_the_newest_change_before_it_has_stored_anything(site: Site, tmp_path: Path) -> None:
    await site.store.keep(1, key(), piece(0, b"one\n"))
    site = Site(tmp_path / "logs")
    running = asyncio.create_task(site.store.run())
    await eventually(lambda: site.store._ages.have_begun)
    running.cancel()


@pytest.mark.parametrize(("number", "raised"), [(errno.EIO, RetryLater), (errno.ENOSPC, Fatal)])
async def test_what_cannot_be_deleted_of_a_job_does_not_stop_the_sweep(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, raised: type[EmberkeepError]
) -> None:
    other, unlinking = JobId("2" * 32), Path.unlink
    for job_id in (JOB, other):
        await site.store.keep(1, key(job_id=job_id), piece(0, b"one\n"))
    await site.store.sweep()
    site.clock.passed = KEEP_SECONDS + 60.0

    def failing(path: Path, *, missing_ok: bool = False) -> None:
        if JOB in path.parts:
            raise OSError(number, os.strerror(number))
        unlinking(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", failing)
    with pytest.raises(raised, match=JOB):
        await site.store.sweep()

    assert [path.name for path in (tmp_path / "logs").iterdir()] == [JOB]


async def test_who_comes_while_too_many_wait_is_sent_away(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_WRITERS", 2)
    async with site.store._writing:
        waiting = [asyncio.create_task(site.store.keep(1, key(attempt=n), piece(0, b"x\n"))) for n in (1, 2)]
        await asyncio.sleep(0)
        with pytest.raises(RetryLater, match="wait to be stored"):
            await site.store.keep(1, key(attempt=3), piece(0, b"x\n"))
    assert [position.end for position in await asyncio.gather(*waiting)] == [2, 2]
