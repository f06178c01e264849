"""Hold back the commits of a streaming query while its driver does not know whether its attempt was superseded.

Spark writes its logs (planned batches, committed batches, the file sink's log) through the interface
CheckpointFileManager. This module replaces the implementation with one in Python that first calls ``may_commit`` and
then the original. It calls ``may_commit`` when Spark begins a file and, if Spark writes temporary files and renames
them, just before the rename. Spark's own "create only if absent" still decides whether a file is created. A query's
very first entry may be written before its logs are guarded; that is safe, because the start of the query also calls
``may_commit``.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from emberkeep.spark.errors import SparkInternalsMissing

Planning = Callable[[str, int], AbstractContextManager[None]]  # takes a query's id and a batch
Committed = Callable[[str, int], None]  # takes a query's id and a batch


_FIELD = "fileManager"
_LOG_CLASS = "org.apache.spark.sql.execution.streaming.checkpointing.HDFSMetadataLog"
_INTERFACE = "org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager"
_RENAMING = f"{_INTERFACE}$RenameHelperMethods"
_RENAMED_STREAM = "CheckpointFileManager$RenameBasedFSDataOutputStream"
# Spark's error class and message. If the error has passed through Python, the exception of the file system remains;
# Hadoop's check of a job's output directory has one of the same name.
_OVERTAKEN = ("CONCURRENT_STREAM_LOG_UPDATE", "Multiple streaming queries are concurrently using")
_EXISTS = re.compile(r"(?<!\bmapred\.)FileAlreadyExistsException\b")
_OF_QUERY = ("StreamingQueryException", "STREAM_FAILED")
_FILE_SINK = "org.apache.spark.sql.execution.streaming.sinks.FileStreamSink"


def _freely(path: Any) -> AbstractContextManager[None]:
    del path
    return nullcontext()


def _nothing(path: Any) -> None:
    del path


@dataclass(frozen=True)
class _Hooks:
    """What happens around the writes to one log.

    ``around`` takes the path of an entry and returns the context in which it is written. ``written`` takes the path of
    an entry that was renamed to its name.
    """

    around: Callable[[Any], AbstractContextManager[None]] = _freely
    written: Callable[[Any], None] = _nothing


def guard_checkpoints(may_commit: Callable[[], None], planning: Planning, committed: Committed) -> None:
    """Make every streaming query that this process starts from now on call ``may_commit`` before it commits.

    ``may_commit``: returns once this process may commit. ``planning``: context in which a query plans a batch.
    ``committed``: called on a query's own thread when a batch is committed, if Spark renames the entry of its log. Call
    this after the other hooks are in place.
    """
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    kind: Any = DataStreamWriter
    own = os.getpid()

    def around(original: Any) -> Any:
        @functools.wraps(original)
        def start(writer: Any, *positional: Any, **named: Any) -> Any:
            if os.getpid() != own:
                return original(writer, *positional, **named)
            may_commit()
            query = original(writer, *positional, **named)
            _guard(query, may_commit, planning, committed)
            return query

        return start

    kind.start = around(kind.start)
    kind.toTable = around(kind.toTable)


def _guard(query: Any, may_commit: Callable[[], None], planning: Planning, committed: Committed) -> None:
    """Replace the file managers of the query's logs. Raises SparkInternalsMissing."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext, java_gateway

    start_callbacks: Any = java_gateway.ensure_callback_server_started
    try:
        start_callbacks(SparkContext._gateway)
        execution = query._jsq.streamingQuery()
        query_id = str(query.id)
        logs: list[tuple[Any, _Hooks]] = [
            (execution.offsetLog(), _Hooks(around=lambda path: planning(query_id, _batch_of(path)))),
            (execution.commitLog(), _Hooks(written=lambda path: committed(query_id, _batch_of(path)))),
        ]
        sink = execution.sink()
        if sink.getClass().getName() == _FILE_SINK:
            logs.append((_field(sink.getClass(), "fileLog").get(sink), _Hooks()))
        for log, hooks in logs:
            field = _field(_class_named(log.getClass(), _LOG_CLASS), _FIELD)
            field.set(log, _asking(SparkContext._gateway, field.get(log), may_commit, hooks))
    except (Py4JError, TypeError, AttributeError) as error:
        raise SparkInternalsMissing(
            f"cannot guard this Spark's checkpoint logs: {error}", hint="Emberkeep works with PySpark 4.3"
        ) from error


