"""``run``, ``submit``, ``list``, ``info``, ``cancel``."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

from emberkeep.base.errors import InvalidInput
from emberkeep.base.identity import CLUSTER_NAME
from emberkeep.cli.cluster_options import DEFAULT_CLUSTER, ClusterOptions, with_client
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.messages import print_line, say
from emberkeep.cli.parameters import JOB_GROUP, FromSavepoint, Job, JobNamespace, Module, Secrets
from emberkeep.cli.tables import print_table
from emberkeep.cli.views.viewing import DEFAULT_VIEWING, Viewing, show
from emberkeep.client.errors import NotAuthorised
from emberkeep.client.submission.spark_options import SparkOptions

if TYPE_CHECKING:
    from emberkeep.client.rest_client import RestClient
    from emberkeep.client.submission.preparation import PreparedJob
    from emberkeep.protocol.rest_checkpoints import CheckpointStatistics
    from emberkeep.protocol.rest_jobs import JobDetails, JobDetailsInfo, JobExceptions
    from emberkeep.protocol.rest_task_managers import TaskManagerSummary

    JobPicture = tuple[JobDetailsInfo, JobExceptions, CheckpointStatistics, list[TaskManagerSummary]]

SPARK_GROUP = Group("Spark (as with spark-submit)", sort_key=10)


def _spark(metavar: str, name: str | list[str] | None = None) -> Parameter:
    return Parameter(name=name, metavar=metavar, group=SPARK_GROUP)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SubmitOptions:
    """Options of spark-submit, with Spark's names and meanings."""

    conf: Annotated[tuple[str, ...], _spark("KEY=VALUE", ["--conf", "-c"])] = ()
    "Spark property; may be repeated."
    properties_file: Annotated[str | None, _spark("FILE")] = None
    "File with Spark properties. Default: spark-defaults.conf below $SPARK_CONF_DIR or $SPARK_HOME/conf."
    load_spark_defaults: Annotated[bool, _spark("")] = False
    "Read spark-defaults.conf even when --properties-file is given."
    name: Annotated[str | None, _spark("NAME")] = None
    "Name of the job. Default: the script's."
    py_files: Annotated[str | None, _spark("LIST")] = None
    ".zip, .egg and .py files to put on the Python path of driver and executors."
    files: Annotated[str | None, _spark("LIST")] = None
    "Files to put into the working directory of each executor; path#name renames."
    archives: Annotated[str | None, _spark("LIST")] = None
    "Archives to unpack into the working directory of each executor; archive.zip#directory names the directory."
    jars: Annotated[str | None, _spark("LIST")] = None
    "Jars to put on the class path of driver and executors."
    packages: Annotated[str | None, _spark("LIST")] = None
    "Maven coordinates of jars: group:artifact:version."
    exclude_packages: Annotated[str | None, _spark("LIST")] = None
    "group:artifact to leave out of what --packages brings."
    repositories: Annotated[str | None, _spark("LIST")] = None
    "Further repositories to look for --packages in."
    driver_memory: Annotated[str | None, _spark("MEM")] = None
    "Heap of the driver, such as 1g. Default: 1g."
    driver_cores: Annotated[str | None, _spark("NUM")] = None
    "Cores of the driver."
    driver_java_options: Annotated[str | None, _spark("OPTIONS")] = None
    "Options of the driver's JVM."
    driver_class_path: Annotated[str | None, _spark("PATH")] = None
    "Further entries of the driver's class path."
    driver_library_path: Annotated[str | None, _spark("PATH")] = None
    "Further entries of the driver's library path."
    executor_memory: Annotated[str | None, _spark("MEM")] = None
    "Heap of each executor, such as 2g. Default: 1g."
    executor_cores: Annotated[str | None, _spark("NUM")] = None
    "Cores of each executor. Default: 1."
    num_executors: Annotated[str | None, _spark("NUM")] = None
    "Executors of the job, one slot each. Default: 2."
    total_executor_cores: Annotated[str | None, _spark("NUM")] = None
    "Cores of all executors together, if --num-executors is not given."
    master: Annotated[str | None, _spark("URL")] = None
    "Ignored: the job runs on the Emberkeep cluster."
    deploy_mode: Annotated[str | None, _spark("MODE")] = None
    "Ignored: the driver runs on a task manager."
    main_class: Annotated[str | None, _spark("NAME", "--class")] = None
    "Refused: Emberkeep runs PySpark scripts."
    supervise: Annotated[bool, _spark("")] = False
    "Ignored: lost drivers are restarted anyway, see restart-strategy.type."
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], group=SPARK_GROUP)] = False
    "Show what will be submitted."

    def options(self) -> SparkOptions:
        values = {name: getattr(self, name) for name in SparkOptions.__dataclass_fields__}
        return SparkOptions(**values)


