"""`emberkeep pipelines`: run declarative pipelines as jobs, with the options of `spark-pipelines`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Group, Parameter

from emberkeep.base.errors import InvalidInput
from emberkeep.cli.cluster_options import DEFAULT_CLUSTER, ClusterOptions
from emberkeep.cli.doors.job_options import DEFAULT_DOOR, DoorOptions
from emberkeep.cli.jobs.running import run_job, submit_job, tell_no_logs_to_keep
from emberkeep.cli.jobs.submit_options import DEFAULT_SUBMIT, JobOptions, Quiet, SubmitOptions
from emberkeep.cli.parameters import JobSwitch

if TYPE_CHECKING:
    from emberkeep.client.submission.preparation import PreparedJob

_PROGRAM = "emberkeep.spark.doors.pipeline_run"
_ARCHIVE = "pipeline"
_GROUP = Group("Pipeline (as with spark-pipelines)", sort_key=4)

Spec = Annotated[str | None, Parameter(name="--spec", metavar="FILE", group=_GROUP)]
Tables = Annotated[tuple[str, ...], Parameter(metavar="LIST", group=_GROUP)]

pipelines_app = App(
    name="pipelines", help="Run declarative pipelines, as spark-pipelines does.", result_action="return_value"
)


@pipelines_app.command
def run(
    *,
    spec: Spec = None,
    full_refresh: Tables = (),
    full_refresh_all: Annotated[bool, Parameter(group=_GROUP)] = False,
    refresh: Tables = (),
    job: DoorOptions = DEFAULT_DOOR,
    detach: JobSwitch = False,
    keep_logs: JobSwitch = False,
    quiet: Quiet = False,
    spark: SubmitOptions = DEFAULT_SUBMIT,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Run a pipeline to its end: update its tables, show its events, return its exit code.

    The files below the specification's directory are sent with the job.
    Without a cluster, start one for this run alone and remove it afterwards.

    Parameters
    ----------
    spec
        Specification of the pipeline. Default: spark-pipeline.yml here or in a directory above.
    full_refresh
        Tables to reset and compute again, separated by commas.
    full_refresh_all
        Reset and compute all tables again.
    refresh
        Tables to update, separated by commas. Default: all.
    detach
        Return once the job is submitted, and print its id.
    keep_logs
        Keep the logs of a cluster that is started for this run, and print where they are.
    quiet
        Show only the pipeline's own output, and errors.
    """
    if full_refresh_all and (full_refresh or refresh):
        raise InvalidInput("--full-refresh-all excludes --full-refresh and --refresh", hint="use one of them")
    words = ["run", *_lists("--full-refresh", full_refresh), *_lists("--refresh", refresh)]
    if full_refresh_all:
        words.append("--full-refresh-all")
    with _prepared(spec, words, job, spark, cluster, quiet=quiet) as prepare:
        if detach:
            tell_no_logs_to_keep(keep_logs=keep_logs, quiet=quiet)
            return submit_job(prepare, cluster, quiet=quiet)
        return run_job(prepare, cluster, keep_logs=keep_logs, quiet=quiet)


@pipelines_app.command(name="dry-run")
def dry_run(
    *,
    spec: Spec = None,
    job: DoorOptions = DEFAULT_DOOR,
    quiet: Quiet = False,
    spark: SubmitOptions = DEFAULT_SUBMIT,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Check a pipeline without running it: definitions, names and the graph of its tables.

    Parameters
    ----------
    spec
        Specification of the pipeline. Default: spark-pipeline.yml here or in a directory above.
    quiet
        Show only the pipeline's own output, and errors.
    """
    with _prepared(spec, ["dry-run"], job, spark, cluster, quiet=quiet) as prepare:
        return run_job(prepare, cluster, keep_logs=False, quiet=quiet)


def _lists(option: str, lists: tuple[str, ...]) -> list[str]:
    tables = [table.strip() for text in lists for table in text.split(",")]
    return [f"{option}={table}" for table in tables if table]


@contextmanager
def _prepared(
    spec: str | None,
    words: list[str],
    job: DoorOptions,
    spark: SubmitOptions,
    cluster: ClusterOptions,
    *,
    quiet: bool,
) -> Iterator[Callable[[], PreparedJob]]:
    """Pack the project, and yield a function that prepares its job; the archive exists until the context ends."""
    from emberkeep.cli.jobs.preparing import prepare_job
    from emberkeep.client.doors.connect_plugin import with_connect_server
    from emberkeep.client.doors.pipeline_project import find_project, pack

    project = find_project(spec, Path.cwd())
    with tempfile.TemporaryDirectory(prefix="emberkeep-pipeline-") as directory:
        archive = Path(directory) / f"{_ARCHIVE}.zip"
        pack(project, archive)
        archives = ",".join(filter(None, (spark.archives, f"{archive}#{_ARCHIVE}")))
        arguments = (words[0], f"--project={_ARCHIVE}", f"--spec={project.spec.name}", *words[1:])
        # In Spark, too, the specification's configuration wins over the command's.
        settings = (*(spark.conf), *(f"{key}={value}" for key, value in project.configuration.items()))
        options = replace(spark, archives=archives, name=spark.name or project.name, conf=settings)
        named = JobOptions(module=_PROGRAM, namespace=job.namespace, secret=job.secret)
        yield lambda: with_connect_server(prepare_job(arguments, named, options, cluster, quiet=quiet), {})
