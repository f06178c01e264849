"""A whole cluster at scale: three JobManagers and a ZooKeeper are real and have default limits, all nodes are stubs.

Stub nodes (``bench.load.stub_node``) send what task managers and drivers send, and start no process. They run in a
process of their own, so that what is measured here is the JobManagers' work. They do not offer slots to JobMasters: a
slot that a new leader allocates before it knows of all that a job holds counts as used until the leader's own timeout
for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import aiohttp
import psutil

from bench.commands import JOBS, temporary_directory
from bench.job_managers import JobManagers, Member
from bench.leader_poll import LIMIT_SECONDS, Takeover, until_known
from bench.load.stub_cluster import Order, stub_cluster
from bench.load.submissions import CLIENTS, another
from bench.measure import Figure, Goal, percentile
from bench.plan import Plan
from emberkeep.client.endpoint import Endpoint
from emberkeep.client.rest_client import RestClient
from emberkeep.client.submission.preparation import Program, prepare, upload
from emberkeep.client.submission.spark_options import SparkOptions
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.rest_cluster import ClusterOverview
from tests.support.no_progress import NoProgress

_JOB_MANAGERS = 3
_SLOTS = 4  # of each task manager
_WANTED = 6  # slots of each driver
_STEADY_SECONDS = 15.0
_LOOKS = 9
_POLL = 0.1
_PAGES = {
    "list of jobs": "/v1/jobs/overview",
    "list of task managers": "/v1/taskmanagers",
    "overview page": "/",
    "page of task managers": "/taskmanagers",
    "/metrics": "/metrics",
}
_PAGE_GOAL = Goal(at_most=1000.0)


@dataclass
class _Round:
    """Seconds, milliseconds (``latencies``, ``pages``), percent of a core, MiB."""

    registered: float = 0.0
    accepted: float = 0.0
    latency: float = 0.0
    placed: float = 0.0
    pages: dict[str, float] = field(default_factory=dict)
    leader_cpu: float = 0.0
    leader_mib: float = 0.0
    standby_cpu: float = 0.0
    standby_mib: float = 0.0
    takeover: Takeover = Takeover(0.0, 0.0)  # noqa: RUF009 - frozen
    registered_again: float = 0.0
    excess: float = 0.0
    storm_cpu: float = 0.0


def measure(plan: Plan) -> list[Figure]:
    """Registration, submissions, pages, the steady state, and the storm after a takeover."""
    nodes, jobs = plan.size(500, 50), plan.size(300, 30)
    what = f"{nodes} task managers, {nodes * _SLOTS:,} slots, {jobs} drivers"
    rounds = [asyncio.run(_round(nodes, jobs)) for _ in plan.turns(f"scale: {what}")]

    def figure(name: str, unit: str, value: Callable[[_Round], float], goal: Goal | None = None) -> Figure:
        return Figure(name, unit, tuple(value(each) for each in rounds), goal)

    pages = [
        figure(f"{name}, p50 of {_LOOKS}", "ms", lambda r, name=name: r.pages[name], _PAGE_GOAL)  # type: ignore[misc]
        for name in _PAGES
    ]
    return [
        figure(f"{nodes} task managers registered", "s", lambda r: r.registered),
        figure(f"{jobs} submissions by {CLIENTS} clients: accepted", "jobs/s", lambda r: r.accepted),
        figure("latency of a submission, p99", "ms", lambda r: r.latency),
        figure("all drivers run and have their slots, after the first submission", "s", lambda r: r.placed),
        *pages,
        figure(f"leader, {what}: CPU", "% of a core", lambda r: r.leader_cpu),
        figure("leader: resident memory", "MiB", lambda r: r.leader_mib),
        figure("standby: CPU", "% of a core", lambda r: r.standby_cpu),
        figure("standby: resident memory", "MiB", lambda r: r.standby_mib),
        figure("leader killed: another one answers", "s", lambda r: r.takeover.answered),
        figure("and all jobs are RUNNING", "s", lambda r: r.takeover.known, Goal(at_most=10.0)),
        figure("and all task managers are registered with their slots", "s", lambda r: r.registered_again),
        figure("slots that are allocated then and that no job needs", "slots", lambda r: r.excess),
        figure("CPU time of the new leader until then", "s", lambda r: r.storm_cpu),
    ]


async def _round(nodes: int, jobs: int) -> _Round:
    result = _Round()
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(temporary_directory())
        managers = await stack.enter_async_context(JobManagers(directory))
        for _ in range(_JOB_MANAGERS):
            await managers.add()
        leader = await managers.leader()
        places = -(-jobs // nodes)
        order = Order(
            managers.definitions,
            managers.token,
            leader.server.address,
            nodes,
            places,
            _SLOTS,
            min(_WANTED, nodes * _SLOTS // jobs),
        )
        begin = time.perf_counter()
        stubs = await asyncio.to_thread(stack.enter_context, stub_cluster(order))
        result.registered = await _seen(leader, lambda seen: seen.taskmanagers == nodes, begin)
        await _submit(result, leader, jobs, order.wanted)
        await _pages(result, leader.server.endpoint)
        await _steady(result, managers, leader)
        await _takeover(result, managers, leader, nodes, jobs, order.wanted)
        if await asyncio.to_thread(stubs.starts) != jobs:
            raise SystemExit("a driver was started twice: a bug, so there is no measurement")
    return result


async def _submit(result: _Round, leader: Member, jobs: int, wanted: int) -> None:
    prepared = prepare(Program(str(JOBS / "tiny.py"), None, ()), SparkOptions(), {}, {})
    latencies: list[float] = []
    async with RestClient(leader.server.endpoint) as client:
        waiting = iter([await upload(client, another(prepared), NoProgress()) for _ in range(jobs)])

        async def go_on() -> None:
            for submission in waiting:
                started = time.perf_counter()
                await client.submit(submission)
                latencies.append(time.perf_counter() - started)

        begin = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(go_on())
        result.accepted = jobs / (time.perf_counter() - begin)
    result.latency = percentile(latencies, 0.99) * 1e3
    result.placed = await _seen(leader, lambda seen: _all_run(seen, jobs, wanted), begin)


def _all_run(seen: ClusterOverview, jobs: int, wanted: int) -> bool:
    running = seen.emberkeep.jobs_by_status.get(JobStatus.RUNNING) == jobs
    return running and seen.slots_total - seen.slots_available == jobs * wanted


async def _pages(result: _Round, endpoint: Endpoint) -> None:
    headers = {"Authorization": f"Bearer {endpoint.token}"}
    async with aiohttp.ClientSession(headers=headers) as session:

        async def look(path: str) -> float:
            begin = time.perf_counter()
            async with session.get(f"{endpoint.url}{path}") as answer:
                await answer.read()
                if answer.status != 200:
                    raise SystemExit(f"{path}: status {answer.status}: a bug, so there is no measurement")
            return (time.perf_counter() - begin) * 1e3

        for name, path in _PAGES.items():
            result.pages[name] = percentile([await look(path) for _ in range(_LOOKS)], 0.5)


async def _steady(result: _Round, managers: JobManagers, leader: Member) -> None:
    standby = next(member for member in managers.members if member is not leader)
    before = [_cpu(each.server.process) for each in (leader, standby)]
    begin = time.perf_counter()
    await asyncio.sleep(_STEADY_SECONDS)
    seconds = time.perf_counter() - begin
    after = [_cpu(each.server.process) for each in (leader, standby)]
    result.leader_cpu, result.standby_cpu = (
        (now - then) / seconds * 100 for now, then in zip(after, before, strict=True)
    )
    result.leader_mib, result.standby_mib = (
        each.server.process.memory_info().rss / 1024**2 for each in (leader, standby)
    )


async def _takeover(result: _Round, managers: JobManagers, leader: Member, nodes: int, jobs: int, wanted: int) -> None:
    others = [member for member in managers.members if member is not leader]
    before = {member.server.address: _cpu(member.server.process) for member in others}
    begin = time.perf_counter()
    await asyncio.to_thread(managers.kill, leader)
    endpoints = [member.server.endpoint for member in others]
    result.takeover = await until_known(endpoints, JobStatus.RUNNING, jobs, begin)
    new = await managers.leader()

    def is_back(seen: ClusterOverview) -> bool:
        away = seen.emberkeep.taskmanagers_away
        result.excess = seen.slots_total - seen.slots_available - jobs * wanted
        running = seen.emberkeep.jobs_by_status.get(JobStatus.RUNNING) == jobs
        return (seen.taskmanagers, away) == (nodes, 0) and running and result.excess >= 0

    result.registered_again = await _seen(new, is_back, begin)
    result.storm_cpu = _cpu(new.server.process) - before[new.server.address]


async def _seen(member: Member, condition: Callable[[ClusterOverview], bool], begin: float) -> float:
    """Seconds since ``begin`` (``perf_counter``) until the leader's overview fulfils the condition."""
    overview: Callable[[], Awaitable[ClusterOverview]]
    async with RestClient(member.server.endpoint) as client:
        overview = client.overview
        while not condition(seen := await overview()):
            if time.perf_counter() - begin > LIMIT_SECONDS:
                raise SystemExit(f"not after {LIMIT_SECONDS:g} s: a bug, so there is no measurement. Last seen: {seen}")
            await asyncio.sleep(_POLL)
    return time.perf_counter() - begin


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
