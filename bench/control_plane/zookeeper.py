"""The job store in ZooKeeper: submissions through it, and a takeover with many jobs to recover.

Submissions go through the REST API, as in ``submission``; the peer is a JobManager over its own file, in the same run.
The many jobs wait, since there is no task manager: what is measured is that they are read and known again.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.commands import temporary_directory
from bench.daemons import job_manager
from bench.job_managers import JobManagers
from bench.leader_poll import LIMIT_SECONDS, until_known
from bench.load.submissions import CLIENTS, Load, figure, submit_all
from bench.measure import Figure, Goal, ratios
from bench.plan import Plan, say
from emberkeep.adapters.http.token_file import load_or_create_token
from emberkeep.adapters.zookeeper.access.settings import session_settings
from emberkeep.adapters.zookeeper.layout import zookeeper_layout
from emberkeep.adapters.zookeeper.session import SessionState, ZooKeeperSession
from emberkeep.adapters.zookeeper.store import ZooKeeperJobStore
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.directories import STATE_DIRECTORY
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.ids import JobId, SystemIds
from emberkeep.jobs.model import EntryPoint, EntryPointKind, JobGraph, JobResources, JobStatus

_WRITERS = 16  # as many jobs are created at once
_RECOVERY_GOAL = Goal(at_most=10.0)
_POLL = 0.05


def measure(plan: Plan) -> list[Figure]:
    """Latency and rate of submissions; the time to read many handles, and to take over with them."""
    jobs = plan.size(300, 50), plan.size(2_000, 200)
    handles = plan.size(10_000, 500)
    alone, crowd, peers, cpu, read, taken = [], [], [], [], [], []
    for turn in plan.turns("zookeeper: submissions"):
        with temporary_directory() as directory, job_manager(directory / "state") as server:
            peers.append(asyncio.run(submit_all(server, CLIENTS, jobs[1])))
        with temporary_directory() as directory:
            loads = asyncio.run(_submissions(directory, *jobs))
            alone.append(loads[0])
            crowd.append(loads[1])
            cpu.append(loads[2])
        say(f"zookeeper: {handles:,} handles, {turn + 1} of {plan.repetitions}")
        with temporary_directory() as directory:
            seconds = asyncio.run(_recovery(directory, handles))
            read.append(seconds[0])
            taken.append(seconds[1])
    rates = tuple(load.rate for load in crowd)
    many = f"{handles:,} handles"
    return [
        figure("1 client: accepted", "jobs/s", alone, lambda load: load.rate),
        figure("1 client: latency p50", "ms", alone, lambda load: load.p50 * 1e3),
        figure("1 client: latency p99", "ms", alone, lambda load: load.p99 * 1e3),
        figure(f"{CLIENTS} clients: accepted", "jobs/s", crowd, lambda load: load.rate),
        figure(f"{CLIENTS} clients: latency p50", "ms", crowd, lambda load: load.p50 * 1e3),
        figure(f"{CLIENTS} clients: latency p99", "ms", crowd, lambda load: load.p99 * 1e3),
        Figure("speed, ZooKeeper / embedded store", "×", ratios(rates, [peer.rate for peer in peers])),
        Figure("CPU time of the JobManager per job", "ms", tuple(cpu)),
        Figure(f"{many}: read by the store", "s", tuple(read), _RECOVERY_GOAL),
        Figure(f"{many}: kill -9 to new leader that knows all", "s", tuple(taken), _RECOVERY_GOAL),
    ]


async def _submissions(directory: Path, alone: int, crowd: int) -> tuple[Load, Load, float]:
    """With one client and with many; CPU milliseconds per job of the latter."""
    async with JobManagers(directory) as managers:
        await managers.add()
        server = (await managers.leader()).server
        first = await submit_all(server, 1, alone)
        before = server.cpu_seconds()
        second = await submit_all(server, CLIENTS, crowd)
        return first, second, (server.cpu_seconds() - before) / crowd * 1e3


async def _recovery(directory: Path, handles: int) -> tuple[float, float]:
    """Seconds for the store alone, and from the death of one JobManager until another one knows all jobs."""
    async with JobManagers(directory) as managers:
        async with _store(managers.configuration) as store:
            waiting = iter([_graph() for _ in range(handles)])

            async def go_on() -> None:
                for graph in waiting:
                    await store.create(graph)

            async with asyncio.TaskGroup() as group:
                for _ in range(_WRITERS):
                    group.create_task(go_on())
        async with _store(managers.configuration) as store:
            begin = time.perf_counter()
            found = len(await store.recover())
            read = time.perf_counter() - begin
        if found != handles:
            raise SystemExit(f"{found} of {handles} jobs were recovered: a bug, so there is no measurement")
        for _ in range(2):
            await managers.add()
        leader = await managers.leader()
        (other,) = [member for member in managers.members if member is not leader]
        begin = time.perf_counter()
        managers.kill(leader)
        return read, (await until_known([other.server.endpoint], JobStatus.CREATED, handles, begin)).known


@asynccontextmanager
async def _store(configuration: Configuration) -> AsyncIterator[ZooKeeperJobStore]:
    """Opened by a leader that nobody can reach; there are no JobManagers yet."""
    layout = StateLayout(Path(configuration[STATE_DIRECTORY]), configuration)
    session = ZooKeeperSession(session_settings(configuration, load_or_create_token(layout.token_file)))
    store = ZooKeeperJobStore(
        session,
        zookeeper_layout(configuration),
        layout.graphs,
        SystemIds(),
        address="127.0.0.1:1",
        elected=True,
    )
    session.start()
    try:
        deadline = time.monotonic() + LIMIT_SECONDS
        while session.state is not SessionState.CONNECTED:
            if time.monotonic() > deadline:
                raise SystemExit("ZooKeeper accepts no session")
            await asyncio.sleep(_POLL)
        await store.open()
        yield store
    finally:
        await store.close()
        await session.close()


def _graph() -> JobGraph:
    """A job without files: it runs a module."""
    return JobGraph(
        job_id=JobId(secrets.token_hex(16)),
        name="handle",
        entry_point=EntryPoint(kind=EntryPointKind.MODULE, name="bench.jobs.tiny"),
        arguments=(),
        artefacts=(),
        spark_conf={"spark.app.name": "handle", "spark.executor.instances": "2", "spark.executor.memory": "1g"},
        options={},
        working_directory="/",
        resources=JobResources(
            driver_memory_mb=1024,
            driver_overhead_mb=384,
            executors=2,
            executor_cores=1,
            executor_memory_mb=1024,
            executor_overhead_mb=384,
        ),
        python="3.11",
        submitted_ms=int(time.time() * 1000),
        idempotency_key=secrets.token_hex(16),
    )