def was_overtaken(text: str) -> bool:
    """True if a script's error says that another writer has written to the checkpoint of its query."""
    if any(sign in text for sign in _OVERTAKEN):
        return True
    return any(sign in text for sign in _OF_QUERY) and _EXISTS.search(text) is not None


def _asking(gateway: Any, files: Any, may_commit: Callable[[], None], hooks: _Hooks) -> _AskingFiles:
    from py4j.java_gateway import is_instance_of

    if is_instance_of(gateway, files, _RENAMING):
        return _AskingRenamingFiles(files, may_commit, hooks)
    return _AskingFiles(files, may_commit, hooks)


class _AskingFiles:
    """CheckpointFileManager for the JVM that calls ``may_commit`` before it creates or deletes a file."""

    def __init__(self, files: Any, may_commit: Callable[[], None], hooks: _Hooks) -> None:
        self._files = files
        self._may_commit = may_commit
        self._hooks = hooks

    def createAtomic(self, path: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        with self._hooks.around(path):
            self._may_commit()
            return self._files.createAtomic(path, overwrite)

    def delete(self, path: Any) -> None:
        self._may_commit()
        self._files.delete(path)

    def open(self, path: Any) -> Any:
        return self._files.open(path)

    def list(self, *arguments: Any) -> Any:
        return self._files.list(*arguments)

    def mkdirs(self, path: Any) -> None:
        self._files.mkdirs(path)

    def exists(self, path: Any) -> bool:
        return bool(self._files.exists(path))

    def isLocal(self) -> bool:  # noqa: N802
        return bool(self._files.isLocal())

    def createCheckpointDirectory(self) -> Any:  # noqa: N802
        return self._files.createCheckpointDirectory()

    def close(self) -> None:
        self._files.close()

    class Java:
        implements = (_INTERFACE,)


class _AskingRenamingFiles(_AskingFiles):
    """An _AskingFiles for a file manager that writes temporary files and renames them. The rename waits, too."""

    def createAtomic(self, path: Any, overwrite: bool) -> Any:  # noqa: N802
        from pyspark import SparkContext

        with self._hooks.around(path):
            self._may_commit()
        jvm: Any = SparkContext._jvm
        return getattr(jvm.org.apache.spark.sql.execution.streaming.checkpointing, _RENAMED_STREAM)(
            self, path, overwrite
        )

    def createTempFile(self, path: Any) -> Any:  # noqa: N802
        return self._files.createTempFile(path)

    def renameTempFile(self, source: Any, destination: Any, overwrite: bool) -> None:  # noqa: N802
        with self._hooks.around(destination):
            self._may_commit()
            self._files.renameTempFile(source, destination, overwrite)
        self._hooks.written(destination)

    class Java:
        implements = (_INTERFACE, _RENAMING)


def _batch_of(path: Any) -> int:
    """Return the batch of the offset log entry at ``path``; -1 for any other file."""
    name = str(path.getName())
    return int(name) if name.isdecimal() else -1


def _class_named(kind: Any, name: str) -> Any:
    """Return the class of this name among ``kind`` and its superclasses. Raises TypeError."""
    while kind is not None and kind.getName() != name:
        kind = kind.getSuperclass()
    if kind is None:
        raise TypeError(f"the class of a checkpoint log is not {name}")
    return kind


def _field(kind: Any, name: str) -> Any:
    field = kind.getDeclaredField(name)
    field.setAccessible(True)
    return field
