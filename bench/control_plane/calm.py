"""No JobManager takes over from a leader that is only slow: JobManagers on a machine that is far too busy.

Three JobManagers with all settings at their defaults, their ZooKeeper and a task manager of stub drivers share the
cores with ``BUSY`` processes that only compute: they play the simulated worlds of ``make campaign SEED=2``, which goes
on where it was. A repetition takes ten minutes, so that 24 are four hours.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path

from bench.commands import temporary_directory
from bench.job_managers import JobManagers
from bench.load.stub_jobs import stub_jobs
from bench.machine import load_average
from bench.measure import Figure, Goal
from bench.plan import Plan, say
from emberkeep.base.errors import RetryLater
from emberkeep.client.rest_client import RestClient

BUSY = 20
_ROOT = Path(__file__).parents[2]
_JOB_MANAGERS = 3
_STUB_DRIVERS = 10
_SECONDS = 600.0  # of a repetition
_POLL = 1.0
_START_SECONDS = 600.0  # for the jobs to run, on a machine that is busy already
_WORLDS = (sys.executable, "-m", "campaign", "--levels", "simulation", "--seed", "2", "--minutes", "600")


def measure(plan: Plan) -> list[Figure]:
    """Count the takeovers that nothing but load has caused."""
    return asyncio.run(_measure(plan))


async def _measure(plan: Plan) -> list[Figure]:
    seconds = plan.size(int(_SECONDS), 20)
    takeovers, longest, loads = [], [], []
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(temporary_directory())
        managers = await stack.enter_async_context(JobManagers(directory))
        for _ in range(_JOB_MANAGERS):
            await managers.add()
        await stack.enter_async_context(stub_jobs(managers, _STUB_DRIVERS, _START_SECONDS))
        check_busy = stack.enter_context(_busy())
        for _ in plan.turns(f"calm: {seconds} s beside {BUSY} busy processes"):
            changes, silence = await _watch(managers, seconds)
            check_busy()
            takeovers.append(float(changes))
            longest.append(silence)
            loads.append(load_average())
    name = f"{_JOB_MANAGERS} JobManagers, {_STUB_DRIVERS} jobs, {seconds} s beside {BUSY} busy processes"
    return [
        Figure(f"{name}: takeovers, in all", "", (sum(takeovers),), Goal(at_most=0.0)),
        Figure(f"{name}: longest time in which the leader did not answer", "s", tuple(longest)),
        Figure(f"{name}: load average at the end", "", tuple(loads)),
    ]


async def _watch(managers: JobManagers, seconds: float) -> tuple[int, float]:
    """Return by how much the leader's epoch rose, and the longest time between two of its answers, in seconds."""
    first = last = await _epoch(managers)
    answered, longest, end = time.monotonic(), 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        await asyncio.sleep(_POLL)
        last = await _epoch(managers)
        now = time.monotonic()
        longest, answered = max(longest, now - answered - _POLL), now
        if last > first:
            say(f"calm: the leader's epoch is {last}, and was {first}")
    return last - first, longest


async def _epoch(managers: JobManagers) -> int:
    """Return the leader's epoch, which rises with each takeover."""
    while True:
        leader = await managers.leader()
        try:
            async with RestClient(leader.server.endpoint) as client:
                return (await client.leadership()).epoch
        except RetryLater:
            await asyncio.sleep(_POLL)


@contextmanager
def _busy() -> Iterator[Callable[[], None]]:
    """Keep the cores busy, at normal priority. Yield a check that they were: it raises SystemExit if they are not."""
    process = subprocess.Popen(
        [*_WORLDS, "--processes", str(BUSY)], cwd=_ROOT, stdout=subprocess.DEVNULL, start_new_session=True
    )

    def check() -> None:
        if process.poll() is not None:
            raise SystemExit("calm: no worlds are played any more: see .campaign/2/report")

    try:
        yield check
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
