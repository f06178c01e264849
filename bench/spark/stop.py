"""Stopping streaming jobs with a savepoint: how long it takes beyond the batch that runs.

The peer is what people do by hand: ``query.stop()`` between two micro-batches, then copy and sync the checkpoint.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.clusters import emberkeep_cluster
from bench.commands import EMBERKEEP, JOBS, SPARK_SUBMIT, execute, marked, temporary_directory
from bench.measure import Figure, Goal, ratios
from bench.plan import Plan, say
from emberkeep.base.ids import JobId
from emberkeep.client.clusters.cluster_file import read_cluster
from emberkeep.client.clusters.discovery import local_endpoint
from emberkeep.client.rest_client import RestClient
from emberkeep.jobs.model import JobStatus
from emberkeep.lifecycle.manifest import MANIFEST_NAME
from emberkeep.protocol.rest_savepoints import OperationStatus

_SMALL = ("--driver-memory", "512m", "--executor-memory", "512m")
_BATCHES = 10  # before a stop
_WAIT_SECONDS = 300.0
_POLL = 0.02
_DURABLE, _FINISHED, _DRAINED_END = Goal(at_most=0.5), Goal(at_most=1.0), Goal(at_most=1.0)


@dataclass(frozen=True)
class Stopped:
    """Seconds. ``running``: until the batch was committed that ran at the request, 0 where none did. From then on:
    ``drained`` until the last batch of the drain was, ``durable`` until the savepoint was complete, ``finished`` until
    the client knew that the job has ended."""

    running: float
    drained: float
    durable: float
    finished: float


def measure(plan: Plan) -> list[Figure]:
    """Stops of one job each, in turn with the same by hand."""
    suspends, drains, left, copied, ended = [], [], [], [], []
    with temporary_directory() as directory, marked({}) as environment:
        for turn in range(plan.repetitions):
            say(f"stop: {turn + 1} of {plan.repetitions}")
            home = directory / f"cluster-{turn}"
            home.mkdir()
            with emberkeep_cluster(home, ["127.0.0.2"], environment) as where:
                suspends.append(_stop(directory / f"suspend-{turn}", where, environment, drain=False))
                drains.append(_stop(directory / f"drain-{turn}", where, environment, drain=True))
            place = directory / f"by-hand-{turn}"
            command = [SPARK_SUBMIT, "--master", "local[1]", "--driver-memory", "512m", str(JOBS / "windows.py")]
            done = execute([*command, str(place), f"{place}-copy"], directory, environment)
            left += done.numbers("STOPPED")
            copied += done.numbers("COPIED")
            ended.append(done.started + done.seconds - done.numbers("LEFT")[0])
    by_hand = tuple(stop + copy for stop, copy in zip(left, copied, strict=True))
    return [
        *_figures("suspend", suspends),
        *_figures("drain", drains),
        Figure("by hand: query.stop() between two batches", "s", tuple(left)),
        Figure("by hand: until the checkpoint is copied and synced", "s", by_hand),
        Figure("by hand: until the process has ended", "s", tuple(ended)),
        Figure("savepoint durable, suspend / by hand", "×", ratios([each.durable for each in suspends], by_hand)),
        Figure("ended, suspend / by hand", "×", ratios([each.finished for each in suspends], ended)),
    ]


def _figures(name: str, stops: list[Stopped]) -> list[Figure]:
    is_drain = name == "drain"
    durable, finished = tuple(each.durable for each in stops), tuple(each.finished for each in stops)
    figures = [
        Figure(f"{name}: the batch that ran at the request", "s", tuple(each.running for each in stops)),
        Figure(f"{name}: beyond it, until the savepoint is durable", "s", durable, None if is_drain else _DURABLE),
        Figure(f"{name}: beyond it, until the job is FINISHED", "s", finished, None if is_drain else _FINISHED),
    ]
    if is_drain:
        drained = tuple(each.drained for each in stops)
        figures.insert(1, Figure("drain: then until all has come out", "s", drained))
        rest = tuple(end - last for end, last in zip(finished, drained, strict=True))
        figures.append(Figure("drain: from its own last batch until the job is FINISHED", "s", rest, _DRAINED_END))
    return figures


def _stop(place: Path, where: list[str], environment: Mapping[str, str], *, drain: bool) -> Stopped:
    words = [EMBERKEEP, "submit", *where, "-q", *_SMALL, "--num-executors", "1", str(JOBS / "windows.py"), str(place)]
    job_id = JobId(execute(words, place.parent, environment).output.strip())
    return asyncio.run(_stop_it(Path(where[-1]), job_id, place, drain=drain))


async def _stop_it(state: Path, job_id: JobId, checkpoint: Path, *, drain: bool) -> Stopped:
    record = read_cluster(state / "cluster.json")
    if record is None:
        raise SystemExit("no cluster runs")
    async with RestClient(local_endpoint(record, state)) as client:
        deadline = time.monotonic() + _WAIT_SECONDS
        while len(list((checkpoint / "commits").glob("[0-9]*"))) < _BATCHES:
            if time.monotonic() > deadline:
                raise SystemExit(f"the job has not reached batch {_BATCHES}: {await client.job(job_id)}")
            await asyncio.sleep(_POLL)
        asked = time.time()
        trigger = await client.savepoints.stop(job_id, drain=drain, target=f"{checkpoint}-savepoints")
        while True:
            status = await client.savepoints.status(job_id, trigger.request_id)
            if status.status.id is OperationStatus.COMPLETED:
                break
            if time.monotonic() > deadline:
                raise SystemExit(f"the job was not stopped: {status}")
            await asyncio.sleep(_POLL)
        finished = time.time()
        if (await client.job(job_id)).state is not JobStatus.FINISHED or status.operation is None:
            raise SystemExit(f"the job was not stopped: {status}")
        path = Path(str(status.operation.location))
        (query,) = (await client.savepoints.manifest(str(path))).queries
    last = query.drained_from if drain else query.batch_id
    batch, drained = (_committed(checkpoint, each) for each in (last, query.batch_id))
    return timed(asked, batch, drained, (path / MANIFEST_NAME).stat().st_mtime, finished)


def timed(asked: float, batch: float, drained: float, durable: float, finished: float) -> Stopped:
    """All in Unix seconds: the request, the commits of the last batch that reads and of the last one at all, the
    manifest, the end."""
    begin = max(asked, batch)
    return Stopped(begin - asked, max(begin, drained) - begin, durable - begin, finished - begin)


def _committed(checkpoint: Path, batch: int) -> float:
    return (checkpoint / "commits" / str(batch)).stat().st_mtime
