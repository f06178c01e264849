"""Faults that are savepoints: made, or started from, also while the job's driver is killed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from campaign.processes.cluster import send
from campaign.spark.checkpoints import Reached
from campaign.spark.control import Control
from campaign.spark.jobs import StreamJob
from campaign.spark.plan import PlannedFault
from emberkeep.base.errors import Conflict, Fatal
from emberkeep.base.ids import JobId

WITHOUT_KILL = {"kill driver in savepoint": "savepoint", "kill driver in suspend": "suspend and restore"}
"""The faults that kill a driver, and what each is if no driver was killed."""


class Done(NamedTuple):
    """What was done: the ``kind`` of fault, to which ``target``, "" for none, and the ``outcome`` if it has failed."""

    kind: str
    target: str = ""
    outcome: str = ""


class SavepointStrikes:
    """``driver``: returns the pid of a job's driver, 0 if it has none now."""

    def __init__(self, control: Control, driver: Callable[[JobId], Awaitable[int]]) -> None:
        self._control = control
        self._driver = driver

    async def strike(self, job: StreamJob, fault: PlannedFault) -> Done:
        """Apply a fault of one of these kinds."""
        if WITHOUT_KILL.get(fault.kind, fault.kind) == "savepoint":
            return (await self._asked(job, fault, self._control.savepoint(job.job_id, job.place / "savepoints")))[0]
        return await self._suspend(job, fault)

    async def _suspend(self, job: StreamJob, fault: PlannedFault) -> Done:
        """Suspend a job and start it again from its savepoint."""
        before = job.reached()
        job.moving = True
        try:
            stop = self._control.stop(job.job_id, job.place / "savepoints", drain=False)
            done, savepoint = await self._asked(job, fault, stop)
            if done.outcome:
                return done
            await job.until(job.has_finished, "the suspended job is FINISHED")
            await job.begin(savepoint)
            await job.until(lambda: _is_past(job, before), "the restored job commits")
        finally:
            job.moving = False
        return done

    async def _asked(self, job: StreamJob, fault: PlannedFault, asked: Awaitable[str]) -> tuple[Done, str]:
        """Wait for a savepoint, in which the job's driver may be killed. Return what was done, and the location.

        A savepoint that is complete before the driver is killed leaves it alive: then the fault is the one without.
        """
        kills = fault.kind in WITHOUT_KILL
        killing = asyncio.create_task(self._kill_later(job, fault.seconds)) if kills else None
        location = outcome = ""
        try:
            location = await asked
        except (ValueError, Conflict, Fatal) as error:
            outcome = str(error)
        finally:
            was_killed = killing is not None and await _is_done(killing)
        kind = fault.kind if was_killed or not kills else WITHOUT_KILL[fault.kind]
        return Done(kind, job.place.name, outcome), location

    async def _kill_later(self, job: StreamJob, seconds: float) -> bool:
        """Kill the job's driver after a while. Return False if it had none."""
        pid = await self._driver(job.job_id)
        await asyncio.sleep(seconds)
        return bool(pid) and send(pid, signal.SIGKILL)


async def _is_done(killing: asyncio.Task[bool]) -> bool:
    """Return what a task has returned, and False if it has not: then it is cancelled. Raises its error."""
    killing.cancel()
    try:
        return await killing
    except asyncio.CancelledError:
        return False


async def _is_past(job: StreamJob, before: dict[str, Reached]) -> bool:
    await job.details()
    now = job.reached()
    return all(name in now and now[name].committed > then.planned for name, then in before.items())
