"""Takes a resource away from a daemon at work, and gives it back: nothing that was accepted may be lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from campaign.floors.figures import Resource
from campaign.floors.places import small_disk
from campaign.floors.trial import ended, submit
from campaign.processes.cluster import Member, RealCluster
from campaign.spark.control import Control
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.ids import JobId

SECONDS = 240.0  # within which all must have ended, on a busy machine as well
_BEFORE, _DURING, _ALL = 5, 200, 400  # entries that a job commits before and while there is too little, and in total
_SUBMISSION_SECONDS = 15.0
_DISK_KIB = 256 * 1024
_BLOCK = bytes(64 * 1024)
_POLL = 0.1


@dataclass
class Squeezed:
    """``refusal``: what a submission was told while there was too little; "" if it was accepted or had no answer.

    ``problems``: what went wrong.
    """

    refusal: str = ""
    problems: list[str] = field(default_factory=list)


async def squeeze(daemon: str, scarce: Resource) -> Squeezed:
    """Let jobs run on a cluster of which one daemon has no more of a resource for a while: descriptors or disk."""
    with tempfile.TemporaryDirectory(prefix="emberkeep-floor-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        place = directory / ("state" if daemon == "jobmanager" else "nodes")
        with small_disk(place, _DISK_KIB) if scarce is Resource.DISK else contextlib.nullcontext():
            cluster = RealCluster(directory, job_managers=1, task_managers=1, zookeepers=0)
            async with cluster, Control(cluster) as control, asyncio.timeout(SECONDS):
                member = (cluster.job_managers if daemon == "jobmanager" else cluster.task_managers)[0]
                return await _squeezed(control, directory / "jobs", _shortage(member, scarce, place), member)


async def _squeezed(
    control: Control, place: Path, shortage: contextlib.AbstractContextManager[None], member: Member
) -> Squeezed:
    found = Squeezed()
    jobs: dict[str, JobId] = {}
    jobs["long"] = await submit(control, place / "long", str(_ALL))
    await _committed(place / "long", _BEFORE)
    with shortage:
        try:
            async with asyncio.timeout(_SUBMISSION_SECONDS):
                jobs["during"] = await submit(control, place / "during")
        except TimeoutError:
            pass  # it may have been accepted or not: the job's end does not count
        except EmberkeepError as error:
            found.refusal = f"{error.message} ({error.hint})"
        await _committed(place / "long", _DURING)
    jobs["after"] = await submit(control, place / "after")
    try:
        await ended(control, list(jobs.values()))
    except ValueError as error:
        found.problems.append(str(error))
    found.problems += [f"{name}: {problem}" for name in jobs for problem in _repeated(place / name)]
    if member.daemon is None or member.daemon.process.poll() is not None:
        found.problems.append(f"{member.name} has ended")
    return found


def _shortage(member: Member, scarce: Resource, place: Path) -> contextlib.AbstractContextManager[None]:
    return _no_descriptors(member.pid) if scarce is Resource.DESCRIPTORS else _full_disk(place / "filler")


@contextlib.contextmanager
def _no_descriptors(pid: int) -> Iterator[None]:
    """Let a process open no file beside those that it has open."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 1, hard))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def _full_disk(filler: Path) -> Iterator[None]:
    """Fill a disk to its last byte."""
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(_BLOCK)
    try:
        yield
    finally:
        filler.unlink()


async def _committed(place: Path, count: int) -> None:
    """Wait until a job has committed so many entries."""
    while not (place / "entries" / str(count)).exists():  # noqa: ASYNC110 - another process creates it
        await asyncio.sleep(_POLL)


def _repeated(place: Path) -> list[str]:
    """Return what a job did twice: none of its drivers was lost, so nothing had to be repeated."""
    deeds = [json.loads(line)["what"] for line in (place / "deeds").read_text().splitlines()]
    began = deeds.count("began")
    problems = [f"it began {began} times"] if began != 1 else []
    return problems + (["it was overtaken"] if "overtaken" in deeds else [])
