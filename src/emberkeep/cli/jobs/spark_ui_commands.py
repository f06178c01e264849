"""``spark-ui``."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from emberkeep.base.errors import InvalidInput
from emberkeep.cli.cluster_options import DEFAULT_CLUSTER, ClusterOptions, with_client
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.interrupts import Interrupts
from emberkeep.cli.messages import print_line, say
from emberkeep.cli.parameters import Job

if TYPE_CHECKING:
    from emberkeep.client.rest_client import RestClient


def spark_ui(
    job: Job,
    /,
    *,
    attempt: Annotated[int, Parameter(metavar="NUMBER")] = 0,
    port: Annotated[int, Parameter(metavar="NUMBER")] = 0,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Serve the Spark UI of a job's attempt on this machine, and print a link for one browser. Ctrl-C ends it.

    The UI of an attempt that has ended is shown from its event log, by Spark's History Server.

    The job's page in the console has a link to the same pages, at a port of the JobManager.

    Parameters
    ----------
    attempt
        Number of the attempt. Default: the newest one.
    port
        Port on 127.0.0.1. Default: a free one.
    """
    from emberkeep.client.job_reference import resolve_job
    from emberkeep.client.spark_ui_server import SparkUiServer

    if not 0 <= attempt < 10**9:
        raise InvalidInput(f"--attempt {attempt}: must be the number of an attempt", field="--attempt")
    if not 0 <= port < 2**16:
        raise InvalidInput(f"--port {port}: must be between 0 and 65535", field="--port")

    async def serve(client: RestClient) -> None:
        job_id = await resolve_job(client, job)
        page = partial(client.spark_uis.page, job_id, attempt=attempt)
        await page("/jobs/")
        interrupts = Interrupts()
        async with SparkUiServer(page).serving(port) as link:
            say(f"the link opens the Spark UI of job {job_id[:8]} in one browser; Ctrl-C ends this command")
            print_line(link)
            sys.stdout.flush()  # a script reads the link while the command runs
            with interrupts.catching():
                await interrupts.wait_for(1)

    with_client(cluster.require(), serve)
    return ExitCode.OK
