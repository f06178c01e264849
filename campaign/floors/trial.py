"""A trial: one daemon of a real cluster has little of one resource, and a few jobs must finish."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from campaign.floors.figures import Resource
from campaign.floors.places import memory_group, small_disk
from campaign.processes.cluster import RealCluster
from campaign.spark.control import Control
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.files.log_tail import private_output
from emberkeep.base.ids import JobId
from emberkeep.base.processes.process_identity import identify
from emberkeep.client.clusters.daemon_process import Daemon, DaemonCommand, daemon_program, start_daemon
from emberkeep.jobs.model import JobStatus

JOBS = 3
SECONDS = 30.0  # within which the jobs, of some seconds, must have ended
JOB = Path(__file__).parents[1] / "processes" / "job.py"
_ENTRIES, _PAUSE = "10", "0.05"
_POLL = 0.2


@dataclass(frozen=True)
class Trial:
    """``daemon``: "jobmanager" or "taskmanager", which gets ``amount`` of the resource."""

    daemon: str
    resource: Resource
    amount: int


@dataclass(frozen=True)
class Tried:
    """``problem``: why it does not work, as a user sees it; "" if it does."""

    trial: Trial
    problem: str = ""

    @property
    def works(self) -> bool:
        return not self.problem


async def attempt(trial: Trial) -> Tried:
    """Run a cluster of one JobManager and one task manager, with jobs, and clean up after it."""
    with tempfile.TemporaryDirectory(prefix="emberkeep-floor-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        with contextlib.ExitStack() as stack:
            confining: list[str] = []
            if trial.resource is Resource.DESCRIPTORS:
                confining = ["--descriptors", str(trial.amount)]
            elif trial.resource is Resource.MEMORY:
                confining = ["--group", str(stack.enter_context(memory_group(trial.amount)))]
            else:
                place = directory / ("state" if trial.daemon == "jobmanager" else "nodes")
                stack.enter_context(small_disk(place, trial.amount))
            starts = _starter(trial.daemon, confining)
            return Tried(trial, await _problem(directory, starts))


async def _problem(directory: Path, starts: Callable[[DaemonCommand], Daemon]) -> str:
    cluster = RealCluster(directory, job_managers=1, task_managers=1, zookeepers=0, starts=starts)
    try:
        async with cluster, Control(cluster) as control, asyncio.timeout(SECONDS):
            jobs = [await submit(control, directory / "jobs" / str(number)) for number in range(JOBS)]
            await ended(control, jobs)
            gone = [each.name for each in cluster.members if not cluster.is_running(each)]
            return f"{', '.join(gone)} has ended" if gone else ""
    except TimeoutError:
        return f"the jobs have not ended within {SECONDS:g} s{_last_warning(directory)}"
    except (EmberkeepError, OSError, ValueError) as error:
        return str(error).splitlines()[0]


async def submit(control: Control, place: Path, entries: str = _ENTRIES) -> JobId:
    """Submit a job without Spark, which commits entries in ``place``."""
    await asyncio.to_thread(place.mkdir, parents=True)
    return await control.submit(JOB, (str(place), entries, _PAUSE, "none", ""))


async def ended(control: Control, jobs: list[JobId]) -> None:
    """Wait until all jobs have ended. Raises ValueError if one has not finished."""
    for job in jobs:
        while True:
            state = (await control.job(job)).state
            if state.is_globally_terminal:
                break
            await asyncio.sleep(_POLL)
        if state is not JobStatus.FINISHED:
            raise ValueError(f"a job is {state.value}")


def _starter(module: str, confining: list[str]) -> Callable[[DaemonCommand], Daemon]:
    """Return what starts daemons, those of ``module`` with few resources."""

    def start(command: DaemonCommand) -> Daemon:
        if command.module != module or not confining:
            return start_daemon(command)
        command.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        words = [*daemon_program(command.module), *command.arguments]
        with private_output(command.out) as out, private_output(command.err) as err:
            process = subprocess.Popen(
                [sys.executable, "-m", "campaign.floors.confined", *confining, "--", *words],
                cwd=Path(__file__).parents[2],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        identity = identify(process.pid)
        if identity is None:
            raise OSError(f"{command.module} has ended at once: see {command.err}")
        return Daemon(command, process, identity)

    return start


def _last_warning(directory: Path) -> str:
    """Return what a daemon has logged last that is no mere information."""
    newest: tuple[float, str] = (0.0, "")
    for file in directory.glob("*/**/logs/*manager.log"):
        for line in file.read_text(errors="replace").splitlines():
            with contextlib.suppress(msgspec.DecodeError, AttributeError):
                record = msgspec.json.decode(line)
                if record.get("level") in ("warning", "error", "critical"):
                    reason = record.get("reason", "")
                    newest = max(newest, (time.time(), f": {record.get('event')}{reason and f' ({reason})'}"))
    return newest[1]
