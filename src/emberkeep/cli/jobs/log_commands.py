"""``logs``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from emberkeep.base.errors import InvalidInput
from emberkeep.cli.cluster_options import DEFAULT_CLUSTER, ClusterOptions, with_client
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.parameters import Job

if TYPE_CHECKING:
    from emberkeep.client.rest_client import RestClient


def logs(
    job: Job | None = None,
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
    """Print the logs of a job's driver, of one of its executors, of a task manager or of the JobManager.

    Logs of processes that have ended are included.
    What a process wrote to its standard error is printed to standard error, everything else to standard output.

    Parameters
    ----------
    follow
        Print more as it is written, until the log ends.
        A driver's output without --range is followed across restarts, until the job ends.
    attempt
        Number of the attempt. Default: the newest with logs.
    executor
        Id of an executor: print its logs instead of the driver's.
    byte_range
        Print only these bytes of each log, such as 1000-1999 (first and last).
        1000- prints everything from byte 1000, -1000 the last 1000 bytes.
    task_manager
        Id of a task manager: print its own log instead of a job's.
    job_manager
        Print the JobManager's own log instead of a job's.
    name
        With --taskmanager or --jobmanager: print the log with this name instead.
    names
        List all logs instead of printing one.
    """
    from emberkeep.cli.jobs import logs as job_logs
    from emberkeep.client.job_reference import resolve_job

    if [job is not None, task_manager is not None, job_manager].count(True) != 1:
        raise InvalidInput("name a job, --taskmanager or --jobmanager", hint="`emberkeep list` shows the jobs")
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
