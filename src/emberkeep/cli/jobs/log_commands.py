"""``logs``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emberkeep.base.errors import InvalidInput
from emberkeep.cli.cluster_options import DEFAULT_CLUSTER, ClusterOptions, with_client
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.jobs.log_options import LogChoice, LogPrinting, LogReading
from emberkeep.cli.jobs.record_options import RecordChoice
from emberkeep.cli.parameters import Job

if TYPE_CHECKING:
    from emberkeep.client.rest_client import RestClient

_DEFAULT_CHOICE = LogChoice()
_DEFAULT_READING = LogReading()
_ALL_RECORDS = RecordChoice()


def logs(
    job: Job | None = None,
    /,
    *,
    reading: LogReading = _DEFAULT_READING,
    choice: LogChoice = _DEFAULT_CHOICE,
    records: RecordChoice = _ALL_RECORDS,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Print the logs of a job's driver, of one of its executors, of a task manager or of the JobManager.

    Logs of processes that have ended are included.
    What a process wrote to its standard error is printed to standard error, everything else to standard output.
    --grep, --level, --since and --until search on the machine that holds the log.
    What they find is printed to standard output.
    """
    from emberkeep.base.clock import SystemClock
    from emberkeep.cli.jobs import logs as job_logs
    from emberkeep.cli.jobs.log_search import print_merged
    from emberkeep.client.job_reference import resolve_job

    choice.check(job)
    reading.check()
    selection = records.parameters(SystemClock().now_ms())
    if (selection or choice.merged) and (reading.byte_range is not None or reading.names):
        raise InvalidInput("--range and --list cannot be combined with --grep, --level, --since, --until or --merged")
    printing = LogPrinting(reading, selection)

    async def show(client: RestClient) -> None:
        if choice.task_manager is not None:
            await job_logs.show_task_manager_log(client, choice.task_manager, choice.name, printing)
        elif job is None:
            await job_logs.show_job_manager_log(client, choice.name, printing)
        else:
            job_id = await resolve_job(client, job)
            if choice.merged:
                await print_merged(client, job_id, choice.attempt, printing)
                return
            await job_logs.show_job_logs(client, job_id, printing, attempt=choice.attempt, executor=choice.executor)

    with_client(cluster.require(), show)
    return ExitCode.OK
