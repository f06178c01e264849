"""The leading JobManager killed, or silent: how long until another one answers and knows all jobs to be RUNNING.

The jobs' drivers are stubs (``bench.load.stub_node``), so that 100 fit on any machine; JobManagers, ZooKeeper, what is
stored and what is said over the network are real, and settings are the default ones where nothing else is said.
"""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import AsyncExitStack

from bench.commands import temporary_directory
from bench.job_managers import JobManagers
from bench.leader_poll import Takeover, until_known
from bench.load.stub_jobs import stub_jobs
from bench.measure import Figure, Goal, percentile
from bench.plan import Plan, say
from emberkeep.jobs.model import JobStatus

_JOBS = (1, 10, 100)
_JOB_MANAGERS = 3
_SILENT_JOBS = 10
_SILENCE_GOAL = Goal(at_most=6.0)
_P50_GOAL, _WORST_GOAL = Goal(at_most=2.0), Goal(at_most=2.0)


def measure(plan: Plan) -> list[Figure]:
    """With 1, 10 and 100 jobs; a new JobManager takes the place of each that was killed."""
    kills = plan.size(10, 1)
    rounds: dict[int, list[list[Takeover]]] = {jobs: [] for jobs in _JOBS}
    for turn in range(plan.repetitions):
        for jobs in _JOBS:
            say(f"takeover: {jobs} jobs, {turn + 1} of {plan.repetitions}")
            rounds[jobs].append(asyncio.run(_round(jobs, kills)))
    figures = []
    for jobs, samples in rounds.items():
        name = f"{jobs} job{'' if jobs == 1 else 's'}"
        answered = tuple(percentile([each.answered for each in one], 0.5) for one in samples)
        running = tuple(percentile([each.known for each in one], 0.5) for one in samples)
        everything = [each.known for one in samples for each in one]
        figures += [
            Figure(f"{name}: new leader answers, p50", "s", answered),
            Figure(f"{name}: and all are RUNNING, p50", "s", running, _P50_GOAL),
            Figure(f"{name}: and all are RUNNING, worst of {len(everything)}", "s", (max(everything),), _WORST_GOAL),
        ]
    return [*figures, _silent(plan)]


def _silent(plan: Plan) -> Figure:
    """The leader's machine falls silent: its process is stopped, and its port refuses nothing."""
    say(f"takeover: {_SILENT_JOBS} jobs, silent leader")
    repetitions = [
        [each.known for each in asyncio.run(_round(_SILENT_JOBS, plan.size(3, 1), signal.SIGSTOP))]
        for _ in range(plan.repetitions)
    ]
    return Figure(
        f"{_SILENT_JOBS} jobs, leader silent: all are RUNNING, slowest",
        "s",
        tuple(max(one) for one in repetitions),
        _SILENCE_GOAL,
    )


async def _round(jobs: int, kills: int, number: signal.Signals = signal.SIGKILL) -> list[Takeover]:
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(temporary_directory())
        managers = await stack.enter_async_context(JobManagers(directory))
        for _ in range(_JOB_MANAGERS):
            await managers.add()
        node = await stack.enter_async_context(stub_jobs(managers, jobs))
        takeovers = []
        for _ in range(kills):
            takeovers.append(await _kill(managers, jobs, number))
            if node.starts != jobs:
                raise SystemExit("a driver was restarted: a bug, so there is no measurement")
            await managers.add()
        return takeovers


async def _kill(managers: JobManagers, jobs: int, number: signal.Signals) -> Takeover:
    leader = await managers.leader()
    others = [member.server.endpoint for member in managers.members if member is not leader]
    begin = time.perf_counter()
    leader.server.process.send_signal(number)
    try:
        return await until_known(others, JobStatus.RUNNING, jobs, begin)
    finally:
        managers.kill(leader)
