"""``logs``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from emberkeep.base.errors import InvalidInput
from emberkeep.cli.cluster_options import ClusterOptions
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.jobs.commands import DEFAULT_CLUSTER, with_client

if TYPE_CHECKING:
    from emberkeep.client.rest_client import RestClient


def logs(
    job: str | None = None,
    /,
    *,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"])] = False,
    attempt: int | None = None,
    executor: str | None = None,
    byte_range: Annotated[str | None, Parameter(name="--range", allow_leading_hyphen=True)] = None,
    task_manager: Annotated[str | None, Parameter(name="--taskmanager")] = None,
    job_manager: Annotated[bool, Parameter(name="--jobmanager", negative=())] = False,
    name: str | None = None,
    names: Annotated[bool, Parameter(name="--list", negative=())] = False,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Print what a job's driver wrote, one of its executors, a task manager or the JobManager; also after its end.

    Standard output goes to standard output, standard error to standard error.

    Parameters
    ----------
    job
        Job id, the beginning of one, or a job's name.
    follow
        Go on as more is written, over restarts, until the job ends.
    attempt
        Which attempt. Default: the newest.
    executor
        Id of an executor, instead of the driver.
    byte_range
        Only these bytes of each log: first and last, such as 1000-1999; 1000- for the rest; -1000 for the last 1000.
    task_manager
        Id of a task manager: its own log, instead of a job's.
    job_manager
        The JobManager's own log, instead of a job's.
    name
        With --taskmanager or --jobmanager: another log that it holds.
    names
        List all logs instead.
    """
    from emberkeep.cli.jobs import logs as job_logs
    from emberkeep.client.job_reference import resolve_job

    if [job is not None, task_manager is not None, job_manager].count(True) != 1:
        raise InvalidInput("logs needs a job, --taskmanager or --jobmanager", hint="`emberkeep list` shows the jobs")
    if job is None and (attempt is not None or executor is not None):
        raise InvalidInput("--attempt and --executor are a job's")
    if job is not None and name is not None:
        raise InvalidInput("--name goes with --taskmanager or --jobmanager", hint="--attempt and --executor choose")
    reading = job_logs.Reading(follow=follow, byte_range=byte_range, names=names)
    reading.check()

    async def show(client: RestClient) -> None:
        if task_manager is not None:
            await job_logs.show_task_manager_log(client, task_manager, name, reading)
        elif job is None:
            await job_logs.show_job_manager_log(client, name, reading)
        else:
            job_id = await resolve_job(client, job)
            await job_logs.show_job_logs(client, job_id, reading, attempt=attempt, executor=executor)

    with_client(cluster.require(), show)
    return ExitCode.OK
