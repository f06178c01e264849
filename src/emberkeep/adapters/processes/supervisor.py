"""Start processes, and stop them together with everything that they started.

Each process leads a session of its own and outlives the supervisor. A record on disk lets the next supervisor find it.
A leader that has ended stays a zombie until no process of its session is left, so that its pid, and hence the id of
its session, cannot be reused. Then the supervisor reaps it and reports its exit, once.

The process that runs a supervisor becomes the parent of all orphans below it, and reaps them. Other code in that
process must start session leaders within ``waited_for``. Children in the process's own session are left as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import structlog

from emberkeep.adapters.cgroups.port import Share
from emberkeep.adapters.cgroups.registry import ProcessGroups
from emberkeep.adapters.processes.family import Exit, Family, OnExit, become_subreaper, reap_leader, reap_orphans
from emberkeep.adapters.processes.leftovers import Leftover, find_leftovers
from emberkeep.adapters.processes.memory import memory_mb
from emberkeep.adapters.processes.start import (
    ProcessRecord,
    StartRequest,
    launch,
    new_marker,
    record_path,
    remove_record,
    write_process_record,
)
from emberkeep.adapters.processes.table import take_table
from emberkeep.adapters.processes.watched_thread import WatchedThread
from emberkeep.base.errors import Absent, Conflict, Fatal, RetryLater
from emberkeep.base.files.errors import shortage
from emberkeep.base.files.private import make_private
from emberkeep.base.processes.process_identity import is_alive

LINGER_SECONDS = 5.0
"""Seconds for which a session may outlive its leader, in which a JVM runs its shutdown hooks."""
KILLED_SECONDS = 30.0
"""Seconds for which a start or an end waits for killed processes, usually a moment.

