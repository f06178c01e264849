"""Writes a state file: staged on this node's disk, then durable, then kept as the local copy."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import structlog

from emberkeep.base.errors import EmberkeepError, Fatal, RetryLater, UnknownOutcome
from emberkeep.local_state.errors import Exists, Fenced
from emberkeep.local_state.file_names import is_temporary, is_unique, renamed_to
from emberkeep.local_state.gateway_ports import Spool
from emberkeep.local_state.model import DRIVER, Caller, FileKind, FileStatus, StatePath
from emberkeep.local_state.ports import DurableState, StagedCopy
from emberkeep.taskmanager.state_gateway.counters import StateCounters
from emberkeep.taskmanager.state_gateway.disk import LocalDisk
from emberkeep.taskmanager.state_gateway.early_answers import EarlyAnswers
from emberkeep.taskmanager.state_gateway.side_calls import SideCalls

log = structlog.get_logger(__name__)

# bytes kept in memory, so that a disk failure during a small write needs no retry by the client
_REMEMBERED = 1024 * 1024
_PATIENCE = 20.0  # seconds to wait for a durable store that does not reply: Hadoop's client does not repeat an upload
_PAUSE = 0.25  # seconds between two tries


class GatewayWrite:
    """Implements ``local_state.gateway_ports.IncomingFile``."""

    def __init__(
        self,
        caller: Caller,
        path: StatePath,
        durable: DurableState,
        disk: LocalDisk,
        spool: Callable[[], Spool],
        check: Callable[[Caller], None],
        counters: StateCounters,
        early: EarlyAnswers,
        side_calls: SideCalls,
        *,
        overwrite: bool,
        keep: bool,
    ) -> None:
        """``check`` raises Fenced. ``keep``: True if the caller's allocation keeps local copies."""
        self._caller = caller
        self._path = path
        self._durable = durable
        self._disk = disk
        self._new_spool = spool
        self._check = check
        self._counters = counters
        self._early = early
        self._side_calls = side_calls
        self._overwrite = overwrite
        self._begin: list[bytes] | None = []  # all received data; None: more than _REMEMBERED bytes
        self._received = 0
        self._staged: StagedCopy | None = disk.stage() if keep else None
        self._spool: Spool | None = None if self._staged is not None else spool()

    def write(self, data: bytes) -> None:
        self._received += len(data)
        if self._begin is not None:
            self._begin.append(data)
            if self._received > _REMEMBERED:
                self._begin = None
        if self._spool is not None:
            self._spool.write(data)
        elif self._staged is not None:
            try:
                self._staged.write(data)
            except EmberkeepError as error:
                self._stage_elsewhere(error)

    def commit(self) -> FileStatus:
        if self._staged is not None:
            try:
                self._staged.finish()
            except EmberkeepError as error:
                self._stage_elsewhere(error)
        if self._spool is not None:
            self._spool.finish()
        status = self._checked()
        self._check_length(status)
        self._early.changed(self._path)
        if is_temporary(self._path.name):
            self._early.note_temporary(self._caller, self._path, status)
        self._counters.add("written_bytes", status.length)
        self._keep(status)
        return status

    def _checked(self) -> FileStatus:
        """Store the file for an attempt that is not over, and return its status."""
        if not is_unique(self._path.name) or self._caller.allocation_id == DRIVER:
            self._check(self._caller)
            status = self._stored()
            if not is_temporary(self._path.name):  # a temporary file is acknowledged by its rename, which checks again
                self._check(self._caller)
            return status
        # Nothing refers to a file with a unique name before a rename, which checks again before and after it.
        checked = self._side_calls.begin(partial(self._check, self._caller))
        status = self._stored()
        try:
            checked.result()
        except Fenced:
            self._delete_stored()
            raise
        return status

    def _delete_stored(self) -> None:
        """Delete the file that was stored for an attempt that is over. Ignore errors: nothing refers to the file."""
        try:
            self._durable.delete(self._path.name, recursive=False)
        except EmberkeepError as error:
            log.debug("cannot delete a file of an attempt that is over", file=self._path.name, reason=str(error))

    def _look_ahead(self) -> None:
        """Begin to request the status of the name that this temporary file will get: the client requests it next."""
        name = renamed_to(self._path.name)
        if name is not None:
            target = StatePath(root=self._path.root, name=name)
            self._early.expect_rename(self._caller, target, self._side_calls.begin(partial(self._durable.status, name)))

    def abandon(self) -> None:
        if self._staged is not None:
            self._staged.discard()
        if self._spool is not None:
            self._spool.discard()

    def _stage_elsewhere(self, error: EmberkeepError) -> None:
        """Continue in a spool after this node's disk failed. Raises RetryLater if the data so far is not in memory."""
        assert self._staged is not None, "only a staged copy can fail"  # noqa: S101
        self._disk.failed("write", error)
        self._staged.discard()
        self._staged, self._spool = None, self._new_spool()
        if self._begin is None:
            raise RetryLater(
                f"the node's disk failed while {self._path.name} was received", hint="write the file again"
            ) from error
        for data in self._begin:
            self._spool.write(data)

    def _stored(self) -> FileStatus:
        """Store the file durably and return its status; retry for ``_PATIENCE`` seconds while the store is away.

        Raises what ``DurableState.create`` raises.
        """
        source = self._staged or self._spool
        assert source is not None, "a file is staged somewhere"  # noqa: S101
        unknown = False
        deadline = time.monotonic() + _PATIENCE
        self._look_ahead()
        while True:
            try:
                return self._durable.create(self._path.name, source.path, overwrite=self._overwrite)
            except Exists:
                if unknown and is_unique(self._path.name):
                    return self._stored_before()
                raise
            except UnknownOutcome:
                # If other writers may use this name, only they and the caller can tell whose file exists.
                if time.monotonic() > deadline or not (self._overwrite or is_unique(self._path.name)):
                    raise
                unknown = True
            except RetryLater:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE)

    def _check_length(self, status: FileStatus) -> None:
        """Raise Fatal if the stored file's length differs from what was received: such a file is never acknowledged."""
        if status.length != self._received:
            raise Fatal(
                f"{self._path.name} has {status.length} bytes in {self._durable.location}, but {self._received} "
                "were received",
                hint="check that nothing else writes there, and check the node's disk and temporary directory",
            )

    def _stored_before(self) -> FileStatus:
        """Return the status of the file that an earlier try stored. No other writer uses this name.

        The reply to that try was lost. Raises Exists if the stored file differs.
        """
        status = self._durable.status(self._path.name)
        if status.kind is not FileKind.FILE or status.length != self._received:
            raise Exists(f"{self._path.name} exists")
        return status

    def _keep(self, status: FileStatus) -> None:
        staged, self._staged = self._staged, None
        if staged is not None:
            kept = self._disk.keep(staged, self._path, self._caller, status)
            staged.discard()
            if kept:
                self._counters.add("kept_bytes", status.length)
                return
        self._disk.drop(self._path)
        self.abandon()
