"""The stores of local state alone: what a restarted node reads back from its copies, and from a durable store that is
far away (100 MB/s and 20 ms per request); how many small copies a second are kept, against the disk by hand.

State is read as RocksDB's is: by partitions side by side, each file after the other. Nothing of it is in the page
cache. Copies are checked as they are read. Spark's own part of a recovery is not in these times.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.commands import temporary_directory
from bench.measure import Figure, Goal, ratios
from bench.plan import Plan, say
from bench.state.throttled import Link, ThrottledState
from emberkeep.adapters.state.copies import DiskCopies
from emberkeep.adapters.state.directories.store import DirectoryState
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.local_state.model import CopyRecord, StatePath
from emberkeep.local_state.ports import DurableState

_JOB, _SLOT = JobId("b" * 32), AllocationId("a" * 32)
_PARTITIONS = 8  # at once
_FILE_BYTES = 4 * 1024**2
_SMALL_BYTES = 2000
_FASTER = Goal(at_least=3.0)
_KEPT = Goal(at_least=2000)


def measure(plan: Plan) -> list[Figure]:
    """Seconds, ratios pair by pair, copies per second."""
    figures = _small(plan)
    for megabytes in (50,) if plan.quick else (500, 2000):
        figures += _read_back(megabytes, plan)
    return figures


def _read_back(megabytes: int, plan: Plan) -> list[Figure]:
    local: list[float] = []
    remote: list[float] = []
    with temporary_directory() as directory:
        say(f"state stores: {megabytes} MB are written")
        names = [
            f"state/0/{number % _PARTITIONS}/SSTs/{number}.sst" for number in range(megabytes * 10**6 // _FILE_BYTES)
        ]
        store = DirectoryState(directory / "durable")
        _write(directory, store, names)
        for repetition in range(plan.repetitions):
            say(f"state stores: {megabytes} MB are read, {repetition + 1} of {plan.repetitions}")
            _forget_cached(directory)
            begin = time.perf_counter()
            copies = DiskCopies(directory / "disk")
            records = {record.path.name: record for record in copies.open_copies()}
            _read(names, lambda name, copies=copies, records=records: _copy(copies, records[name]))  # type: ignore[misc]
            local.append(time.perf_counter() - begin)
            _forget_cached(directory)
            begin = time.perf_counter()
            far = ThrottledState(store, Link())
            _read(names, lambda name, far=far: _durable(far, name))  # type: ignore[misc]
            remote.append(time.perf_counter() - begin)
    size = f"{megabytes} MB of state"
    return [
        Figure(f"{size}: opened and read from copies", "s", tuple(local)),
        Figure(f"{size}: read from the far store", "s", tuple(remote)),
        Figure(f"{size}: far store / copies", "×", ratios(remote, local), _FASTER),
    ]


def _write(directory: Path, store: DurableState, names: list[str]) -> None:
    copies = DiskCopies(directory / "disk")
    copies.open_copies()
    content = random.Random(1).randbytes(_FILE_BYTES)
    for name in names:
        staged = copies.stage()
        staged.write(content)
        staged.finish()
        status = store.create(name, staged.path, overwrite=False)
        staged.keep(StatePath(root=store.location, name=name), _JOB, 1, _SLOT, status.generation)


def _read(names: list[str], read: Callable[[str], int]) -> None:
    def partition(number: int) -> int:
        return sum(read(name) for name in names[number::_PARTITIONS])

    with ThreadPoolExecutor(_PARTITIONS) as pool:
        size = sum(pool.map(partition, range(_PARTITIONS)))
    if size != len(names) * _FILE_BYTES:
        raise SystemExit(f"{size} bytes were read of {len(names)} files")


def _copy(copies: DiskCopies, record: CopyRecord) -> int:
    return sum(len(piece) for piece in copies.read(record, 0, None))


def _durable(store: DurableState, name: str) -> int:
    return sum(len(piece) for piece in store.read(name, 0, None)[1])


def _forget_cached(directory: Path) -> None:
    """After a restart of a node nothing is in its page cache."""
    os.sync()
    for path in directory.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def _small(plan: Plan) -> list[Figure]:
    """The limit: the same files created, written and renamed by hand. Pairs follow each other directly."""
    kept: list[float] = []
    limit: list[float] = []
    count = plan.size(2000, 200)
    content = random.Random(2).randbytes(_SMALL_BYTES)
    with temporary_directory() as directory:
        copies = DiskCopies(directory / "disk")
        copies.open_copies()
        (directory / "from").mkdir()
        (directory / "to").mkdir()
        for repetition in range(plan.repetitions):
            say(f"state stores: small copies, {repetition + 1} of {plan.repetitions}")
            begin = time.perf_counter()
            for number in range(count):
                staged = copies.stage()
                staged.write(content)
                staged.finish()
                path = StatePath(root="/durable", name=f"state/0/{number % 200}/{repetition}-{number}.delta")
                staged.keep(path, _JOB, 1, _SLOT, "generation")
            kept.append(count / (time.perf_counter() - begin))
            begin = time.perf_counter()
            for number in range(count):
                by_hand = directory / "from" / f"{repetition}-{number}"
                by_hand.write_bytes(content)
                by_hand.rename(directory / "to" / by_hand.name)
            limit.append(count / (time.perf_counter() - begin))
    return [
        Figure("small copies kept, one thread", "/s", tuple(kept), _KEPT),
        Figure("the same files by hand, unchecked", "/s", tuple(limit)),
        Figure("small copies: kept / by hand", "×", ratios(kept, limit)),
    ]
