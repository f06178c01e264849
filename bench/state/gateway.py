"""A state gateway alone, on loopback, over a directory: what it answers and moves per second, against the disk.

The limit of writing is the same files by hand: each written and synced twice, once for the node and once for the
durable store, renamed, the directories synced. The limit of reading is the file read and its CRC-32C.
"""

from __future__ import annotations

import http.client
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import google_crc32c
import psutil

from bench.commands import end, temporary_directory
from bench.measure import Figure, Goal, ratios
from bench.plan import Plan
from bench.state.gateway_server import JOB
from emberkeep.base.files.durable import sync_directory
from emberkeep.protocol.encoding.hadoop_token import ENCRYPTED_KIND, encode

_AT_ONCE = 12  # tasks of a node
_SMALL = 10 * 1024  # bytes: a delta of a small micro-batch
_MB = 1e6
_BLOCK = 256 * 1024
_SMALL_RATE = Goal(at_least=600)


@dataclass
class _Found:
    """Samples of all repetitions."""

    status: list[float] = field(default_factory=list)
    status_alone: list[float] = field(default_factory=list)  # ms
    commits: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)  # ms of the gateway for each of the commits
    commits_limit: list[float] = field(default_factory=list)
    commit_alone: list[float] = field(default_factory=list)  # ms
    commit_alone_limit: list[float] = field(default_factory=list)
    up: list[float] = field(default_factory=list)
    up_limit: list[float] = field(default_factory=list)
    local: list[float] = field(default_factory=list)
    remote: list[float] = field(default_factory=list)
    read_limit: list[float] = field(default_factory=list)


class _Client:
    """One connection, which is kept: the requests of Hadoop's client for a task."""

    def __init__(self, address: str, credential: str, certificate: Path) -> None:
        self._http = http.client.HTTPSConnection(
            address, timeout=300, context=ssl.create_default_context(cafile=certificate)
        )
        self._shown = f"delegation={encode(credential, ENCRYPTED_KIND, '127.0.0.1:9871')}"
        self._address = address

    def _ask(self, method: str, target: str, body: bytes | None = None) -> tuple[http.client.HTTPResponse, bytes]:
        self._http.request(method, target, body)
        answer = self._http.getresponse()
        data = answer.read()
        if answer.status not in (200, 201, 307):
            raise SystemExit(f"{method} {target[:120]} was answered with {answer.status}: {data[:300]!r}")
        return answer, data

    def status(self, name: str) -> None:
        self._ask("GET", self._target(name, "GETFILESTATUS"))

    def upload(self, name: str, data: bytes) -> None:
        answer, _ = self._ask("PUT", self._target(name, "CREATE&overwrite=true"))
        self._ask("PUT", answer.headers["Location"].removeprefix(f"https://{self._address}"), data)

    def commit(self, directory: str, number: int, data: bytes) -> None:
        """As Spark writes each file of a checkpoint."""
        temporary = f"{directory}/.{number}.delta.0815abcd-1234-5678-9abc-{number:012x}.TID{number}.tmp"
        self.upload(temporary, data)
        target = f"/{JOB}/own/{directory}/{number}.delta"
        self._ask("PUT", self._target(temporary, f"RENAME&renameoptions=OVERWRITE&destination={target}"))

    def read(self, name: str) -> bytes:
        answer, _ = self._ask("GET", self._target(name, "OPEN"))
        return self._ask("GET", answer.headers["Location"].removeprefix(f"https://{self._address}"))[1]

    def _target(self, name: str, operation: str) -> str:
        return f"/webhdfs/v1/{JOB}/own/{name}?{self._shown}&op={operation}"

    def close(self) -> None:
        self._http.close()


@dataclass(frozen=True)
class _Gateway:
    """The gateway's process. ``client`` connects to it."""

    client: Callable[[], _Client]
    process: psutil.Process

    def cpu_seconds(self) -> float:
        """User and system time of the process so far."""
        times = self.process.cpu_times()
        return float(times.user + times.system)


@contextmanager
def _gateway(directory: Path) -> Iterator[_Gateway]:
    argv = [sys.executable, "-m", "bench.state.gateway_server", str(directory)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=sys.stderr, text=True)
    try:
        assert process.stdout is not None
        address, credential = process.stdout.readline().split()
        certificate = directory / "tm" / "gateway" / "gateway.pem"
        yield _Gateway(lambda: _Client(address, credential, certificate), psutil.Process(process.pid))
    finally:
        end(process)


def _each_second(count: int, work: Callable[[int, range], None]) -> float:
    """``work(worker, numbers)`` on _AT_ONCE threads, ``count`` numbers in all: how many per second."""
    share = count // _AT_ONCE
    begin = time.perf_counter()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for done in [pool.submit(work, worker, range(share)) for worker in range(_AT_ONCE)]:
            done.result()
    return share * _AT_ONCE / (time.perf_counter() - begin)


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _milliseconds(count: int, work: Callable[[int], object]) -> float:
    """Of each of ``count`` calls, one after the other."""
    begin = time.perf_counter()
    for number in range(count):
        work(number)
    return (time.perf_counter() - begin) * 1e3 / count


