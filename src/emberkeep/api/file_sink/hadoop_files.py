"""The sink's files on any file system that Hadoop supports, through the JVM of the Spark driver.

Spark's CheckpointFileManager creates the entries of the commit log. So whatever makes Spark's own checkpoints atomic on
a file system (``spark.sql.streaming.checkpointFileManagerClass``) does the same for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from emberkeep.api.file_sink.ports import ListedFile
from emberkeep.base.errors import Absent, Conflict, RetryLater

_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager"


class HadoopSinkFiles:
    """Implements SinkFiles. Any thread may call it, one at a time."""

    def __init__(self, session: Any) -> None:
        """``session``: a SparkSession whose settings say how file systems are reached."""
        self._jvm = session._jvm
        self._configuration = session._jsparkSession.sessionState().newHadoopConf()

    def read(self, path: str) -> bytes:
        with _explained(path):
            found = self._path(path)
            system = found.getFileSystem(self._configuration)
            if not system.exists(found):
                raise Absent(f"{path} does not exist")
            stream = system.open(found)
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def exists(self, path: str) -> bool:
        with _explained(path):
            found = self._path(path)
            return bool(found.getFileSystem(self._configuration).exists(found))

    def create(self, path: str, data: bytes) -> None:
        with _explained(path):
            found = self._path(path)
            found.getFileSystem(self._configuration).mkdirs(found.getParent())
            manager = getattr(self._jvm, _MANAGER).create(found.getParent(), self._configuration)
            stream = manager.createAtomic(found, False)
            try:
                stream.write(data)
                stream.close()
            except BaseException:
                stream.cancel()
                raise

    def names(self, directory: str) -> list[str]:
        with _explained(directory):
            found = self._path(directory)
            system = found.getFileSystem(self._configuration)
            if not system.exists(found):
                return []
            return sorted(str(status.getPath().getName()) for status in system.listStatus(found))

    def files(self, directory: str) -> list[ListedFile]:
        with _explained(directory):
            root = self._path(directory)
            system = root.getFileSystem(self._configuration)
            if not system.exists(root):
                raise RetryLater(f"{directory} does not exist now", hint="check that its file system is reachable")
            prefix = f"{system.makeQualified(root).toString().rstrip('/')}/"
            files, found = system.listFiles(root, True), []
            while files.hasNext():
                status = files.next()
                path = str(status.getPath().toString()).removeprefix(prefix)
                found.append(ListedFile(path=path, size=int(status.getLen())))
            return sorted(found, key=lambda file: file.path)

    def move(self, source: str, target: str) -> None:
        with _explained(target):
            old, new = self._path(source), self._path(target)
            system = new.getFileSystem(self._configuration)
            if not system.exists(old):
                return
            system.mkdirs(new.getParent())
            # Names of parts are unique, so a file at the target is this file.
            if system.exists(new):
                system.delete(old, False)
            elif not system.rename(old, new) and system.exists(old):
                raise RetryLater(f"cannot rename {source} to {target}")

    def keep(self, paths: Sequence[str], root: str) -> None:
        """Do nothing: a closed file is as durable as this file system makes it."""

    def delete(self, path: str) -> None:
        with _explained(path):
            found = self._path(path)
            found.getFileSystem(self._configuration).delete(found, True)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)


@contextmanager
def _explained(path: str) -> Iterator[None]:
    from py4j.protocol import Py4JError, Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        kind = str(error.java_exception.getClass().getName())
        if kind.endswith("FileAlreadyExistsException"):
            raise Conflict(f"{path} exists already") from error
        if kind == "java.io.FileNotFoundException":
            raise Absent(f"{path} does not exist") from error
        raise RetryLater(f"{path}: {error.java_exception.toString()}") from error
    except Py4JError as error:
        raise RetryLater(f"{path}: the JVM does not answer: {error}") from error
