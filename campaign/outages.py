"""How long streams stand still after a fault, in virtual seconds.

A stream works while the driver of its newest attempt lives, is not frozen, and reaches an executor that does so, too.
The time is counted from the fault until all streams that worked before work again, whether the system has recovered or
the fault has ended: that is what a user sees. If another fault comes while a stream stands still, neither is counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from emberkeep.taskmanager.ports import DriverKey
from tests.support.simulator.cluster import SubmittedJob
from tests.support.simulator.simulation import Run

STEP = 0.25  # virtual seconds between two looks
OVERTAKEN = -1.0  # in place of seconds: another fault came first


class Outages:
    """Watches one run. ``seconds``: how often a fault of a kind let streams stand still for so long."""

    def __init__(self, run: Run) -> None:
        self.seconds: Counter[tuple[str, float]] = Counter()
        self._run = run
        self._working: set[str] = set()  # names of streams, at the last look
        self._kind = ""  # of the fault that is being measured
        self._began = 0.0
        self._watched: set[str] = set()  # streams that worked when it came
        self._standing: set[str] = set()  # of these, those that stand still
        self._longest = 0.0  # of those that stood still and work again

    async def watch(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(STEP)
            self.look()

    def look(self) -> None:
        """Compare which streams work with those that have worked when the fault came. Also call this before a fault."""
        streams = [job for job in self._run.cluster.jobs if self._is_to_work(job)]
        self._working = {job.name for job in streams if self._works(job)}
        self._watched &= {job.name for job in streams}
        self._standing &= self._watched
        if self._standing & self._working:
            self._longest = self._run.loop.time() - self._began
        self._standing = self._watched - self._working

    def fault(self, kind: str) -> None:
        """Begin to measure a fault that was applied right now."""
        was_standing = bool(self._standing)
        self.close()
        if was_standing:
            self.seconds[kind, OVERTAKEN] += 1
        elif self._working:
            self._kind, self._began, self._longest = kind, self._run.loop.time(), 0.0
            self._watched = set(self._working)

    def close(self) -> None:
        """Count the fault that is being measured, if any."""
        if self._kind:
            self.seconds[self._kind, OVERTAKEN if self._standing else self._longest] += 1
        self._kind, self._watched, self._standing = "", set(), set()

    def _is_to_work(self, job: SubmittedJob) -> bool:
        """True if the job is a stream that its user has not ended."""
        return job.script.seconds is None and job.job_id is not None and not job.cancel_wanted and job.asked is None

    def _works(self, job: SubmittedJob) -> bool:
        cluster = self._run.cluster
        assert job.job_id is not None
        key = DriverKey(job_id=job.job_id, attempt=self._run.properties.attempts.get(job.job_id, 0))
        for spark in cluster.sparks.values():
            driver = spark.process
            if driver.alive and not driver.frozen and driver.key == key:
                executors = [each for each in spark.executors.values() if each.alive and not each.frozen]
                return any(cluster.network.passes(driver.party, each.party) for each in executors)
        return False
