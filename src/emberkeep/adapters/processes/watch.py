"""The watch over started processes: it sees them end, kills what is due, and reports each exit once.

A leader that has ended stays a zombie until no process of its session is left, so that its pid, and hence the id of
its session, cannot be reused. Then the watch reaps it and reports its exit.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import structlog

from emberkeep.adapters.cgroups.registry import ProcessGroups
from emberkeep.adapters.processes.family import Exit, Family, reap_leader, reap_orphans
from emberkeep.adapters.processes.start import record_path, remove_record
from emberkeep.adapters.processes.table import take_table
from emberkeep.adapters.processes.watched_thread import WatchedThread
from emberkeep.base.errors import RetryLater
from emberkeep.base.files.errors import shortage
from emberkeep.base.processes.process_identity import is_alive

_SWEEP_SECONDS = 2.0  # between two searches for orphans while no process is ending
_RETRY_SECONDS = 0.5  # between two looks, while the process table cannot be read
_FIRST_POLL, _LAST_POLL = 0.02, 0.25  # seconds between two checks of a session that is ending

_log = structlog.get_logger(__name__)


class ProcessWatch:
    """The families that are watched, by marker: each from its start or its adoption until its exit is reported.

    Belongs to one event loop. Looks at the process table, and all kills, are in ``thread``.
    """

    def __init__(self, directory: Path, thread: WatchedThread, groups: ProcessGroups, linger: float) -> None:
        """``directory``: of the records. ``linger``: seconds for which a session may outlive its leader."""
        self.families: dict[str, Family] = {}
        self._directory = directory
        self._thread = thread
        self._groups = groups
        self._linger = linger
        self._look_again = asyncio.Event()
        self._next_sweep = 0.0  # loop time
        self._abandoned = False  # run() has ended
        self._blind = False  # the last look at all processes failed

    def add(self, process: Family) -> None:
        """Add a process to those that are watched."""
        self.families[process.marker] = process
        self._look_again.set()
        if process.leader is not None and not process.is_child:
            self._groups.find(process.marker, process.name, process.leader.pid)
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

    async def end(self, process: Family, grace: float) -> None:
        """Send SIGTERM to a process, and after ``grace`` seconds (0: at once) SIGKILL to all that belongs to it.

        Returns when its exit has been reported. Raises RetryLater if ``run`` ends before that.
        """
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
        if process.marker in self.families:
            raise RetryLater(f"the supervisor stopped before the process {process.name} had ended")

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
            for process in self.families.values():
                process.ended.set()

    async def _look(self) -> float | None:
        """Check processes that are ending and act on them.

        Returns the loop time of the next check; None if the next check waits for an event.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        for process in [p for p in self.families.values() if p.pidfd is None and not p.leader_ended]:
            self._attend(process)
        ending = [p for p in self.families.values() if p.leader_ended or p.is_due(now)]
        if ending or (self.families and now >= self._next_sweep):
            doomed = {p.marker for p in ending if p.is_due(now)}
            try:
                alive = await self._thread.run(self._survey, tuple(self.families.values()), ending, doomed)
            except OSError as error:  # what cannot be read now has not ended
                self._say(error)
                return loop.time() + _RETRY_SECONDS
            self._blind = False
            self._next_sweep = loop.time() + _SWEEP_SECONDS
            for process in ending:
                process.looks += 1
                if process.leader_ended and process.marker not in alive:
                    await self._conclude(process)
        if not self.families:
            return None
        remaining = [p for p in ending if p.marker in self.families]
        polls = [loop.time() + min(_FIRST_POLL * 2.0 ** min(p.looks, 10), _LAST_POLL) for p in remaining]
        deadlines = [p.kill_at for p in self.families.values() if p.kill_at is not None and not p.is_due(now)]
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
        self.families.pop(process.marker)
        try:
            exceeded_mb = await self._thread.run(self._groups.end, process.marker)
            try:
                await self._thread.run(remove_record, record_path(self._directory, process.marker))
            except OSError as error:
                _log.warning("process_record_stays", process=process.name, reason=error.strerror)
            if process.on_exit is not None:
                process.on_exit(Exit(process.name, exit_code, exceeded_mb))
        finally:  # also if ``run`` is cancelled now: it no longer knows the process, and others wait for its end
            process.ended.set()

    def leave(self) -> None:
        """Watch no process any longer: all of them continue. Call this when ``run`` has ended. Idempotent."""
        for process in self.families.values():
            if process.pidfd is not None:
                asyncio.get_running_loop().remove_reader(process.pidfd)
                os.close(process.pidfd)
                process.pidfd = None
        self.families.clear()
