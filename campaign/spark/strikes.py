"""Applies planned faults to a cluster that runs real Spark, and measures how long each takes to recover."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from pathlib import Path

import msgspec

from campaign.processes.cluster import Member, RealCluster, send
from campaign.spark.checkpoints import Reached
from campaign.spark.control import ANSWER_SECONDS, POLL, Control
from campaign.spark.jobs import BatchJob, NotRecovered, StreamJob
from campaign.spark.plan import PlannedFault
from campaign.spark.savepoint_strikes import WITHOUT_KILL, Done, SavepointStrikes
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.ids import JobId
from emberkeep.base.processes.process_identity import read_stat

_AGAIN = 3  # times that a start is tried
_NEW_DRIVER = ("kill driver", "kill driver's JVM", "lose node")  # a batch that was planned is not the proof


class Strike(msgspec.Struct, frozen=True, kw_only=True):
    """A fault that was applied, by the clock of the history. ``until``: when it was over; it may last itself.

    ``streams``: seconds from ``at`` until each query of each job that was running had committed a batch that was
    planned after the fault, or run by a new driver. ``answers``: until the cluster answered with all its members.
    ``together``: another fault was there at the same time. ``outcome``: of a savepoint or a suspend that failed.
    """

    kind: str
    target: str
    at: float
    until: float
    streams: float | None = None
    answers: float | None = None
    together: bool = False
    outcome: str = ""


class Striker:
    """``applied``: what was done. ``problems``: what was wrong. ``batch_jobs``: those that were submitted.

    ``gave_up``: something has not recovered in time.
    """

    def __init__(self, cluster: RealCluster, control: Control, streams: list[StreamJob]) -> None:
        self.applied: list[Strike] = []
        self.problems: list[str] = []
        self.gave_up = False
        self.batch_jobs: list[BatchJob] = []
        self._cluster = cluster
        self._control = control
        self._streams = streams
        self._savepoints = SavepointStrikes(control, self._driver)
        self._active = 0
        self._overlaps = 0  # grows whenever a fault begins beside another one

    async def strike(self, fault: PlannedFault) -> None:
        """Apply a fault, and wait until it is recovered."""
        chance = random.Random(f"{fault.number}/{fault.kind}")
        self._active += 1
        alone = self._active == 1
        if not alone:
            self._overlaps += 1
        overlaps, at = self._overlaps, time.monotonic()
        before = {job: job.reached() for job in self._streams if not job.moving}
        try:
            done = await self._apply(fault, chance)
            if not done.target:
                return
            until = time.monotonic()
            answers = await self._answers(at)
            streams = await self._streams_work(fault, before, at)
            together = not alone or overlaps != self._overlaps
            self.applied.append(
                Strike(
                    kind=done.kind,
                    target=done.target,
                    at=at,
                    until=until,
                    streams=streams,
                    answers=answers,
                    together=together,
                    outcome=done.outcome,
                )
            )
            if done.outcome and not together and done.kind in WITHOUT_KILL.values():
                self.problems.append(f"{done.kind} of {done.target} has failed without a fault: {done.outcome}")
        except (EmberkeepError, TimeoutError, NotRecovered) as error:
            self.problems.append(f"after {fault.kind} (fault {fault.number}): {error}")
            self.gave_up = True
        finally:
            self._active -= 1

    async def _apply(self, fault: PlannedFault, chance: random.Random) -> Done:
        verb, _, what = fault.kind.partition(" ")
        if what in ("driver", "driver's JVM", "executor"):
            return Done(fault.kind, await self._strike_process(verb, what, fault, chance))
        if fault.kind in WITHOUT_KILL or fault.kind in WITHOUT_KILL.values():
            job = self._stream(chance)
            return Done(fault.kind) if job is None else await self._savepoints.strike(job, fault)
        return Done(fault.kind, await self._strike_member(verb, what, fault, chance))

    # --- recovery -----------------------------------------------------------------------------------------------------

    async def _answers(self, at: float) -> float:
        await self._control.answers()
        return time.monotonic() - at

    async def _streams_work(
        self, fault: PlannedFault, before: dict[StreamJob, dict[str, Reached]], at: float
    ) -> float | None:
        """Wait until each query has committed a batch after the fault. Return the seconds; None if all were moved."""
        by_new_driver = fault.kind in _NEW_DRIVER
        deadline = time.monotonic() + ANSWER_SECONDS
        last: float | None = None
        for job, queries in before.items():
            for name, then in queries.items():
                wanted = then.committed if by_new_driver else then.planned
                while not job.moving:
                    now = job.reached().get(name)
                    if now is not None and now.committed > wanted:
                        last = time.monotonic() - at
                        break
                    if time.monotonic() > deadline:
                        raise NotRecovered(f"{job.place.name}: {name} commits nothing after {then}, it is at {now}")
                    await asyncio.sleep(POLL)
        return last

    # --- drivers and executors ----------------------------------------------------------------------------------------

    async def _strike_process(self, verb: str, what: str, fault: PlannedFault, chance: random.Random) -> str:
        jobs = [(job.place.name, job.job_id) for job in self._streams if not job.moving]
        jobs += [(job.place.name, job.job_id) for job in self.batch_jobs if not await job.has_finished()]
        if not jobs:
            return ""
        name, job_id = chance.choice(jobs)
        pid = await self._executor(job_id, chance) if what == "executor" else await self._driver(job_id)
        if not pid:
            return ""
        if what == "driver's JVM":
            pid = next(iter(await asyncio.to_thread(_session, self._cluster, pid, "java")), 0)
        if not pid:
            return ""
        if verb == "kill":
            was_there = send(pid, signal.SIGKILL)
        else:
            was_there = await _stop(await asyncio.to_thread(_session, self._cluster, pid, ""), fault.seconds)
        return f"{name}, {pid}" if was_there else ""

    async def _driver(self, job_id: JobId) -> int:
        driver = (await self._control.job(job_id)).emberkeep.driver
        return 0 if driver is None else driver.pid

    async def _executor(self, job_id: JobId, chance: random.Random) -> int:
        pids = [each.pid for each in (await self._control.job(job_id)).emberkeep.executors if each.pid]
        return chance.choice(pids) if pids else 0

    # --- members ------------------------------------------------------------------------------------------------------

    async def _strike_member(self, verb: str, what: str, fault: PlannedFault, chance: random.Random) -> str:
        member = await self._choose(what, chance)
        if member is None:
            return ""
        member.busy = True
        try:
            if verb == "evacuate":
                await self._evacuate(member, fault)
            elif verb == "freeze":
                pids = await asyncio.to_thread(self._cluster.drivers, member) if what == "node" else []
                await _stop([member.pid, *pids], fault.seconds)
            else:
                self._cluster.kill(member)
                if verb == "lose":
                    for pid in await asyncio.to_thread(self._cluster.drivers, member):
                        send(pid, signal.SIGKILL)
                await asyncio.sleep(fault.seconds)
                await self._start(member)
        finally:
            member.busy = False
        return member.name

    async def _choose(self, what: str, chance: random.Random) -> Member | None:
        cluster = self._cluster
        if what == "zookeeper":
            members = cluster.zookeepers
        elif what in ("leader", "standby"):
            leader = await self._control.leader()
            members = [each for each in cluster.job_managers if (each is leader) == (what == "leader")]
        else:
            members = cluster.task_managers
        free = [each for each in members if not each.busy and cluster.is_running(each)]
        return chance.choice(free) if free else None

    async def _start(self, member: Member) -> None:
        for tries in range(_AGAIN):
            try:
                await self._cluster.start(member)
            except EmberkeepError as error:
                if tries == _AGAIN - 1:
                    raise NotRecovered(f"{member.name} does not start: {error}") from error
            else:
                return

    async def _evacuate(self, member: Member, fault: PlannedFault) -> None:
        node = member.name.replace("tm", "node")
        await self._control.evacuate(node)
        try:
            deadline = time.monotonic() + ANSWER_SECONDS
            while held := await self._jobs_on(member):
                if time.monotonic() > deadline:
                    raise NotRecovered(f"{member.name} is not empty: {held}")
                await asyncio.sleep(POLL)
            await asyncio.sleep(fault.seconds)
        finally:
            await self._control.unblock(node)

    async def _jobs_on(self, member: Member) -> list[str]:
        found = []
        jobs: list[StreamJob | BatchJob] = [*self._streams, *self.batch_jobs]
        for job in jobs:
            details = await self._control.job(job.job_id)
            own, driver = details.emberkeep, details.emberkeep.driver
            ids = [each.taskmanager_id for each in own.executors] + ([] if driver is None else [driver.taskmanager_id])
            if not details.state.is_globally_terminal and member.name in ids:
                found.append(job.place.name)
        return found

    def _stream(self, chance: random.Random) -> StreamJob | None:
        free = [job for job in self._streams if not job.moving]
        return chance.choice(free) if free else None


def _session(cluster: RealCluster, leader: int, command: str) -> list[int]:
    """Return the pids of the session of a process; of the programs of this name only, if ``command`` is given."""
    stat = read_stat(leader)
    if stat is None:
        return []
    found = []
    for pid in cluster.processes():
        other = read_stat(pid)
        if other is not None and other.session == stat.session and command in ("", _command(pid)):
            found.append(pid)
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


async def _stop(pids: list[int], seconds: float) -> bool:
    """Stop processes for so long. Return False if there was none."""
    were_there = False
    for pid in pids:
        were_there |= send(pid, signal.SIGSTOP)
    if not were_there:
        return False
    try:
        await asyncio.sleep(seconds)
    finally:
        for pid in pids:
            send(pid, signal.SIGCONT)
    return True
