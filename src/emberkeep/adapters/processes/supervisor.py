"""Start processes, and stop them together with everything that they started.

Each process leads a session of its own and outlives the supervisor. A record on disk lets the next supervisor find it.
How its end is seen, and reported once, is in ``watch``.

The process that runs a supervisor becomes the parent of all orphans below it, and reaps them. Other code in that
process must start session leaders within ``waited_for``. Children in the process's own session are left as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path

import structlog

from emberkeep.adapters.cgroups.port import Share
from emberkeep.adapters.cgroups.registry import ProcessGroups
from emberkeep.adapters.processes.family import Exit, Family, OnExit, become_subreaper
from emberkeep.adapters.processes.leftovers import Leftover, find_leftovers
from emberkeep.adapters.processes.memory import memory_mb
from emberkeep.adapters.processes.start import (
    ProcessRecord,
    StartRequest,
    launch,
    new_marker,
    record_path,
    write_process_record,
)
from emberkeep.adapters.processes.table import take_table
from emberkeep.adapters.processes.watch import ProcessWatch
from emberkeep.adapters.processes.watched_thread import WatchedThread
from emberkeep.base.errors import Absent, Conflict, Fatal, RetryLater
from emberkeep.base.files.errors import shortage
from emberkeep.base.files.private import make_private

LINGER_SECONDS = 5.0
"""Seconds for which a session may outlive its leader, in which a JVM runs its shutdown hooks."""
KILLED_SECONDS = 30.0
"""Seconds for which a start or an end waits for killed processes, usually a moment.

