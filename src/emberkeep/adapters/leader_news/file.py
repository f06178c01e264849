"""The file from which the drivers of a node learn the leader's address, so that they need no ZooKeeper session.

The task manager writes the file atomically. The file outlives the task manager process, and has no secrets: drivers
that run as other users read it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import structlog

from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Absent, EmberkeepError
from emberkeep.base.files.durable import read_record, write_record
from emberkeep.leadership.model import LeaderAddress, LeaderNews
from emberkeep.leadership.ports import LeaderLocator

LEADER_KIND, LEADER_VERSION = "known-leader", 1
LOOK_INTERVAL = 0.5  # seconds
RETRY_PAUSE = 5.0  # seconds before another try to write the file

log = structlog.get_logger(__name__)


class LeaderFile(msgspec.Struct, frozen=True, kw_only=True):
    """The leader and the known JobManagers. ``epoch`` 0: no leader is known."""

    epoch: int = 0
    address: str = ""
    job_managers: tuple[str, ...] = ()


def write_leader_file(path: Path, news: LeaderNews) -> None:
    """Write ``news`` to the file, which drivers of other users read, too. Blocks. Raises Fatal."""
    leader = news.leader or LeaderAddress(0, "")
    record = LeaderFile(epoch=leader.epoch, address=leader.address, job_managers=news.job_managers)
    write_record(path, LEADER_KIND, LEADER_VERSION, msgspec.json.encode(record), mode=0o644)


def read_leader_file(path: Path) -> LeaderNews:
    """Return the leader news in the file; empty news if there is no file or it is unreadable. Blocks."""
    try:
        record = from_json(read_record(path, LEADER_KIND, LEADER_VERSION), LeaderFile)
    except Absent:
        return LeaderNews()
    except (EmberkeepError, msgspec.DecodeError) as error:
        log.warning("cannot read the leader file", path=str(path), reason=str(error))
        return LeaderNews()
    leader = LeaderAddress(record.epoch, record.address) if record.epoch > 0 and record.address else None
    return LeaderNews(leader, record.job_managers)


async def keep_leader_file(path: Path, known: LeaderLocator) -> None:
    """Write each change of ``known`` to the file, until cancelled."""
    written = LeaderNews()
    while True:
        news = await known.other_than(written)
        try:
            await asyncio.to_thread(write_leader_file, path, news)
        except EmberkeepError as error:
            log.warning(
                "cannot write the leader file, so drivers of this node do not learn of a new leader", reason=str(error)
            )
            await asyncio.sleep(RETRY_PAUSE)
        else:
            written = news


async def watch_leader_file(path: Path, known: LeaderLocator) -> None:
    """Pass the file's content to ``known``, now and after each change, until cancelled."""
    seen: tuple[int, int] | None = None
    while True:
        stamp = await asyncio.to_thread(_stamp, path)
        if stamp is not None and stamp != seen:
            seen = stamp
            known.hear(await asyncio.to_thread(read_leader_file, path))
        await asyncio.sleep(LOOK_INTERVAL)


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return a value that changes with each write, because every write makes a new file; None if unreadable."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
