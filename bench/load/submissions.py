"""Jobs submitted through a JobManager's REST API, by one client or by several at once, as fast as it accepts them."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from bench.commands import JOBS
from bench.daemons import Server
from bench.measure import Figure, percentile
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
