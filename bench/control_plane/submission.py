"""Submissions through the real REST API of a JobManager without task managers: the jobs are made durable, and wait.

A submission is two durable writes, one after the other: the job graph as a file, its handle in SQLite. What this disk
does of these alone, in the same run, is the limit.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from bench.commands import temporary_directory
from bench.daemons import job_manager
from bench.load.submissions import CLIENTS, figure, submit_all
from bench.measure import Figure, percentile, ratios
from bench.plan import Plan
from emberkeep.base.files.durable import write_record


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