Words = Annotated[str, Parameter(show=False)]
Quiet = Annotated[bool, Parameter(name=["--quiet", "-q"], group=JOB_GROUP)]
DEFAULT_SUBMIT = SubmitOptions()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Options of the job itself: its module, savepoint, namespace and secrets."""

    module: Module = None
    from_savepoint: FromSavepoint = None
    namespace: JobNamespace = ""
    secret: Secrets = ()


DEFAULT_JOB = JobOptions()


def run(
    *words: Words,
    job: JobOptions = DEFAULT_JOB,
    detach: Annotated[bool, Parameter(group=JOB_GROUP)] = False,
    keep_logs: Annotated[bool, Parameter(group=JOB_GROUP)] = False,
    quiet: Quiet = False,
    spark: SubmitOptions = DEFAULT_SUBMIT,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Run a PySpark script: show its output and progress, return its exit code.

    Without a cluster, start one for this run alone and remove it afterwards.
    Everything after the script is an argument of the script.
    Ctrl-C cancels the job; a second Ctrl-C kills it.

    Parameters
    ----------
    detach
        Return once the job is submitted, as `emberkeep submit` does.
    keep_logs
        Keep the logs of a cluster that is started for this run, and print where they are.
    quiet
        Show only the script's own output, and errors.
    """
    if detach:
        return submit(*words, job=job, quiet=quiet, spark=spark, cluster=cluster)
    from emberkeep.client.submission.job_options import refuse_cluster_options, without_client_keys

    prepared = _prepare(words, job, spark, cluster, quiet=quiet)
    endpoint = cluster.find()
    from emberkeep.cli.jobs.run import run_embedded, run_on_cluster

    if endpoint is not None:
        refuse_cluster_options(cluster.definitions)
        if keep_logs:
            say("--keep-logs has no effect: the cluster keeps the logs of its jobs")
        return asyncio.run(run_on_cluster(prepared, endpoint, quiet=quiet))
    from emberkeep.base.configuration.options import CANCELLATION_TIMEOUT
    from emberkeep.client.clusters.cluster_end import STOP_MARGIN
    from emberkeep.client.clusters.embedded import EmbeddedOptions
    from emberkeep.client.clusters.private_storage import PrivateStorage

    options = EmbeddedOptions(
        parent=cluster.layout().root / "runs",
        config_file=cluster.effective_config_file(),
        definitions=without_client_keys(cluster.definitions),
        stop_timeout=cluster.load()[CANCELLATION_TIMEOUT] + STOP_MARGIN,
        storage=PrivateStorage(cluster.load()),
    )
    return asyncio.run(run_embedded(prepared, options, quiet=quiet, keep_logs=keep_logs))