def _by_hand(directory: Path, name: str, data: bytes) -> None:
    """Written and synced twice, renamed, the directories synced."""
    for store in ("durable", "local"):
        place = directory / "by-hand" / store
        place.mkdir(parents=True, exist_ok=True)
        with (place / f".{name}.tmp").open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        (place / f".{name}.tmp").rename(place / name)
        sync_directory(place)


def _read_by_hand(file: Path) -> None:
    with file.open("rb") as reader:
        while block := reader.read(_BLOCK):
            google_crc32c.value(block)


def _small(gateway: _Gateway, directory: Path, count: int, found: _Found) -> None:
    data = os.urandom(_SMALL)

    def commits(worker: int, numbers: range) -> None:
        one = gateway.client()
        for number in numbers:
            one.commit(f"q/state/0/{worker}", number, data)
        one.close()

    def statuses(worker: int, numbers: range) -> None:
        one = gateway.client()
        for _ in numbers:
            one.status(f"q/state/0/{worker}")
        one.close()

    def by_hand(worker: int, numbers: range) -> None:
        for number in numbers:
            _by_hand(directory, f"{worker}-{number}", data)

    before = gateway.cpu_seconds()
    found.commits.append(_each_second(count, commits))
    found.cpu.append((gateway.cpu_seconds() - before) * 1e3 / count)
    found.commits_limit.append(_each_second(count, by_hand))
    found.status.append(_each_second(5 * count, statuses))
    one, alone = gateway.client(), count // 10
    found.status_alone.append(_milliseconds(alone, lambda _: one.status("q/state")))
    found.commit_alone.append(_milliseconds(alone, lambda number: one.commit("q/state/1/0", number, data)))
    found.commit_alone_limit.append(_milliseconds(alone, lambda number: _by_hand(directory, f"x-{number}", data)))
    one.close()


def _large(gateway: _Gateway, directory: Path, size: int, found: _Found) -> None:
    data = os.urandom(size)
    one = gateway.client()
    found.up.append(size / _MB / _seconds(lambda: one.upload("q/large.zip", data)))
    found.up_limit.append(size / _MB / _seconds(lambda: _by_hand(directory, "large", data)))
    found.local.append(size / _MB / _seconds(lambda: one.read("q/large.zip")))
    found.read_limit.append(size / _MB / _seconds(lambda: _read_by_hand(directory / "by-hand" / "local" / "large")))
    durable = next((directory / "storage").rglob("large.zip"))
    os.utime(durable.rename(durable.with_name("other.zip")))  # a name without a copy
    found.remote.append(size / _MB / _seconds(lambda: one.read("q/other.zip")))
    one.close()


def measure(plan: Plan) -> list[Figure]:
    """Small files as micro-batches write them, and one large one."""
    size, count = plan.size(256, 32) * 1024**2, plan.size(2_400, 240)
    found = _Found()
    for _ in plan.turns("state gateway"):
        with temporary_directory() as directory, _gateway(directory) as gateway:
            _small(gateway, directory, count, found)
            _large(gateway, directory, size, found)
    small, large = f"10 KiB files, {_AT_ONCE} at once", f"{size // 1024**2} MiB"
    return [
        Figure(f"status, {_AT_ONCE} at once", "1/s", tuple(found.status)),
        Figure("status, one after the other", "ms", tuple(found.status_alone)),
        Figure(f"{small}: create, write, rename", "1/s", tuple(found.commits), _SMALL_RATE),
        Figure(f"{small}: the gateway's CPU for each", "ms", tuple(found.cpu)),
        Figure(f"{small}: limit", "1/s", tuple(found.commits_limit)),
        Figure(f"{small}: ours / limit", "×", ratios(found.commits, found.commits_limit)),
        Figure("a 10 KiB file, one after the other", "ms", tuple(found.commit_alone)),
        Figure("a 10 KiB file, one after the other: limit", "ms", tuple(found.commit_alone_limit)),
        Figure(f"{large} written", "MB/s", tuple(found.up)),
        Figure(f"{large} written: limit", "MB/s", tuple(found.up_limit)),
        Figure(f"{large} written: ours / limit", "×", ratios(found.up, found.up_limit)),
        Figure(f"{large} read from the local copy", "MB/s", tuple(found.local)),
        Figure(f"{large} read from the durable store, and kept", "MB/s", tuple(found.remote)),
        Figure(f"{large} read and verified: limit", "MB/s", tuple(found.read_limit)),
        Figure(f"{large} read from the local copy: ours / limit", "×", ratios(found.local, found.read_limit)),
    ]
