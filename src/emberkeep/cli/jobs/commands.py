"""``run``, ``submit``, ``list``, ``info``, ``cancel``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from emberkeep.base.errors import InvalidInput
from emberkeep.base.identity import CLUSTER_NAME
from emberkeep.cli.cluster_options import DEFAULT_CLUSTER, ClusterOptions
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.jobs.running import run_job, submit_job, tell_no_logs_to_keep
from emberkeep.cli.jobs.submit_options import DEFAULT_JOB, DEFAULT_SUBMIT, JobOptions, Quiet, SubmitOptions, Words
from emberkeep.cli.messages import say
from emberkeep.cli.parameters import Job, JobSwitch
from emberkeep.cli.tables import print_table
from emberkeep.cli.views.viewing import DEFAULT_VIEWING, Viewing, show
from emberkeep.client.errors import NotAuthorised

if TYPE_CHECKING:
    from emberkeep.client.rest_client import RestClient
    from emberkeep.client.submission.preparation import PreparedJob
    from emberkeep.protocol.rest_checkpoints import CheckpointStatistics
    from emberkeep.protocol.rest_jobs import JobDetails, JobDetailsInfo, JobExceptions
    from emberkeep.protocol.rest_task_managers import TaskManagerSummary

    JobPicture = tuple[JobDetailsInfo, JobExceptions, CheckpointStatistics, list[TaskManagerSummary]]


def run(
    *words: Words,
    job: JobOptions = DEFAULT_JOB,
    detach: JobSwitch = False,
    keep_logs: JobSwitch = False,
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
        tell_no_logs_to_keep(keep_logs=keep_logs, quiet=quiet)
        return submit(*words, job=job, quiet=quiet, spark=spark, cluster=cluster)
    return run_job(_prepare(words, job, spark, cluster, quiet=quiet), cluster, keep_logs=keep_logs, quiet=quiet)


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
    return submit_job(_prepare(words, job, spark, cluster, quiet=quiet), cluster, quiet=quiet)


def _prepare(
    words: tuple[str, ...], job: JobOptions, spark: SubmitOptions, cluster: ClusterOptions, *, quiet: bool
) -> Callable[[], PreparedJob]:
    from emberkeep.cli.jobs.preparing import prepare_job

    return lambda: prepare_job(words, job, spark, cluster, quiet=quiet)


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
        from emberkeep.cli.wording import LESS_OF_JOBS, job_table

        if jobs:
            print_table(*job_table(jobs, is_wide=is_wide), LESS_OF_JOBS)
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
    from emberkeep.cli.views.asked import Asked, with_client_asking
    from emberkeep.client.job_reference import resolve_job

    async def end(client: RestClient, asked: Asked) -> int:
        return await cancel_job(client, await resolve_job(client, job), asked, wait=wait, kill=kill)

    return with_client_asking(cluster.require(), end)