def submit(
    *words: Words,
    job: JobOptions = DEFAULT_JOB,
    quiet: Quiet = False,
    spark: SubmitOptions = DEFAULT_SUBMIT,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Submit a PySpark script to a cluster and print its job id.

    The options are those of `emberkeep run`.

    Parameters
    ----------
    quiet
        Print only the job id.
    """
    from emberkeep.cli.jobs.upload_display import UploadDisplay
    from emberkeep.client.submission.job_options import refuse_cluster_options
    from emberkeep.client.submission.job_submission import JobSubmitting

    refuse_cluster_options(cluster.definitions)
    endpoint = cluster.require()
    prepared = _prepare(words, job, spark, cluster, quiet=quiet)

    def notice(text: str) -> None:
        if not quiet:
            say(text)

    async def send(client: RestClient) -> str:
        return await JobSubmitting(client, prepared, UploadDisplay(say, quiet=quiet), notice).run()

    job_id = with_client(endpoint, send)
    print_line(job_id)
    if not quiet:
        name = prepared.submission.name
        say(f"{name} was accepted by {endpoint.url}; follow it with `emberkeep logs -f {job_id[:8]}`")
    return ExitCode.OK


def _prepare(
    words: tuple[str, ...], job: JobOptions, spark: SubmitOptions, cluster: ClusterOptions, *, quiet: bool
) -> PreparedJob:
    """Prepare the job and check all that can be checked on this machine. Raises InvalidInput."""
    from emberkeep.base.configuration.options import OFFLOAD_MIN_SIZE
    from emberkeep.client.savepoint_calls import savepoint_location
    from emberkeep.client.submission.job_options import job_options
    from emberkeep.client.submission.preparation import Program, prepare

    script, arguments = (None, words) if job.module is not None else (words[0] if words else None, words[1:])
    prepared = prepare(
        Program(script, job.module, arguments),
        spark.options(),
        job_options(cluster.definitions),
        os.environ,
        offload_min_size=cluster.load()[OFFLOAD_MIN_SIZE],
        savepoint="" if job.from_savepoint is None else savepoint_location(job.from_savepoint),
        namespace=job.namespace,
        secrets=job.secret,
    )
    if not quiet:
        for notice in prepared.notices:
            say(notice)
    if spark.verbose:
        _show(prepared)
    return prepared


def _show(job: PreparedJob) -> None:
    submission = job.submission
    entry = submission.entry_point
    resources = submission.resources
    say(f"{entry.kind.value} {entry.source_path or entry.name}, arguments {submission.arguments}")
    for artefact in submission.artefacts:
        alias = f"#{artefact.fragment}" if artefact.fragment else ""
        say(f"{artefact.role.value} {artefact.name}{alias} ({artefact.size} bytes, SHA-256 {artefact.sha256})")
    for name in submission.secrets:
        say(f"secret {name}")
    for key in sorted(submission.spark_conf):
        hidden = any(part in key.lower() for part in ("secret", "password", "token"))
        say(f"{key}={'******' if hidden else submission.spark_conf[key]}")
    say(
        f"driver: {resources.driver_memory_mb} MiB and {resources.driver_overhead_mb} MiB overhead; "
        f"{resources.executors} executors: {resources.executor_cores} cores, {resources.executor_memory_mb} MiB and "
        f"{resources.executor_overhead_mb} MiB overhead each"
    )


def list_jobs(
    *,
    mine: Annotated[bool, Parameter(negative=())] = False,
    owner: str = "",
    namespace: str = "",
    viewing: Viewing = DEFAULT_VIEWING,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """List the jobs that the caller may see, newest first.

    Parameters
    ----------
    mine
        Only jobs that were submitted with a token of the caller's name.
    owner
        Only jobs that the identity of this name has submitted.
    namespace
        Only jobs of this namespace.
    """
    if mine and owner:
        raise InvalidInput("--mine and --owner exclude each other", hint="use one of them")

    async def read(client: RestClient) -> list[JobDetails]:
        if not mine:
            return await client.jobs(owner=owner, namespace=namespace)
        caller = (await client.tokens.caller()).name
        jobs = await client.jobs(namespace=namespace)
        return [job for job in jobs if job.emberkeep.owner == ("" if caller == CLUSTER_NAME else caller)]

    def text(jobs: list[JobDetails], is_wide: bool) -> None:
        from emberkeep.cli.wording import job_table

        if jobs:
            print_table(*job_table(jobs, is_wide=is_wide))
        else:
            chosen = mine or owner or namespace
            say("no such job" if chosen else "no jobs yet; submit one with `emberkeep submit app.py`")

    show(cluster, viewing, read, text)
    return ExitCode.OK


def info(job: Job, /, *, viewing: Viewing = DEFAULT_VIEWING, cluster: ClusterOptions = DEFAULT_CLUSTER) -> int:
    """Show one job: state, what it waits for, executors, queries, checkpoints, local state, attempts, failures."""
    from emberkeep.client.job_reference import resolve_job

    async def read(client: RestClient) -> JobPicture:
        job_id = await resolve_job(client, job)
        return (
            await client.job(job_id),
            await client.exceptions(job_id),
            await client.checkpoints(job_id),
            await _task_managers(client),
        )

    def text(picture: JobPicture, _is_wide: bool) -> None:
        from emberkeep.cli.jobs.view import print_job

        print_job(*picture)

    show(cluster, viewing, read, text, lambda it: {"job": it[0], "exceptions": it[1], "checkpoints": it[2]})
    return ExitCode.OK


async def _task_managers(client: RestClient) -> list[TaskManagerSummary]:
    """Return the task managers; none if the caller may not see them: it has a namespace."""
    try:
        return await client.task_managers()
    except NotAuthorised:
        return []


def cancel(
    job: Job,
    /,
    *,
    wait: Annotated[bool, Parameter(negative="--no-wait")] = True,
    kill: bool = False,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Cancel a job: send SIGTERM to its script, and SIGKILL if it has not ended after task.cancellation.timeout.

    Parameters
    ----------
    wait
        Wait until the job has ended.
    kill
        Send SIGKILL at once.
    """
    from emberkeep.cli.jobs.cancel import cancel_job
    from emberkeep.client.job_reference import resolve_job

    async def end(client: RestClient) -> int:
        return await cancel_job(client, await resolve_job(client, job), wait=wait, kill=kill)

    return with_client(cluster.require(), end)
