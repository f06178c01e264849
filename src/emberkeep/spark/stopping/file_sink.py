"""Check, from the batches in the log in its output directory, that Spark's file sink can continue from a savepoint."""

from __future__ import annotations

from typing import Any

import structlog

from emberkeep.base.errors import EmberkeepError
from emberkeep.lifecycle.manifest import QuerySavepoint
from emberkeep.spark.errors import RestoreRefused
from emberkeep.spark.files.hadoop import HadoopFiles
from emberkeep.spark.queries.script_queries import ScriptQuery
from emberkeep.spark.stopping.savepoint_files import log_entries

log = structlog.get_logger(__name__)

_FORMATS = ("parquet", "json", "csv", "orc", "text", "xml", "avro")
_SINK_LOG = "_spark_metadata"
_SESSION_CATALOG = "spark_catalog"  # Spark's own; a table of another catalog need not be a directory


def check_file_sink(files: HadoopFiles, query: ScriptQuery, saved: QuerySavepoint) -> None:
    """Raise RestoreRefused if Spark's file sink could not continue from the savepoint."""
    output = output_directory(query)
    if output is None:
        return
    try:
        newest = newest_batch(files, output)
    except EmberkeepError as error:
        log.warning("cannot read the sink's log", directory=output, reason=str(error))
        return
    refusal = file_sink_refusal(newest, saved.batch_id)
    if refusal:
        reason, hint = refusal
        raise RestoreRefused(f"the output {output} of {query} {reason}", hint=hint)


def newest_batch(files: HadoopFiles, output: str) -> int:
    """Return the newest batch in the log of Spark's file sink in ``output``; -1 for none. Raises EmberkeepError."""
    found = files.below(f"{output.rstrip('/')}/{_SINK_LOG}")
    names = [f"log/{file.name.removesuffix('.compact')}" for file in found]
    return max(log_entries(names, "log"), default=-1)


def output_directory(query: ScriptQuery) -> str | None:
    """Return the location that Spark's file sink is going to write to.

    None if the query has another sink, or if its table cannot be looked up.
    """
    identity = query.identity
    if identity.sink.lower() not in _FORMATS or not identity.target:
        return None
    if query.method != "toTable":
        return identity.target
    from py4j.protocol import Py4JError

    try:
        return _directory_of_table(query.session, identity.target, query.path)
    except (Py4JError, TypeError) as error:
        log.warning("cannot look up the table", table=identity.target, reason=str(error))
        return None


def _directory_of_table(spark: Any, name: str, path: str) -> str | None:
    """Return the directory of a table, found as DataStreamWriter.toTable finds it.

    A table that does not exist yet will be at ``path``, else in its database's directory. None if the table is not in
    Spark's own catalog, or does not consist of files. Raises what Py4J raises.
    """
    state = spark._jsparkSession.sessionState()
    parser, catalogs, tables = state.sqlParser(), state.catalogManager(), state.catalog()
    parts = parser.parseMultipartIdentifier(name)
    catalog = catalogs.currentCatalog()
    if parts.length() > 1 and catalogs.isCatalogRegistered(parts.head()):
        catalog = catalogs.catalog(parts.head())
    if catalog.name() != _SESSION_CATALOG:
        return None
    to_path = spark._jvm.org.apache.hadoop.fs.Path
    identifier = parser.parseTableIdentifier(name)
    if tables.tableExists(identifier):
        table = tables.getTableMetadata(identifier)
        provider = table.provider()
        is_files = provider.isDefined() and str(provider.get()).lower() in _FORMATS
        return str(to_path(table.location()).toString()) if is_files else None
    default = to_path(tables.defaultTablePath(identifier))
    return str((to_path(default.getParent(), path) if path else default).toString())


def file_sink_refusal(newest: int, batch_id: int) -> tuple[str, str] | None:
    """Return why Spark's file sink cannot continue after batch ``batch_id``, and a hint; None if it can.

    ``newest``: the newest batch in the sink's log; -1 if the log is empty. The sink skips batches that are in its log:
    their state would never be written, and a later batch that needs it would fail. The log must have every batch: its
    compaction fails if some are missing.
    """
    if newest > batch_id:
        return (
            (
                f"already has batch {newest}, but the savepoint was made after batch {batch_id}: Spark's file sink "
                "would skip the batches in between, and their state would be lost"
            ),
            "restore the newest savepoint; to go back to this one, write to a new directory with another sink "
            "(emberkeep.api.RollingFileSink, foreachBatch)",
        )
    if newest < batch_id:
        has = "has no log of Spark's file sink" if newest < 0 else f"has only batches up to {newest}"
        return (
            (
                f"{has}, but the savepoint was made after batch {batch_id}: Spark's file sink would fail some batches "
                "later, when it compacts its log and finds the earlier batches missing"
            ),
            "write to the directory that the query wrote to before, or with another sink "
            "(emberkeep.api.RollingFileSink, foreachBatch)",
        )
    return None