A process that waits for a mount that hangs ends when the mount answers, if ever. It runs no code any longer.
"""
_SWEEP_SECONDS = 2.0  # between two searches for orphans while no process is ending
_RETRY_SECONDS = 0.5  # between two looks, while the process table cannot be read
_FIRST_POLL, _LAST_POLL = 0.02, 0.25  # seconds between two checks of a session that is ending

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
        self._linger = linger
        self.groups = groups or ProcessGroups()
        self._thread = WatchedThread(directory)
        self._processes: dict[str, Family] = {}  # by marker
        self._starting: dict[str, asyncio.Task[Family]] = {}  # by name
        self._new_names: set[str] = set()  # of processes that are being renamed
        self._discarding: set[asyncio.Task[None]] = set()
        self._look_again = asyncio.Event()
        self._next_sweep = 0.0  # loop time
        self._abandoned = False  # run() has ended
        self._blind = False  # the last look at all processes failed

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
        self._watch(process)
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
            await self._end(process, 0.0)

    def _watch(self, process: Family) -> None:
        """Add a process to those that this supervisor watches."""
        self._processes[process.marker] = process
        self._look_again.set()
        if process.leader is not None and not process.is_child:
            self.groups.find(process.marker, process.name, process.leader.pid)
        self._attend(process)

    def _attend(self, process: Family) -> None:
        """Wait for the end of a process's leader. If there is no descriptor for that now, the next look tries again."""
        lives = False
        try:
            if process.leader is not None:
                with contextlib.suppress(ProcessLookupError):
                    process.pidfd = os.pidfd_open(process.leader.pid)
                    lives = process.is_child or is_alive(process.leader)
        except OSError as error:
            if not shortage(error):
                raise
            if process.pidfd is not None:
                os.close(process.pidfd)
                process.pidfd = None
            return
        if process.pidfd is not None and lives:
            asyncio.get_running_loop().add_reader(process.pidfd, self._leader_ended, process)
        else:
            self._leader_ended(process)

    def _leader_ended(self, process: Family) -> None:
        loop = asyncio.get_running_loop()
        if process.pidfd is not None:
            loop.remove_reader(process.pidfd)
            os.close(process.pidfd)
            process.pidfd = None
        process.leader_ended = True
        self._kill_from(process, loop.time() + self._linger)

    def _kill_from(self, process: Family, when: float) -> None:
        process.kill_at = when if process.kill_at is None else min(process.kill_at, when)
        self._look_again.set()

    def running(self) -> set[str]:
        """Return the names of processes that were started or adopted and whose exit has not been reported."""
        return {process.name for process in self._processes.values() if process.is_ours}

    async def stop(self, name: str, grace: float) -> None:
        """Send SIGTERM to the process, and after ``grace`` seconds (0: at once) SIGKILL to all that belongs to it.

        Returns when no process is left and the exit has been reported; at once for unknown names. A second call with an
        earlier deadline shortens the first. Raises RetryLater if ``run`` ends before that.
        """
        starting = self._starting.get(name)
        if starting is not None:
            await asyncio.wait({starting})
        for process in list(self._processes.values()):
            if process.name == name and process.is_ours:
                await self._end(process, grace)

    async def rename(self, name: str, new_name: str, on_exit: OnExit, share: Share | None = None) -> int:
        """Give a process that this supervisor has started another name and another ``on_exit``. Return its pid.

        ``share``: of its control group from now on. The next supervisor finds it by the new name. Raises Fatal (the
        record cannot be written), OSError (its group does not take the share), Absent (no such
        process, or it has ended), Conflict (the new name is in use); the process then keeps its name here, as it does
        if this is cancelled. Its record may have the new name then, so stop the process.
        """
        self._require_free(new_name)
        process = next((p for p in self._processes.values() if p.name == name and not p.leader_ended), None)
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
        for process in [process for process in self._processes.values() if process.name == name]:
            await self._thread.run(process.raise_members)

    async def memory_mb(self) -> dict[str, int]:
        """Return how many MiB each process uses, with all that belongs to it. Without those that the kernel limits.

        Raises RetryLater.
        """
        limited = self.groups.limited()
        known = tuple(each for each in self._processes.values() if each.is_ours and each.name not in limited)
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
        for process in self._processes.values():
            if process.name == name and process.is_ours and process.pidfd is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    signal.pidfd_send_signal(process.pidfd, number)

    async def _end(self, process: Family, grace: float) -> None:
        # Find the members first: after the leader's death its children are ours, and their parent no longer identifies
        # them.
        doomed = {process.marker} if grace <= 0 else set()
        while True:
            try:
                await self._thread.run(self._survey, (process,), [process], doomed)
                break
            except OSError as error:
                self._say(error)
                if self._abandoned:
                    raise RetryLater(f"process {process.name} cannot be stopped: {error}") from error
                await asyncio.sleep(_RETRY_SECONDS)
        if grace > 0 and process.pidfd is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(process.pidfd, signal.SIGTERM)
                signal.pidfd_send_signal(process.pidfd, signal.SIGCONT)  # a stopped process would not handle SIGTERM
        self._kill_from(process, asyncio.get_running_loop().time() + max(grace, 0.0))
        if not self._abandoned:
            await process.ended.wait()
        if process.marker in self._processes:
            raise RetryLater(f"the supervisor stopped before the process {process.name} had ended")

    async def leftovers(self) -> list[Leftover]:
        """Return what an earlier supervisor with this directory left running.

        Removes the records of ended processes.
        """
        return await self._thread.run(find_leftovers, self._directory, frozenset(self._processes))

    def adopt(self, leftover: Leftover, on_exit: OnExit) -> None:
        """Take over one of ``leftovers()``, whose leader must be known and alive.

        The process continues. ``on_exit`` is called as for a process that was started here, except that the exit code
        is unknown. Raises Conflict (the name is in use).
        """
        self._require_free(leftover.name)
        process = Family(leftover.name, leftover.marker, leftover.leader, is_child=False, on_exit=on_exit)
        process.members = dict(leftover.members)
        self._watch(process)

    async def end_leftover(self, leftover: Leftover, grace: float) -> None:
        """Stop one of ``leftovers()`` as ``stop`` does. No exit is reported: the process was not our child."""
        process = self._processes.get(leftover.marker)
        if process is None:
            process = Family(leftover.name, leftover.marker, leftover.leader, is_child=False, on_exit=None)
            process.members = dict(leftover.members)
            self._watch(process)
        await self._end(process, grace)

    async def run(self) -> None:
        """Watch until cancelled. If this raises, the caller ends its own process."""
        try:
            while True:
                self._look_again.clear()
                next_look = await self._look()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(next_look):
                        await self._look_again.wait()
        finally:
            self._abandoned = True
            for process in self._processes.values():
                process.ended.set()

    async def _look(self) -> float | None:
        """Check processes that are ending and act on them.

        Returns the loop time of the next check; None if the next check waits for an event.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        for process in [p for p in self._processes.values() if p.pidfd is None and not p.leader_ended]:
            self._attend(process)
        ending = [p for p in self._processes.values() if p.leader_ended or p.is_due(now)]
        if ending or (self._processes and now >= self._next_sweep):
            doomed = {p.marker for p in ending if p.is_due(now)}
            try:
                alive = await self._thread.run(self._survey, tuple(self._processes.values()), ending, doomed)
            except OSError as error:  # what cannot be read now has not ended
                self._say(error)
                return loop.time() + _RETRY_SECONDS
            self._blind = False
            self._next_sweep = loop.time() + _SWEEP_SECONDS
            for process in ending:
                process.looks += 1
                if process.leader_ended and process.marker not in alive:
                    await self._conclude(process)
        if not self._processes:
            return None
        remaining = [p for p in ending if p.marker in self._processes]
        polls = [loop.time() + min(_FIRST_POLL * 2.0 ** min(p.looks, 10), _LAST_POLL) for p in remaining]
        deadlines = [p.kill_at for p in self._processes.values() if p.kill_at is not None and not p.is_due(now)]
        return min([self._next_sweep, *polls, *deadlines])

    def _say(self, error: OSError) -> None:
        if not self._blind:
            _log.error("cannot look at processes now, trying again", reason=str(error), hint=shortage(error))
        self._blind = True

    def _survey(self, known: tuple[Family, ...], ending: list[Family], doomed: set[str]) -> set[str]:
        """Find all members, kill the doomed ones, reap orphans.

        Returns the markers in ``ending`` that have live members. Raises OSError.
        """
        table = take_table()
        for process in known:
            process.find_members(table, read_environments=process in ending)
        # A family that forks faster than the table is read can look empty: kill its group, then check again.
        empty = [process for process in ending if not process.members]
        if empty:
            for process in empty:
                process.kill_group()
            table = take_table()
            for process in empty:
                process.find_members(table, read_environments=True)
        for process in ending:
            if process.marker in doomed:
                process.kill_members()
        reap_orphans(table)
        return {process.marker for process in ending if process.members}

    async def _conclude(self, process: Family) -> None:
        exit_code = reap_leader(process) if process.is_child else None
        self._processes.pop(process.marker)
        try:
            exceeded_mb = await self._thread.run(self.groups.end, process.marker)
            try:
                await self._thread.run(remove_record, record_path(self._directory, process.marker))
            except OSError as error:
                _log.warning("process_record_stays", process=process.name, reason=error.strerror)
            if process.on_exit is not None:
                process.on_exit(Exit(process.name, exit_code, exceeded_mb))
        finally:  # also if ``run`` is cancelled now: it no longer knows the process, and others wait for its end
            process.ended.set()

    async def close(self) -> None:
        """Stop watching. The processes continue and their records stay. Cancel ``run`` first. Idempotent.

        Starts have KILLED_SECONDS to end, and so has the work on the disk. What hangs then ends with this process.
        """
        unfinished = {*self._starting.values(), *self._discarding}
        if unfinished:
            _, hanging = await asyncio.wait(unfinished, timeout=KILLED_SECONDS)
            if hanging:
                _log.error("starts do not end, ending without them", starts=sorted(each.get_name() for each in hanging))
        for process in self._processes.values():
            if process.pidfd is not None:
                asyncio.get_running_loop().remove_reader(process.pidfd)
                os.close(process.pidfd)
                process.pidfd = None
        self._processes.clear()
        self.groups.close()
        await self._thread.close(KILLED_SECONDS)


def _memory_mb(families: tuple[Family, ...]) -> dict[str, int]:
    table = take_table()
    for family in families:
        family.find_members(table, read_environments=False)
    return {family.name: memory_mb(family.members) for family in families}
