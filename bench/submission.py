"""Submissions through the real REST API of a JobManager without task managers: the jobs are made durable, and wait.

A submission is two durable writes, one after the other: the job graph as a file, its handle in SQLite. What this disk
does of these alone, in the same run, is the limit.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from bench.commands import JOBS, temporary_directory
from bench.daemons import Server, job_manager
from bench.measure import Figure, percentile, ratios
from bench.plan import Plan
from emberkeep.base.files.durable import write_record
from emberkeep.client.rest_client import RestClient
from emberkeep.client.submission.preparation import PreparedJob, Program, prepare, upload
from emberkeep.client.submission.spark_options import SparkOptions
from tests.support.no_progress import NoProgress

CLIENTS = 16


@dataclass(frozen=True)
class Load:
    """Jobs per second; seconds of one submission."""

    rate: float
    p50: float
    p99: float


@dataclass(frozen=True)
class _Disk:
    """Seconds of one durable write, alone."""

    file: float
    commit: float

    @property
    def both(self) -> float:
        return self.file + self.commit


def measure(plan: Plan) -> list[Figure]:
    """Latency and rate with one client and with 16 at once."""
    jobs = plan.size(300, 50), plan.size(2_000, 200)
    alone, crowd, disk, cpu = [], [], [], []
    for _ in plan.turns("submission"):
        with temporary_directory() as directory:
            disk.append(_disk(directory, plan.size(300, 50)))
            with job_manager(directory / "state") as server:
                alone.append(asyncio.run(submit_all(server, 1, jobs[0])))
                before = server.cpu_seconds()
                crowd.append(asyncio.run(submit_all(server, CLIENTS, jobs[1])))
                cpu.append((server.cpu_seconds() - before) / jobs[1] * 1e3)
    figures = []
    for name, loads in (("1 client", alone), (f"{CLIENTS} clients", crowd)):
        figures += [
            figure(f"{name}: accepted", "jobs/s", loads, lambda load: load.rate),
            figure(f"{name}: latency p50", "ms", loads, lambda load: load.p50 * 1e3),
            figure(f"{name}: latency p99", "ms", loads, lambda load: load.p99 * 1e3),
        ]
    p50, both = tuple(load.p50 for load in alone), tuple(each.both for each in disk)
    return [
        *figures,
        Figure("this disk: file written durably", "ms", tuple(each.file * 1e3 for each in disk)),
        Figure("this disk: SQLite commit", "ms", tuple(each.commit * 1e3 for each in disk)),
        Figure("1 client: latency p50 / both writes alone", "×", ratios(p50, both)),
        Figure("CPU time of the JobManager per job", "ms", tuple(cpu)),
    ]


def figure(name: str, unit: str, loads: list[Load], value: Callable[[Load], float]) -> Figure:
    """One sample per load."""
    return Figure(name, unit, tuple(value(load) for load in loads))


async def submit_all(server: Server, clients: int, jobs: int) -> Load:
    """As fast as it goes."""
    prepared = prepare(Program(str(JOBS / "tiny.py"), None, ()), SparkOptions(), {}, {})
    latencies: list[float] = []
    async with RestClient(server.endpoint) as client:
        # Each job's files are uploaded below its own id, before the clock starts.
        waiting = iter([await upload(client, another(prepared), NoProgress()) for _ in range(jobs)])

        async def go_on() -> None:
            for submission in waiting:
                begin = time.perf_counter()
                accepted = await client.submit(submission)
                latencies.append(time.perf_counter() - begin)
                if not accepted.created:
                    raise SystemExit("the JobManager took a new job for an old one: a bug, so there is no measurement")

        begin = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(go_on())
        return Load(jobs / (time.perf_counter() - begin), percentile(latencies, 0.5), percentile(latencies, 0.99))


def another(prepared: PreparedJob) -> PreparedJob:
    """The same job under an id and a key of its own."""
    submission = msgspec.structs.replace(
        prepared.submission, idempotency_key=secrets.token_hex(16), jobid=secrets.token_hex(16)
    )
    return replace(prepared, submission=submission)


def _disk(directory: Path, count: int) -> _Disk:
    """Medians: a file of a job graph's size with fsync, rename and fsync of its directory; an insert with commit."""
    payload = secrets.token_bytes(700)
    files: list[float] = []
    for number in range(count):
        begin = time.perf_counter()
        write_record(directory / f"graph-{number}", "bench", 1, payload)
        files.append(time.perf_counter() - begin)
    commits: list[float] = []
    with closing(sqlite3.connect(directory / "raw.sqlite", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.execute("CREATE TABLE handles (id TEXT PRIMARY KEY, data BLOB)")
        for _ in range(count):
            begin = time.perf_counter()
            database.execute("INSERT INTO handles VALUES (?, ?)", (secrets.token_hex(16), payload[:200]))
            commits.append(time.perf_counter() - begin)
    return _Disk(percentile(files, 0.5), percentile(commits, 0.5))
