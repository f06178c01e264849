"""Run a declarative pipeline, as `spark-pipelines` does. `emberkeep pipelines` submits this as the program of its job.

The files of the project arrive as an archive of the job. Spark runs the pipeline inside a Spark Connect server.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emberkeep.base.errors import EmberkeepError
from emberkeep.spark.doors.connect_server import client_session, require_packages, start_server
from emberkeep.spark.doors.flows import note_event


@dataclass(frozen=True)
class PipelineRun:
    """The run that was asked for. ``project``: the archive's name. ``spec``: the specification's path in it."""

    project: str
    spec: str
    dry: bool
    full_refresh: Sequence[str]
    full_refresh_all: bool
    refresh: Sequence[str]


def parse_run(arguments: Sequence[str]) -> PipelineRun:
    """Return the run that the program's arguments ask for. Raises SystemExit."""
    parser = argparse.ArgumentParser(prog="emberkeep pipelines")
    parser.add_argument("command", choices=("run", "dry-run"))
    parser.add_argument("--project", required=True)
    parser.add_argument("--spec", required=True)
    parser.add_argument("--full-refresh", action="append", default=[])
    parser.add_argument("--full-refresh-all", action="store_true")
    parser.add_argument("--refresh", action="append", default=[])
    given = parser.parse_args(list(arguments))
    return PipelineRun(
        given.project,
        given.spec,
        given.command == "dry-run",
        given.full_refresh,
        given.full_refresh_all,
        given.refresh,
    )


def run_pipeline(run: PipelineRun) -> None:
    """Run the pipeline to its end, and print its events. Raises PySparkException if the pipeline fails."""
    require_packages()
    from pyspark import SparkFiles
    from pyspark.pipelines import cli, spark_connect_pipeline
    from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry

    # The specification's configuration is part of the job's own, because it may have settings of the SparkContext.
    spark = client_session(start_server({"spark.sql.connect.serverStacktrace.enabled": "false"}))
    try:
        with _own_copy(Path(SparkFiles.get(run.project))) as project:
            path = project / run.spec
            spec = cli.load_pipeline_spec(path)
            graph = spark_connect_pipeline.create_dataflow_graph(
                spark,
                default_catalog=spec.catalog,
                default_database=spec.database,
                sql_conf=spec.configuration,
            )
            cli.register_definitions(path, SparkConnectGraphElementRegistry(spark, graph), spec, spark, graph)
            events = spark_connect_pipeline.start_run(
                spark,
                graph,
                full_refresh=run.full_refresh,
                full_refresh_all=run.full_refresh_all,
                refresh=run.refresh,
                dry=run.dry,
                storage=spec.storage,
            )
            spark_connect_pipeline.handle_pipeline_events(_noted(events))
    finally:
        spark.stop()


def main(arguments: Sequence[str]) -> None:
    """Run what ``arguments`` ask for. Raises SystemExit with the reason if this environment cannot run pipelines."""
    try:
        run_pipeline(parse_run(arguments))
    except EmberkeepError as error:
        sys.exit(f"emberkeep: {error}")


def _noted(results: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Pass the results of a run on, and note its events."""
    for result in results:
        if "pipeline_event_result" in result:
            event = result["pipeline_event_result"].event
            note_event(event.message, event.timestamp.ToMilliseconds())
        yield result


@contextmanager
def _own_copy(project: Path) -> Iterator[Path]:
    """Copy the project for the time of the run: importing its modules writes beside them, and the archive is shared.

    The copy is in the driver's own scratch directory, which the task manager removes even after a crash.
    """
    with tempfile.TemporaryDirectory(prefix="pipeline-", dir=project.parent) as directory:
        copy = Path(directory) / project.name
        shutil.copytree(project, copy)
        yield copy


if __name__ == "__main__":
    main(sys.argv[1:])
