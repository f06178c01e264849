"""``logs``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emberkeep.cli.cluster_options import DEFAULT_CLUSTER, ClusterOptions, with_client
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.jobs.log_options import LogChoice, LogReading
from emberkeep.cli.parameters import Job

if TYPE_CHECKING:
    from emberkeep.client.rest_client import RestClient

_DEFAULT_CHOICE = LogChoice()
_DEFAULT_READING = LogReading()


def logs(
    job: Job | None = None,
    /,
    *,
    reading: LogReading = _DEFAULT_READING,
    choice: LogChoice = _DEFAULT_CHOICE,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Print the logs of a job's driver, of one of its executors, of a task manager or of the JobManager.

    Logs of processes that have ended are included.
    What a process wrote to its standard error is printed to standard error, everything else to standard output.
    """
    from emberkeep.cli.jobs import logs as job_logs
    from emberkeep.client.job_reference import resolve_job

    choice.check(job)
    reading.check()

    async def show(client: RestClient) -> None:
        if choice.task_manager is not None:
            await job_logs.show_task_manager_log(client, choice.task_manager, choice.name, reading)
        elif job is None:
            await job_logs.show_job_manager_log(client, choice.name, reading)
        else:
            job_id = await resolve_job(client, job)
            await job_logs.show_job_logs(client, job_id, reading, attempt=choice.attempt, executor=choice.executor)

    with_client(cluster.require(), show)
    return ExitCode.OK
