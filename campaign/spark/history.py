"""Plays one history: streams and batch jobs on a cluster of its own, faults, and the comparison at the end."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

from campaign.processes.cluster import RealCluster
from campaign.spark.control import Control
from campaign.spark.jobs import BatchJob, NotRecovered, StreamJob
from campaign.spark.plan import HistoryPlan
from campaign.spark.record import HistoryRecord, batch_place, compare_all, stream_place
from campaign.spark.strikes import Striker
from emberkeep.base.errors import EmberkeepError

TASK_MANAGERS = 2
_SETTINGS = {
    "taskmanager.numberOfTaskSlots": "4",  # one task manager has room for everything
    "taskmanager.driver-places": "4",
}


def open_cluster(plan: HistoryPlan, directory: Path) -> RealCluster:
    """Return the cluster of a history, which is not started yet."""
    warm = "1" if plan.standbys else "0"
    return RealCluster(
        directory,
        job_managers=plan.job_managers,
        task_managers=TASK_MANAGERS,
        zookeepers=plan.zookeepers,
        settings={
            **_SETTINGS,
            "taskmanager.standby.drivers": warm,
            "taskmanager.standby.executors": warm,
            "state.backend.local-recovery": "true" if plan.local_state else "false",
        },
    )


async def play_history(plan: HistoryPlan, place: Path, until: float) -> HistoryRecord:
    """Play a history. ``place``: an empty directory. No fault begins after ``until`` (of ``time.monotonic``)."""
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(open_cluster(plan, place / "cluster"))
        control = await stack.enter_async_context(Control(cluster))
        streams = [
            StreamJob(control, each, stream_place(place, number), f"{plan.seed}/stream-{number}")
            for number, each in enumerate(plan.streams)
        ]
        striker = Striker(cluster, control, streams)
        problems: list[str] = []
        end = asyncio.Event()
        feeders = [asyncio.create_task(job.feed(end)) for job in streams]
        try:
            await control.answers()
            await asyncio.gather(*(job.begin() for job in streams))
            await _play_faults(plan, place, striker, control, until)
            end.set()
            await asyncio.gather(*feeders)
            cluster.thaw_all()
            await cluster.complete()
            if not striker.gave_up:
                await asyncio.gather(*(job.finish() for job in streams), *(job.finish() for job in striker.batch_jobs))
        except (NotRecovered, EmberkeepError, TimeoutError, ValueError) as error:
            problems.append(str(error))
        finally:
            for feeder in feeders:
                feeder.cancel()
            await asyncio.gather(*feeders, return_exceptions=True)
    batches = tuple(job.plan.kind for job in striker.batch_jobs)
    # What has not recovered has not written everything either: a comparison would only repeat that.
    comparisons = () if problems or striker.gave_up else await asyncio.to_thread(compare_all, place, plan, batches)
    return HistoryRecord(
        plan=plan,
        strikes=tuple(striker.applied),
        comparisons=comparisons,
        problems=(*striker.problems, *problems),
        batches=batches,
        files=await asyncio.to_thread(_files, place),
        seconds=time.monotonic() - began,
    )


def _files(place: Path) -> int:
    return len(list(place.glob("*/in/*.json")))


async def _play_faults(plan: HistoryPlan, place: Path, striker: Striker, control: Control, until: float) -> None:
    """Apply each fault when the one before is recovered, or at once where both are planned together."""
    left, playing = list(plan.batches), list[asyncio.Task[None]]()
    try:
        for fault in plan.faults:
            if time.monotonic() > until or striker.problems:
                return
            if left and left[0].before <= fault.number:
                number = len(striker.batch_jobs)
                job = BatchJob(control, left.pop(0), batch_place(place, number), f"{plan.seed}/batch-{number}")
                await job.begin()
                striker.batch_jobs.append(job)
            await asyncio.sleep(fault.pause)
            playing.append(asyncio.create_task(striker.strike(fault)))
            if not fault.together:
                await asyncio.wait(playing)
    finally:
        # A task ends by itself: what it waits for is bounded, and what it has done must be undone.
        await asyncio.gather(*playing)
