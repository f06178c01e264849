"""Plays one history on a cluster of real processes: clients and faults at once, then recovery, then judgement."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from campaign.linearizability import job_store
from campaign.linearizability.history import Operation
from campaign.processes.calls import Calls, NotDone, Unknown
from campaign.processes.clients import Client, ClientsWorld, SubmittedJob
from campaign.processes.cluster import LEASE, RealCluster
from campaign.processes.deeds import Deed, Ended, Rules, read_deeds
from campaign.processes.gateways.late_writer import LateWriter
from campaign.processes.gateways.late_writes import LateWrite
from campaign.processes.gateways.stored import StoredEntry, read_stored
from campaign.processes.hosts import Hosts
from campaign.processes.jobs import Jobs
from campaign.processes.places import Loopback
from campaign.processes.plan import HistoryPlan
from campaign.processes.record import HistoryRecord
from campaign.processes.recording import Recorder
from campaign.processes.strikes import Striker
from campaign.processes.transfers.caches import CacheWatch
from campaign.processes.transfers.seen import SeenFile, read_seen

CLIENTS = 5
RULES = Rules(lease=LEASE, freeze=LEASE / 2)
SETTLE_SECONDS = 150.0  # a job may wait for its restart, for a lease and for a place
_MOST_JOBS_PER_SECOND = 0.25  # a driver's start takes two seconds of processor time
_POLL = 0.3
_ENDS = ("FINISHED", "FAILED", "CANCELED")
_NO_LATE_WRITES: Mapping[str, Sequence[LateWrite]] = {}


async def play_history(
    cluster: RealCluster, plan: HistoryPlan, place: Path, hosts: Hosts | None = None
) -> HistoryRecord:
    """Play a history. ``place``: an empty directory, for what its jobs do. ``hosts``: of the members, if any."""
    await settle_members(cluster)
    recorder, chance = Recorder(), random.Random(f"{plan.seed}/jobs")
    async with Calls(cluster.token) as calls:
        jobs = Jobs(place, chance, plan.seed, max(2, round(_MOST_JOBS_PER_SECOND * plan.seconds)))
        nodes = [("nodes", "away"), ("nodes", "node-1"), ("taskmanagers", "tm-2"), ("taskmanagers", "gone")]
        world = ClientsWorld(calls, cluster.urls, nodes, recorder, jobs.make)
        clients = [
            Client(f"client-{number}", world, random.Random(f"{plan.seed}/client-{number}"))
            for number in range(CLIENTS)
        ]
        striker = Striker(cluster, world, clients, hosts)
        late, caches = LateWriter(world, hosts or Loopback()), CacheWatch(cluster)
        began = time.monotonic()
        async with _beside(late.run(), caches.run()):
            async with asyncio.TaskGroup() as group:
                group.create_task(striker.play(plan.faults, began))
                for client in clients:
                    group.create_task(client.run(began + plan.seconds))
            ending = Ending(world)
            ends = await ending.run()
        await late.finish()
        await caches.ended({end.job_id for end in ends if end.status in _ENDS})
        problems = [*recorder.unexpected, *striker.problems, *ending.problems, *caches.problems]
    return recorded(plan, recorder, striker, world, ends, problems, late.written)


@contextlib.asynccontextmanager
async def _beside(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run coroutines, which never end by themselves, beside the body."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()  # raises why it has ended


def recorded(
    plan: HistoryPlan,
    recorder: Recorder,
    striker: Striker,
    world: ClientsWorld,
    ends: Sequence[Ended],
    problems: Sequence[str],
    late: Mapping[str, Sequence[LateWrite]] = _NO_LATE_WRITES,
) -> HistoryRecord:
    """Return what clients and faults have left of a history that is over. ``late``: by job."""
    return HistoryRecord(
        plan=plan,
        rules=RULES,
        unix_minus_clock=time.time() - time.monotonic(),
        strikes=tuple(striker.applied),
        jobs=tuple(recorder.histories["jobs"]),
        blocklist=tuple(recorder.histories["blocklist"]),
        answered=tuple(recorder.answered),
        counts=dict(recorder.counts),
        deeds=deeds_of(world, ends),
        stored=stored_by(world, ends),
        late={job_id: tuple(writes) for job_id, writes in late.items()},
        seen=seen_by(world, ends),
        ends=tuple(ends),
        problems=tuple(problems),
    )


async def settle_members(cluster: RealCluster) -> None:
    """Wait until all members run and the leader knows all task managers. Raises TimeoutError."""
    await cluster.complete()
    async with Calls(cluster.token) as calls, asyncio.timeout(SETTLE_SECONDS):
        while True:
            try:
                reply = await calls.call("GET", cluster.urls[0], "/overview")
            except (NotDone, Unknown):
                reply = None
            if reply is not None and reply.status == 200 and reply.body["taskmanagers"] == len(cluster.task_managers):
                return
            await asyncio.sleep(_POLL)


class Ending:
    """Unblocks everything and waits until all jobs that run have ended, with all processes well."""

    def __init__(self, world: ClientsWorld) -> None:
        self.problems: list[str] = []
        self._seen = 0
        self._world = world
        self._last = Client("at the end", world, random.Random(world.urls[0]))

    async def run(self) -> list[Ended]:
        """Return how each job that was accepted has ended."""
        deadline = time.monotonic() + SETTLE_SECONDS
        for kind, name in self._world.places:
            await self._until(partial(self._last.unblock, kind, name), partial(self._shows, "blocklist"), deadline)
        await self._until(self._last.list_blocklist, partial(self._shows, "blocklist"), deadline)
        await self._until(self._last.list_jobs, self._all_ended, deadline)
        ends = [self._ended(job, job_id) for job in self._world.jobs if not job.is_parked for job_id in job.candidates]
        return [end for end in ends if end is not None]

    async def _until(self, deed: Callable[[], Awaitable[None]], done: Callable[[], bool], deadline: float) -> None:
        while time.monotonic() < deadline:
            await deed()
            if done():
                return
            await asyncio.sleep(_POLL)
        self.problems.append(f"not {SETTLE_SECONDS:g} s after all faults were over: {deed}")

    def _own(self, history: str) -> list[Operation]:
        return [each for each in self._world.recorder.histories[history] if each.client == self._last.name]

    def _shows(self, history: str) -> bool:
        """True if the last client has had a reply to its newest request."""
        own = self._own(history)
        before, self._seen = self._seen, len(own)
        return len(own) > before and own[-1].returned is not None

    def _all_ended(self) -> bool:
        newest = self._newest()
        return bool(self._own("jobs") or all(job.is_parked for job in self._world.jobs)) and all(
            result == job_store.ABSENT or result["status"] in _ENDS for result in newest.values()
        )

    def _newest(self) -> dict[str, Any]:
        return {each.arguments["jobid"]: each.result for each in self._own("jobs")}

    def _ended(self, job: SubmittedJob, job_id: str) -> Ended | None:
        result = self._newest().get(job_id, job_store.ABSENT)
        if result == job_store.ABSENT:
            return None
        about = [each for each in self._world.recorder.histories["jobs"] if each.arguments["jobid"] == job_id]
        return end_of(job_id, result["status"], about, job.entries)


def end_of(job_id: str, status: str, about: Sequence[Operation], entries: int) -> Ended:
    """Return how a job has ended. ``about``: what clients have recorded of it."""
    reads = [each for each in about if each.kind == "read" and each.returned and each.result != job_store.ABSENT]
    cancels = [each for each in about if each.kind == "cancel" and each.result is None]
    acknowledged = min((each.returned for each in cancels if each.returned is not None), default=None)
    ran = (each.invoked for each in reads if acknowledged is not None and each.invoked > acknowledged and _runs(each))
    return Ended(
        job_id=job_id,
        status=status,
        shown=min((each.returned for each in reads if each.returned and each.result["status"] in _ENDS), default=None),
        cancelled=bool(cancels),
        entries=entries,
        acknowledged=acknowledged,
        ran=max(ran, default=None),
    )


def _runs(read: Operation) -> bool:
    return bool(read.result["status"] == "RUNNING")


def deeds_of(world: ClientsWorld, ends: Sequence[Ended]) -> dict[str, tuple[Deed, ...]]:
    """Return the deeds of each job that was accepted."""
    found = {}
    accepted = {end.job_id for end in ends}
    for job in world.jobs:
        file = job.place / "deeds"
        for job_id in accepted.intersection(job.candidates):
            found[job_id] = tuple(read_deeds(file.read_bytes())) if file.exists() else ()
    return found


def seen_by(world: ClientsWorld, ends: Sequence[Ended]) -> dict[str, tuple[SeenFile, ...]]:
    """Return which files the executors of each job that was accepted have found."""
    accepted, found = {end.job_id for end in ends}, {}
    for job in world.jobs:
        file = job.place / "seen"
        for job_id in accepted.intersection(job.candidates) if file.exists() else ():
            found[job_id] = read_seen(file.read_bytes())
    return found


def stored_by(world: ClientsWorld, ends: Sequence[Ended]) -> dict[str, tuple[StoredEntry, ...]]:
    """Return what each job that was accepted has stored through state gateways."""
    accepted = {end.job_id for end in ends}
    return {
        job_id: read_stored(job.place)
        for job in world.jobs
        if job.is_stored
        for job_id in accepted.intersection(job.candidates)
    }
