"""A job's state files as its processes on this node see them: the durable store, with copies on this node's disk.

Directories and listings come from the durable store, and so does the status of a file, unless the file has a unique
name and a local copy. A write is staged here, made durable, then kept as the local copy. A read uses the local copy
while the copy is current and its blocks verify. See ``fences`` for how old attempts are kept out, and ``upkeep`` for
how long copies live.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from emberkeep.base.clock import Clock
from emberkeep.base.errors import Absent, EmberkeepError, InvalidInput, RetryLater, Unavailable, UnknownOutcome
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.local_state.attempt_marks import MARKS_DIRECTORY
from emberkeep.local_state.errors import Exists, Fenced
from emberkeep.local_state.gateway_paths import durable_location, resolve
from emberkeep.local_state.gateway_ports import ContentSummary, IncomingFile, OpenedFile, Rename, RenameJournal, Spool
from emberkeep.local_state.model import Caller, FileKind, FileStatus, StatePath
from emberkeep.local_state.ports import DurableState, LocalCopies
from emberkeep.taskmanager.state_gateway.counters import StateCounters
from emberkeep.taskmanager.state_gateway.disk import LocalDisk
from emberkeep.taskmanager.state_gateway.early_answers import EarlyAnswers
from emberkeep.taskmanager.state_gateway.fences import GatewayFences
from emberkeep.taskmanager.state_gateway.named_roots import NamedRoots
from emberkeep.taskmanager.state_gateway.reads import GatewayReads
from emberkeep.taskmanager.state_gateway.roots import OpenState, StateRoots
from emberkeep.taskmanager.state_gateway.side_calls import SideCalls
from emberkeep.taskmanager.state_gateway.writes import GatewayWrite

_MOST_FILES_SUMMED = 100_000


@dataclass(frozen=True)
class _EarlierRename:
    """What the journal has about an earlier request for the same rename. ``unreadable``: why it cannot be read now."""

    begun: bool
    unreadable: Unavailable | None = None

    @property
    def may_be_begun(self) -> bool:
        return self.begun or self.unreadable is not None


class StateGateway:
    """Implements ``local_state.gateway_ports.StateFiles``. Any thread may call it."""

    def __init__(
        self,
        copies: LocalCopies,
        open_state: OpenState,
        own_root: Callable[[JobId], str],
        journal: RenameJournal,
        spool: Callable[[], Spool],
        clock: Clock,
        *,
        quota: int,
    ) -> None:
        """``own_root`` returns the location of a job's own root. ``quota``: bytes for local copies."""
        self.counters = StateCounters()
        self.disk = LocalDisk(copies, quota, self.counters, clock)
        self.roots = StateRoots(open_state)
        self.own_root = own_root
        self.fences = GatewayFences(self._own_state, spool)
        self._named = NamedRoots(self._own_state, self.fences)
        self._journal = journal
        self._spool = spool
        self._side_calls = SideCalls()
        self._early = EarlyAnswers(clock)
        self._reads = GatewayReads(self.disk, self.counters, self._is_kept, self._early, self._side_calls)
        # Allocations for which copies are kept. The upkeep decides this and replaces the whole set.
        self.held: frozenset[tuple[JobId, AllocationId]] = frozenset()

    # --- reading ------------------------------------------------------------------------------------------------------

    def resolve(self, caller: Caller, path: str) -> StatePath:
        own_root = durable_location(self.own_root(caller.job_id))
        found = resolve(caller.job_id, path, own_root)
        if found.root == own_root and found.name.partition("/")[0] == MARKS_DIRECTORY:
            raise InvalidInput(f"{MARKS_DIRECTORY} is reserved for the state gateways", field="path")
        return found

    def admit(self, caller: Caller) -> None:
        with self._fencing():
            self.fences.admit(caller)

    def is_admitted(self, caller: Caller) -> bool:
        return self.fences.is_admitted(caller)

    def status(self, caller: Caller, path: StatePath) -> FileStatus:
        return self._reads.status(caller, path, self._admitted(caller, path))

    def status_before_rename(self, caller: Caller, path: StatePath) -> FileStatus:
        durable = self._admitted(caller, path)
        early = self._early.before_rename(caller, path)
        return early if early is not None else self._reads.status(caller, path, durable)

    def listing(self, caller: Caller, path: StatePath) -> tuple[FileStatus, ...]:
        entries = self._reads.listing(caller, path, self._admitted(caller, path))
        return tuple(entry for entry in entries if entry.name != MARKS_DIRECTORY)

    def summary(self, caller: Caller, path: StatePath) -> ContentSummary:
        durable = self._admitted(caller, path)
        status = durable.status(path.name)
        if status.kind is FileKind.FILE:
            return ContentSummary(length=status.length, files=1, directories=0)
        length = files = directories = 0
        waiting = [path.name]
        while waiting:
            directories += 1
            for entry in durable.listing(waiting.pop()):
                if entry.kind is FileKind.DIRECTORY:
                    waiting.append(entry.name)
                else:
                    length, files = length + entry.length, files + 1
            if files + len(waiting) > _MOST_FILES_SUMMED:
                raise InvalidInput(
                    f"{path.name or path.root} has more than {_MOST_FILES_SUMMED} files, too many for a content summary"
                )
        return ContentSummary(length=length, files=files, directories=directories)

    def look_for(self, caller: Caller, path: StatePath) -> str:
        durable = self._admitted(caller, path)
        return self._reads.look_for(caller, path, durable)

    def open_file(
        self, caller: Caller, path: StatePath, offset: int, length: int | None, *, seen: str = ""
    ) -> OpenedFile:
        durable = self._admitted(caller, path)
        return self._reads.open_file(caller, path, durable, offset, length, seen=seen)

    # --- changes ------------------------------------------------------------------------------------------------------

    def make_directory(self, caller: Caller, path: StatePath) -> None:
        durable = self._admitted(caller, path)
        self._check(caller)
        durable.make_directory(path.name)
        self._check(caller)

    def receive(self, caller: Caller, path: StatePath, *, overwrite: bool) -> IncomingFile:
        durable = self._admitted(caller, path)
        return GatewayWrite(
            caller,
            path,
            durable,
            self.disk,
            self._spool,
            self._check,
            self.counters,
            self._early,
            self._side_calls,
            overwrite=overwrite,
            keep=self._is_kept(caller),
        )

    def rename(self, caller: Caller, source: StatePath, target: StatePath, *, overwrite: bool) -> None:
        if source.root != target.root:
            raise InvalidInput(f"{source.name} cannot be moved to another root: write it there", field="destination")
        durable = self._admitted(caller, source)
        self._check(caller)
        rename = Rename(caller=caller, root=source.root, source=source.name, target=target.name)
        before = self._begun_before(rename)
        self._count(self._journal.begin(rename))
        try:
            status = durable.rename(source.name, target.name, overwrite=overwrite)
        except (Absent, Exists):
            status_before = self._renamed_before(durable, rename) if before.may_be_begun else None
            if status_before is None or before.unreadable:
                self._count(self._journal.void(rename))
                if status_before is not None and before.unreadable:
                    raise before.unreadable from None  # the rename may have been done before; a later retry will tell
                raise
            status = status_before
        except UnknownOutcome as error:
            raise RetryLater(error.message, hint=error.hint) from error  # the retry will tell
        except EmberkeepError:
            if not before.begun:
                self._count(self._journal.void(rename))
            raise
        self._early.changed_below(source)
        self._early.changed(target)
        self._check(caller)
        if status.kind is FileKind.FILE:
            self.disk.move(source, target, status)
        else:
            self.disk.drop_below(source)
            self.disk.drop_below(target)

    def delete(self, caller: Caller, path: StatePath, *, recursive: bool) -> bool:
        durable = self._admitted(caller, path)
        if not path.name and path.root == durable_location(self.own_root(caller.job_id)):
            raise InvalidInput("a job's own root cannot be deleted while the job runs", field="path")
        self._check(caller)
        deleted = durable.delete(path.name, recursive=recursive)
        self._early.changed_below(path)
        self._check(caller)
        self.disk.drop_below(path)
        return deleted

    def close(self) -> None:
        """Close the durable stores. Idempotent."""
        self._side_calls.close()
        self.roots.close()

    # --- for the upkeep -----------------------------------------------------------------------------------------------

    def forget(self, job_id: JobId) -> None:
        """Forget the attempts of a job that has nothing here now, and close the stores that only this job used."""
        self.fences.forget(job_id)
        self.roots.forget(job_id)

    # --- steps --------------------------------------------------------------------------------------------------------

    def _admitted(self, caller: Caller, path: StatePath) -> DurableState:
        """Return the durable store of a root that the job uses, for an attempt that is not known here to be over."""
        self.admit(caller)
        if path.root != durable_location(self.own_root(caller.job_id)):
            with self._fencing():
                self._named.admit(caller, path.root)
        return self.roots.state(caller, path.root)

    def _own_state(self, caller: Caller) -> DurableState:
        return self.roots.state(caller, self.own_root(caller.job_id))

    def _check(self, caller: Caller) -> None:
        with self._fencing():
            self.fences.check(caller)

    @contextlib.contextmanager
    def _fencing(self) -> Iterator[None]:
        try:
            yield
        except Fenced:
            self.counters.add("fenced")
            raise

    def _count(self, noted: bool) -> None:
        if not noted:
            self.counters.add("disk_failures")

    def _is_kept(self, caller: Caller) -> bool:
        return (caller.job_id, caller.allocation_id) in self.held

    def _begun_before(self, rename: Rename) -> _EarlierRename:
        try:
            return _EarlierRename(begun=self._journal.knows(rename))
        except Unavailable as error:
            return _EarlierRename(begun=False, unreadable=error)

    def _renamed_before(self, durable: DurableState, rename: Rename) -> FileStatus | None:
        """Return the target's status if an earlier request has done this rename, else None.

        It has done so if the source is gone and the target exists. In that case its reply was lost.
        """
        try:
            durable.status(rename.source)
        except Absent:
            try:
                return durable.status(rename.target)
            except Absent:
                return None
        return None
