"""Storage of the record of unnamed queries, on the checkpoints' file system (through Hadoop, in the JVM)."""

from __future__ import annotations

from typing import Any

from emberkeep.spark.errors import CheckpointIdentityError, SparkInternalsMissing
from emberkeep.spark.queries.checkpoints import RECORD_NAME, QueryRecord, decode, encode


class CheckpointStore:
    """Reads and atomically replaces ``queries.json`` in ``root``, which Spark reaches at the location ``reached``."""

    def __init__(self, spark: Any, root: str, reached: str) -> None:
        from py4j.protocol import Py4JError

        self._jvm = spark._jvm
        self.root = root
        self._path = self._jvm.org.apache.hadoop.fs.Path(f"{reached.rstrip('/')}/{RECORD_NAME}")
        self._configuration = spark._jsparkSession.sessionState().newHadoopConf()
        try:
            manager = self._jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
            self._files = manager.create(self._path.getParent(), self._configuration)
        except (Py4JError, TypeError) as error:
            raise SparkInternalsMissing(
                f"cannot access the checkpoint files at {self.root}: {error}",
                hint="check the checkpoint location; Emberkeep works with PySpark 4.3",
            ) from error

    def read(self) -> QueryRecord:
        """Return the record; empty if it does not exist yet. Raises CheckpointIdentityError (damaged, not readable)."""
        from py4j.protocol import Py4JError

        try:
            if not self._files.exists(self._path):
                return QueryRecord({})
            stream = self._files.open(self._path)
            try:
                text = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
            finally:
                stream.close()
        except Py4JError as error:
            raise CheckpointIdentityError(
                f"cannot read {self.root}/{RECORD_NAME}: {error}", hint="check the checkpoint location's file system"
            ) from error
        return decode(text, f"{self.root}/{RECORD_NAME}")

    def write(self, record: QueryRecord) -> None:
        """Replace the record atomically. Raises CheckpointIdentityError (not writable); the old one stays."""
        from py4j.protocol import Py4JError

        try:
            self._files.mkdirs(self._path.getParent())
            stream = self._files.createAtomic(self._path, True)
            try:
                stream.write(encode(record).encode())
            except Py4JError:
                stream.cancel()
                raise
            stream.close()
        except Py4JError as error:
            raise CheckpointIdentityError(
                f"cannot write {self.root}/{RECORD_NAME}: {error}",
                hint="check the checkpoint location's file system: space and permissions",
            ) from error
