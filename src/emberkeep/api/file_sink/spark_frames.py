"""Reads and writes pieces and parts with Spark."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from emberkeep.api.earlier_commits import EARLIER_COMMITS
from emberkeep.api.file_sink.arrivals import Arrival
from emberkeep.api.file_sink.hadoop_files import HadoopSinkFiles
from emberkeep.api.file_sink.model import FileFormat
from emberkeep.base.errors import InvalidInput

# Set in a session of our own: merging files must not depend on what a script sets for its queries.
_OWN_SETTINGS = {
    "spark.sql.files.maxRecordsPerFile": "0",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    "spark.sql.sources.useV1SourceList": "avro,csv,json,kafka,orc,parquet,text",
}
_NO_MARK = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}


class SparkFrames:
    """Implements Frames. ``uri``: converts a path of the sink into the form that Spark needs."""

    def __init__(
        self,
        session: Any,
        form: FileFormat,
        partition_by: Sequence[str],
        options: Mapping[str, str],
        uri: Callable[[str], str],
    ) -> None:
        from pyspark.sql import SparkSession

        self._form = form
        self._partition_by = list(partition_by)
        self._options = dict(options)
        self._uri = uri
        self._files = HadoopSinkFiles(session)
        self._jvm = session._jvm
        self._session: Any = SparkSession(session.sparkContext, session._jsparkSession.cloneSession())
        for key, value in _OWN_SETTINGS.items():
            self._session.conf.set(key, value)
        self._configuration = self._session._jsparkSession.sessionState().newHadoopConf()

    def schema(self, frame: Any) -> str:
        sensitive = self._session.conf.get("spark.sql.caseSensitive") == "true"

        def known(name: str) -> str:
            return name if sensitive else name.lower()

        apart = {known(name) for name in self._partition_by}
        schema = json.loads(frame.schema.json())
        schema["fields"] = [field for field in schema["fields"] if known(field["name"]) not in apart]
        return json.dumps(schema)

    def stage(self, frame: Any, directory: str) -> None:
        writer = frame.write.format("parquet").mode("errorifexists").options(**_NO_MARK)
        if self._form is FileFormat.PARQUET:
            writer = writer.options(**self._options)
        if self._partition_by:
            writer = writer.partitionBy(*self._partition_by)
        writer.save(self._uri(directory))

    def evaluate(self, frame: Any) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def rows(self, paths: Sequence[str]) -> list[int]:
        parquet = self._jvm.org.apache.parquet.hadoop

        def count(path: str) -> int:
            file = parquet.util.HadoopInputFile.fromPath(
                self._jvm.org.apache.hadoop.fs.Path(self._uri(path)), self._configuration
            )
            reader = parquet.ParquetFileReader.open(file)
            try:
                return int(reader.getRecordCount())
            finally:
                reader.close()

        return [count(path) for path in paths]

    def merge(self, paths: Sequence[str], schema: str, directory: str, *, is_part: bool) -> None:
        from pyspark.sql.types import StructType

        form = self._form if is_part else FileFormat.PARQUET
        reader = self._session.read.schema(StructType.fromJson(json.loads(schema)))
        rows = reader.parquet(*(_literal(self._uri(path)) for path in paths))
        options = self._options if form is self._form else {}
        writer = rows.coalesce(1).write.format(form.value).mode("errorifexists")
        writer.options(**_NO_MARK, **options).save(self._uri(directory))

    def committed(self, checkpoint: str, newest: int) -> int | None:
        commits = f"{checkpoint}/commits"
        if self._files.exists(f"{commits}/{newest}"):
            return newest
        batches = (int(name) for name in self._files.names(commits) if name.isdecimal())
        return max((batch for batch in batches if batch <= newest), default=None)

    def arrival(self, frame: Any, batch: int) -> Arrival:
        """Return what Spark knows of the micro-batch that this thread works on. Raises InvalidInput outside of one."""
        session = frame.sparkSession
        query = session.sparkContext.getLocalProperty("sql.streaming.queryId")
        execution = None
        if query is not None:
            known = session._jsparkSession.sharedState().activeStreamingQueries()
            execution = known.get(self._jvm.java.util.UUID.fromString(query))
        if execution is None:
            raise InvalidInput(
                "a RollingFileSink was called outside a streaming query", hint="pass it to writeStream.foreachBatch"
            )
        checkpoint = str(execution.resolvedCheckpointRoot())
        planned = self._files.read(f"{checkpoint}/offsets/{batch}")
        return Arrival(
            query=query,
            checkpoint=checkpoint,
            batch=batch,
            plan=hashlib.sha256(planned).hexdigest(),
            committed_before=EARLIER_COMMITS.newest(checkpoint),
        )


def _literal(path: str) -> str:
    """Escape a path, because Spark treats paths that it reads as patterns.

    Switching that off does not help: Spark 4.3 then reads all paths once for each path that looks like a pattern.
    """
    return re.sub(r"([{}\[\]*?\\])", r"\\\1", path)