A process that waits for a mount that hangs ends when the mount answers, if ever. It runs no code any longer.
"""

__all__ = ["Exit", "Leftover", "OnExit", "ProcessSupervisor", "StartRequest"]

_log = structlog.get_logger(__name__)


class ProcessSupervisor:
    """Supervise processes while ``run`` runs: report their exits and carry out stops.

    Belongs to one event loop, in any thread.
    """

    def __init__(self, directory: Path, *, linger: float = LINGER_SECONDS, groups: ProcessGroups | None = None) -> None:
        """``directory`` is for the records of this supervisor alone. ``groups``: None makes none. Raises Fatal."""
        try:
            make_private(directory)
        except OSError as error:
            raise Fatal(f"cannot use {directory}: {error.strerror}", hint="check its permissions") from error
        become_subreaper()
        self._directory = directory
        self.groups = groups or ProcessGroups()
        self._thread = WatchedThread(directory)
        self._watch = ProcessWatch(directory, self._thread, self.groups, linger)
        self._starting: dict[str, asyncio.Task[Family]] = {}  # by name
        self._new_names: set[str] = set()  # of processes that are being renamed
        self._discarding: set[asyncio.Task[None]] = set()

    async def start(self, request: StartRequest, on_exit: OnExit) -> int:
        """Start a process and return its pid. ``on_exit`` is called once, on the loop, when all its members have ended.

        Raises Fatal (it cannot be started or recorded), Conflict (the name is in use), InvalidInput (the name is not
        valid). If this raises or is cancelled, the process is killed and ``on_exit`` is not called. This waits for the
        end of the process, but not longer than KILLED_SECONDS.
        """
        self._require_free(request.name)
        marker = new_marker(request.name)
        task = asyncio.create_task(self._launch(request, marker, on_exit), name=f"start {request.name}")
        self._starting[request.name] = task
        task.add_done_callback(lambda _: self._starting.pop(request.name))
        try:
            process = await asyncio.shield(task)
            assert process.leader is not None  # noqa: S101
            record = ProcessRecord(name=request.name, identity=process.leader)
            await self._thread.run(write_process_record, record_path(self._directory, marker), record)
        except BaseException:
            await self._discard(task)
            raise
        return process.leader.pid

    async def _launch(self, request: StartRequest, marker: str, on_exit: OnExit) -> Family:
        leader = await self._thread.run(launch, request, self._directory, marker, self.groups)
        process = Family(request.name, marker, leader, is_child=True, on_exit=on_exit)
        self._watch.add(process)
        return process

    async def _discard(self, starting: asyncio.Task[Family]) -> None:
        """Stop a process whose caller does not learn of its start, even if the caller is cancelled again."""
        task = asyncio.create_task(self._take_back(starting), name=f"take back: {starting.get_name()}")
        self._discarding.add(task)
        task.add_done_callback(self._discarding.discard)
        done, _ = await asyncio.wait({task}, timeout=KILLED_SECONDS)
        if done:
            task.result()
        else:
            _log.error("a process was killed during its start and does not end", start=starting.get_name())

    async def _take_back(self, starting: asyncio.Task[Family]) -> None:
        await asyncio.wait({starting})
        if starting.exception() is not None:
            return
        process = starting.result()
        process.on_exit = None
        with contextlib.suppress(RetryLater):  # killed, but ``run`` has ended and does not confirm it
            await self._watch.end(process, 0.0)

    def running(self) -> set[str]:
        """Return the names of processes that were started or adopted and whose exit has not been reported."""
        return {process.name for process in self._watch.families.values() if process.is_ours}

    async def stop(self, name: str, grace: float) -> None:
        """Send SIGTERM to the process, and after ``grace`` seconds (0: at once) SIGKILL to all that belongs to it.

        Returns when no process is left and the exit has been reported; at once for unknown names. A second call with an
        earlier deadline shortens the first. Raises RetryLater if ``run`` ends before that.
        """
        starting = self._starting.get(name)
        if starting is not None:
            await asyncio.wait({starting})
        for process in list(self._watch.families.values()):
            if process.name == name and process.is_ours:
                await self._watch.end(process, grace)

    async def rename(self, name: str, new_name: str, on_exit: OnExit, share: Share | None = None) -> int:
        """Give a process that this supervisor has started another name and another ``on_exit``. Return its pid.

        ``share``: of its control group from now on. The next supervisor finds it by the new name. Raises Fatal (the
        record cannot be written), OSError (its group does not take the share), Absent (no such
        process, or it has ended), Conflict (the new name is in use); the process then keeps its name here, as it does
        if this is cancelled. Its record may have the new name then, so stop the process.
        """
        self._require_free(new_name)
        process = next((p for p in self._watch.families.values() if p.name == name and not p.leader_ended), None)
        if process is None or process.leader is None:
            raise Absent(f"the process {name} has ended")
        record = ProcessRecord(name=new_name, identity=process.leader)
        self._new_names.add(new_name)
        try:
            await self._thread.run(self.groups.hand_over, process.marker, new_name, share)
            await self._thread.run(write_process_record, record_path(self._directory, process.marker), record)
        finally:
            self._new_names.remove(new_name)
        if process.leader_ended:
            raise Absent(f"the process {name} has ended")
        process.name, process.on_exit = new_name, on_exit
        return process.leader.pid

    async def raise_priority(self, name: str) -> None:
        """Give a process and what it has started the normal priority, if it runs. Raises OSError (it may run)."""
        for process in [process for process in self._watch.families.values() if process.name == name]:
            await self._thread.run(process.raise_members)

    async def memory_mb(self) -> dict[str, int]:
        """Return how many MiB each process uses, with all that belongs to it. Without those that the kernel limits.

        Raises RetryLater.
        """
        limited = self.groups.limited()
        known = tuple(each for each in self._watch.families.values() if each.is_ours and each.name not in limited)
        try:
            return await self._thread.run(_memory_mb, known)
        except OSError as error:
            raise RetryLater(f"cannot look at processes now: {error}", hint=shortage(error)) from error

    def _require_free(self, name: str) -> None:
        if name in self.running() or name in self._starting or name in self._new_names:
            raise Conflict(f"a process {name} runs already")

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to the process that was started as ``name``, not to its children.

        Does nothing if it has ended.
        """
        for process in self._watch.families.values():
            if process.name == name and process.is_ours and process.pidfd is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    signal.pidfd_send_signal(process.pidfd, number)

    async def leftovers(self) -> list[Leftover]:
        """Return what an earlier supervisor with this directory left running.

        Removes the records of ended processes.
        """
        return await self._thread.run(find_leftovers, self._directory, frozenset(self._watch.families))

    def adopt(self, leftover: Leftover, on_exit: OnExit) -> None:
        """Take over one of ``leftovers()``, whose leader must be known and alive.

        The process continues. ``on_exit`` is called as for a process that was started here, except that the exit code
        is unknown. Raises Conflict (the name is in use).
        """
        self._require_free(leftover.name)
        process = Family(leftover.name, leftover.marker, leftover.leader, is_child=False, on_exit=on_exit)
        process.members = dict(leftover.members)
        self._watch.add(process)

    async def end_leftover(self, leftover: Leftover, grace: float) -> None:
        """Stop one of ``leftovers()`` as ``stop`` does. No exit is reported: the process was not our child."""
        process = self._watch.families.get(leftover.marker)
        if process is None:
            process = Family(leftover.name, leftover.marker, leftover.leader, is_child=False, on_exit=None)
            process.members = dict(leftover.members)
            self._watch.add(process)
        await self._watch.end(process, grace)

    async def run(self) -> None:
        """Watch until cancelled. If this raises, the caller ends its own process."""
        await self._watch.run()

    async def close(self) -> None:
        """Stop watching. The processes continue and their records stay. Cancel ``run`` first. Idempotent.

        Starts have KILLED_SECONDS to end, and so has the work on the disk. What hangs then ends with this process.
        """
        unfinished = {*self._starting.values(), *self._discarding}
        if unfinished:
            _, hanging = await asyncio.wait(unfinished, timeout=KILLED_SECONDS)
            if hanging:
                _log.error("starts do not end, ending without them", starts=sorted(each.get_name() for each in hanging))
        self._watch.leave()
        self.groups.close()
        await self._thread.close(KILLED_SECONDS)


def _memory_mb(families: tuple[Family, ...]) -> dict[str, int]:
    table = take_table()
    for family in families:
        family.find_members(table, read_environments=False)
    return {family.name: memory_mb(family.members) for family in families}
