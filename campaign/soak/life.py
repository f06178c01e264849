"""Lives the rounds of a soak on a real cluster: jobs come and go, and what users and machines do to them."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from campaign.processes.cluster import RealCluster
from campaign.processes.jobs import PAUSE
from campaign.soak.drift import Sample
from campaign.soak.plan import Deed
from campaign.soak.samples import Sampler
from campaign.spark.control import Control
from campaign.spark.jobs import NotRecovered, StreamJob
from campaign.spark.plan import PlannedQuery, PlannedStream
from emberkeep.base.errors import Conflict, EmberkeepError
from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobStatus

SAMPLE_SECONDS = 10.0
JOB_SECONDS = 600.0  # within which a job of some seconds must have ended, on a busy machine as well
_JOB = Path(__file__).parents[1] / "processes" / "job.py"
_ENTRIES = (20, 100)
_EVACUATED = 10.0  # seconds until a node may be used again
_STREAM = PlannedStream((PlannedQuery("passed", "files", False, False),), files_per_batch=1, empty_batches=False)
_POLL = 1.0
_NO_QUERY = "the job runs no streaming query"


class Life:
    """``counts``: deeds that were done. ``problems``: what did not end as it must. ``place``: for what jobs write.

    ``streams``: number of real PySpark streams; 0 needs no Java beside ZooKeeper's, and has no savepoints.
    """

    def __init__(self, cluster: RealCluster, control: Control, place: Path, *, streams: int) -> None:
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.samples: list[Sample] = []
        self._cluster = cluster
        self._control = control
        self._place = place
        self._streams = [StreamJob(control, _STREAM, place / f"stream-{n}", f"soak/{n}") for n in range(streams)]
        self._moving = asyncio.Lock()  # a stream does one thing at a time
        self._end = asyncio.Event()
        self._feeds: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Submit the streams. Raises NotRecovered."""
        for stream in self._streams:
            await stream.begin()
            self._feeds.append(asyncio.create_task(stream.feed(self._end)))

    async def round(self, deeds: Sequence[Deed], seconds: float, lived: float) -> None:
        """Live one round, and sample all the time. ``lived``: seconds of the life before it."""
        began, sampler = time.monotonic(), Sampler(self._cluster)
        tasks = [asyncio.create_task(self._do(deed, began)) for deed in deeds]
        try:
            while True:
                at = time.monotonic() - began
                if at > seconds and all(task.done() for task in tasks):
                    break
                self.samples += await sampler.take(lived + at, await self._control.leader())
                await asyncio.sleep(SAMPLE_SECONDS)
        finally:
            for task in tasks:
                task.cancel()

    async def end(self) -> None:
        """Drain the streams. Raises NotRecovered."""
        self._end.set()
        await asyncio.gather(*self._feeds)
        for stream in self._streams:
            await stream.finish()

    async def _do(self, deed: Deed, began: float) -> None:
        chance = random.Random(deed.number)
        deeds: dict[str, Callable[[random.Random], Awaitable[None]]] = {
            "job": self._job,
            "cancelled job": self._cancelled_job,
            "kill leader": self._kill_leader,
            "evacuate a node": self._evacuate,
            "savepoint": self._savepoint,
            "upgrade": self._upgrade,
        }
        await asyncio.sleep(max(0.0, began + deed.at - time.monotonic()))
        try:
            await deeds[deed.kind](chance)
        except (EmberkeepError, NotRecovered, TimeoutError, ValueError) as error:
            self.problems.append(f"{deed.kind}: {error}")
        except Exception as error:  # noqa: BLE001 - what nobody foresees is a problem as well, and nobody awaits this
            self.problems.append(f"{deed.kind}: {type(error).__name__}: {error}")

    # --- deeds --------------------------------------------------------------------------------------------------------

    async def _job(self, chance: random.Random) -> None:
        place, job_id = await self._submit(chance)
        await self._ends(job_id, JobStatus.FINISHED)
        await asyncio.to_thread(shutil.rmtree, place)
        self.counts["job"] += 1

    async def _cancelled_job(self, chance: random.Random) -> None:
        place, job_id = await self._submit(chance)
        await asyncio.sleep(chance.uniform(0.0, 5.0))
        with contextlib.suppress(Conflict):  # it has ended by itself
            await self._control.cancel(job_id)
        await self._ends(job_id, JobStatus.FINISHED, JobStatus.CANCELED)
        await asyncio.to_thread(shutil.rmtree, place)
        self.counts["cancelled job"] += 1

    async def _submit(self, chance: random.Random) -> tuple[Path, JobId]:
        place = self._place / f"job-{chance.getrandbits(64):016x}"
        place.mkdir(parents=True)
        entries = chance.randint(*_ENTRIES)
        return place, await self._control.submit(_JOB, (str(place), str(entries), str(PAUSE), "none", ""))

    async def _ends(self, job_id: JobId, *ends: JobStatus) -> None:
        deadline = time.monotonic() + JOB_SECONDS
        while True:
            state = (await self._control.job(job_id)).state
            if state.is_globally_terminal:
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"job {job_id} is {state.value} after {JOB_SECONDS:g} s")
            await asyncio.sleep(_POLL)
        if state not in ends:
            raise ValueError(f"job {job_id} has ended as {state.value}")

    async def _kill_leader(self, _: random.Random) -> None:
        leader = await self._control.leader()
        if leader is None:
            return
        self._cluster.kill(leader)
        await self._control.answers()
        await self._cluster.start(leader)
        self.counts["kill leader"] += 1

    async def _evacuate(self, chance: random.Random) -> None:
        node = f"node-{chance.randint(1, len(self._cluster.task_managers))}"
        await self._control.evacuate(node)
        await asyncio.sleep(_EVACUATED)
        await self._control.unblock(node)
        self.counts["evacuate a node"] += 1

    async def _savepoint(self, chance: random.Random) -> None:
        if not self._streams:
            return
        async with self._moving:
            stream = chance.choice(self._streams)
            target = stream.place / "savepoints"
            location = await self._once_a_query_runs(lambda: self._control.savepoint(stream.job_id, target))
            await asyncio.to_thread(shutil.rmtree, location.removeprefix("file://"))
        self.counts["savepoint"] += 1

    async def _upgrade(self, chance: random.Random) -> None:
        """Stop a stream with a savepoint, and start it from there."""
        if not self._streams:
            return
        async with self._moving:
            stream = chance.choice(self._streams)
            target = stream.place / "savepoints"
            location = await self._once_a_query_runs(lambda: self._control.stop(stream.job_id, target, drain=False))
            await stream.until(stream.has_finished, "the stopped job is FINISHED")
            await stream.begin(location)
        self.counts["upgrade"] += 1

    async def _once_a_query_runs(self, ask: Callable[[], Awaitable[str]]) -> str:
        """Return the savepoint's location. Ask again, as users are told to, while a restarted script has no query."""
        deadline = time.monotonic() + JOB_SECONDS
        while True:
            try:
                return await ask()
            except ValueError as error:
                if _NO_QUERY not in str(error) or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(_POLL)
