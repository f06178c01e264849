"""The embedded store's SQLite file: opened by one leader, read by it, and written while its epoch is the newest.

With WAL and synchronous=FULL, an acknowledged change is on disk.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from emberkeep.adapters.job_store.schema import prepare
from emberkeep.base.errors import Conflict, EmberkeepError, Fatal, RetryLater, UnknownOutcome
from emberkeep.base.files.durable import make_directories

_BUSY_SECONDS = 5.0


class FencedFile:
    """The open file. All methods block, and only one thread may call them.

    ``epoch`` is this leader's. ``lineage`` names the store, whichever leader opens it.
    """

    def __init__(self, path: Path, now_ms: int) -> None:
        """Open the file, creating it if it does not exist, and raise the epoch to at least ``now_ms``.

        Raises Fatal, RetryLater, UnknownOutcome.
        """
        self.path = path
        self._connection = _connect(path)
        try:
            self.epoch, self.lineage = self._raise_epoch(now_ms)
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        self._connection.close()

    def where(self, what: str, job_id: str) -> str:
        """Return the name of a record, for errors."""
        return f"{self.path}, {what} of job {job_id}"

    def _raise_epoch(self, now_ms: int) -> tuple[int, str]:
        """Raise the epoch, and return it with the store's lineage. The epoch grows whatever the clock says.

        ``now_ms`` matters in a file that was restored from an older copy: it raises the epoch above those that task
        managers and drivers know from earlier leaders. Otherwise they would refuse this leader.
        """
        with self._transaction():
            self._connection.execute("UPDATE store SET epoch = MAX(epoch + 1, ?)", (now_ms,))
            epoch, graphs = self._connection.execute("SELECT epoch, graphs FROM store").fetchone()
        return int(epoch), str(graphs)

    def confirm(self) -> None:
        """Check that this leader can write.

        Raises Conflict if a newer leader has opened the store, Fatal if the file cannot be written.
        """
        with self.leading() as connection:
            # Two changes that cancel out, because SQLite writes nothing for an update that changes no value.
            connection.execute("UPDATE store SET epoch = epoch + 1")
            connection.execute("UPDATE store SET epoch = epoch - 1")

    def read(self, statement: str, *values: str | int) -> list[tuple[Any, ...]]:
        with _translated(self.path):
            return self._connection.execute(statement, values).fetchall()

    @contextlib.contextmanager
    def leading(self) -> Iterator[sqlite3.Connection]:
        """Run the body in a transaction. Raises Conflict, before the body, if a newer leader has opened the store."""
        with self._transaction():
            (epoch,) = self._connection.execute("SELECT epoch FROM store").fetchone()
            if epoch != self.epoch:
                raise Conflict(f"epoch {self.epoch} is over: a newer JobManager is the leader, with epoch {epoch}")
            yield self._connection

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            with _translated(self.path):
                self._connection.execute("BEGIN IMMEDIATE")
                yield
            with _translated(self.path, committing=True):
                self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):  # the first error matters; closing rolls back as well
                    self._connection.execute("ROLLBACK")


def _connect(path: Path) -> sqlite3.Connection:
    with _translated(path):
        try:
            make_directories(path.parent)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise Fatal(f"cannot open {path}: {error.strerror}", hint="check its permissions and free space") from error
        connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            prepare(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


@contextlib.contextmanager
def _translated(path: Path, *, committing: bool = False) -> Iterator[None]:
    """Raise SQLite's errors as ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translate(error, path, committing) from error


_SYNC_FAILED = (sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC)
_MAIN_CODE = 0xFF


def _translate(error: sqlite3.Error, path: Path, committing: bool) -> EmberkeepError:
    code = getattr(error, "sqlite_errorcode", 0)
    if code & _MAIN_CODE in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return RetryLater(f"{path} is in use by another program", hint="try again in a second")
    if committing and code in _SYNC_FAILED:
        return UnknownOutcome(f"{path}: the change may or may not be on disk: {error}")
    if code & _MAIN_CODE in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Fatal(f"{path}: damaged: {error}", hint="keep the file, and restore a copy in its place")
    return Fatal(f"{path}: {error}", hint="check free space and permissions of that directory")
