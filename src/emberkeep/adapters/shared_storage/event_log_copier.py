"""Copies event logs of ended attempts from a storage that may hang.

A thread that reads a hung storage cannot be ended. So there is at most one such thread, outside the event loop's own
threads, and the process does not wait for it at its exit.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from emberkeep.adapters.shared_storage.event_logs import copy_event_log, log_name
from emberkeep.base.errors import RetryLater, Unavailable
from emberkeep.base.files.private import make_private
from emberkeep.base.ids import JobId
from emberkeep.base.processes.threads import start_thread


@dataclass(frozen=True)
class CopiedLog:
    """The copy of an application's log, in a directory of its own."""

    app_id: str
    place: Path


class _Copying:
    """One copy, which outlives the requests that wait for it."""

    def __init__(self, job_id: JobId, attempt: int) -> None:
        self.job_id = job_id
        self.attempt = attempt
        self.result: asyncio.Future[CopiedLog] = asyncio.get_running_loop().create_future()
        self.users = 0

    @property
    def copied(self) -> CopiedLog | None:
        """The copy; None if there is none yet, or it has failed."""
        return self.result.result() if self.result.done() and self.result.exception() is None else None


class EventLogCopier:
    """Copies one event log at a time. Belongs to one event loop.

    ``checkpoints``: the directory of all jobs' checkpoints. ``staging``: for the copies, this object's alone.
    """

    def __init__(self, checkpoints: Path, staging: Path) -> None:
        self._checkpoints = checkpoints
        self._staging = staging
        self._own = f"{secrets.token_hex(4)}-"
        self._newest: _Copying | None = None
        self._is_closed = False

    @contextlib.asynccontextmanager
    async def copied(self, job_id: JobId, attempt: int) -> AsyncIterator[CopiedLog]:
        """Wait for the copy of the attempt's log, which stays until the block ends, or longer.

        A copy continues if nobody waits any more, and a later call gets it. Raises what ``copy_event_log`` raises,
        RetryLater (a copy of another log has not ended), Unavailable.
        """
        copying = self._join(job_id, attempt)
        copying.users += 1
        try:
            yield await asyncio.shield(copying.result)
        finally:
            copying.users -= 1
            if copying is not self._newest:
                _discard(copying)

    def publish(self, copied: CopiedLog, into: Path) -> None:
        """Move a copy to ``into``, where nobody has it yet. Raises RetryLater."""
        try:
            make_private(into)
            target = into / copied.place.name
            shutil.rmtree(target, ignore_errors=True)
            copied.place.rename(target)
        except FileNotFoundError:
            raise RetryLater("the copy of the event log is no longer there: try again") from None
        except OSError as error:
            raise _cannot_write(into, error) from error
        if self._newest is not None and self._newest.copied is copied:
            self._newest = None

    def clear(self) -> None:
        """Remove what an earlier copier has left. Blocks."""
        for left in self._staging.glob("*"):
            if not left.name.startswith(self._own):
                shutil.rmtree(left, ignore_errors=True)

    def close(self) -> None:
        """Remove all copies. One that has not ended is removed at its end."""
        self._is_closed = True
        if self._newest is None or self._newest.result.done():
            shutil.rmtree(self._staging, ignore_errors=True)

    def _join(self, job_id: JobId, attempt: int) -> _Copying:
        newest = self._newest
        if newest is not None:
            is_same = (newest.job_id, newest.attempt) == (job_id, attempt)
            if is_same and (newest.copied is not None or not newest.result.done()):
                return newest
            if not newest.result.done():
                raise RetryLater("another event log is being copied, or the storage does not answer: try again")
            self._newest = None
            _discard(newest)
        copying = _Copying(job_id, attempt)
        loop = asyncio.get_running_loop()

        def copy() -> None:
            copied, failure = None, None
            try:
                copied = self._copy(job_id, attempt)
            except Exception as error:  # noqa: BLE001 - whoever waits gets it
                failure = error
            if self._is_closed:
                shutil.rmtree(self._staging, ignore_errors=True)
            with contextlib.suppress(RuntimeError):  # the loop is closed, so nothing waits
                loop.call_soon_threadsafe(_complete, copying.result, copied, failure)

        start_thread(copy, "event-log-copy")
        self._newest = copying
        return copying

    def _copy(self, job_id: JobId, attempt: int) -> CopiedLog:
        directory = None
        try:
            make_private(self._staging)
            directory = Path(tempfile.mkdtemp(prefix=self._own, dir=self._staging))
            app_id = copy_event_log(self._checkpoints / job_id, attempt, directory)
            return CopiedLog(app_id, directory / log_name(app_id))
        except BaseException as error:
            if directory is not None:
                shutil.rmtree(directory, ignore_errors=True)
            if isinstance(error, OSError):
                raise _cannot_write(self._staging, error) from error
            raise


def _cannot_write(place: Path, error: OSError) -> Unavailable:
    return Unavailable(
        f"the event log cannot be copied to {place}: {error.strerror or error}",
        hint="check free space and permissions there",
    )


def _discard(copying: _Copying) -> None:
    """Remove a copy that nobody uses."""
    if copying.copied is not None and not copying.users:
        shutil.rmtree(copying.copied.place.parent, ignore_errors=True)


def _complete(result: asyncio.Future[CopiedLog], copied: CopiedLog | None, failure: Exception | None) -> None:
    if failure is not None:
        result.set_exception(failure)
        result.exception()  # seen, also if nobody waits any more
    elif copied is not None:
        result.set_result(copied)
