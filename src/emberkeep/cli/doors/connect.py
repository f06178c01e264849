"""`emberkeep connect`: Spark Connect servers that run as jobs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

from cyclopts import App, Parameter

from emberkeep.base.errors import Absent, InvalidInput
from emberkeep.cli.cluster_options import DEFAULT_CLUSTER, ClusterOptions, with_client
from emberkeep.cli.doors.job_options import DEFAULT_DOOR, DoorOptions
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.jobs import commands as job_commands
from emberkeep.cli.jobs.submit_options import DEFAULT_SUBMIT, JobOptions, Quiet, SubmitOptions
from emberkeep.cli.messages import print_line, say
from emberkeep.cli.views.viewing import DEFAULT_VIEWING, Viewing

if TYPE_CHECKING:
    from emberkeep.client.rest_client import RestClient
    from emberkeep.protocol.rest_jobs import JobDetails

_PROGRAM = "emberkeep.spark.doors.connect_run"
_NAME = "connect"
_PORT = 15002  # Spark's own
_TOKEN = "CONNECT_TOKEN"  # noqa: S105 - the name of the job's secret
_TIMEOUT = "spark.connect.session.manager.defaultSessionTimeout"
_START_SECONDS = 120.0

Server = Annotated[str, Parameter(metavar="NAME", help="Name or job id of the server.")]

connect_app = App(name="connect", help="Run Spark Connect servers, and connect to them.", result_action="return_value")


@connect_app.command
def up(
    *,
    session_timeout: Annotated[str, Parameter(metavar="TIME")] = "60m",
    job: DoorOptions = DEFAULT_DOOR,
    quiet: Quiet = False,
    spark: SubmitOptions = DEFAULT_SUBMIT,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Start a Spark Connect server as a job, and print its job id. A server of the same name that runs stays.

    The name is that of --name; default: connect. The number of executors follows what clients run, by Spark's dynamic
    allocation, unless --num-executors or a setting of Spark says how many there are.

    Parameters
    ----------
    session_timeout
        End the sessions of clients that have sent nothing for this long.
    quiet
        Print only the job id.
    """
    from emberkeep.cli.jobs.preparing import prepare_job, send_job
    from emberkeep.client.doors.connect_plugin import sized_by_load, with_connect_server
    from emberkeep.client.submission.job_options import refuse_cluster_options

    refuse_cluster_options(cluster.definitions)
    endpoint = cluster.require()
    name = spark.name or _NAME
    running = with_client(endpoint, partial(_running, name=name))
    if running is not None:
        say(f"{name} runs already; connect with `emberkeep connect open {name}`")
        print_line(running.jid)
        return ExitCode.OK
    named = JobOptions(module=_PROGRAM, namespace=job.namespace, secret=job.secret)
    prepared = sized_by_load(prepare_job((), named, replace(spark, name=name), cluster, quiet=quiet))
    own = {_TIMEOUT: session_timeout}
    job_id = send_job(with_connect_server(prepared, own, {_TOKEN: token_urlsafe(32)}), endpoint, quiet=quiet)
    print_line(job_id)
    if not quiet:
        say(f"{name} starts; connect with `emberkeep connect open {name}`")
    return ExitCode.OK


@connect_app.command(name="open")
def open_address(
    server: Server = _NAME,
    /,
    *,
    port: Annotated[int, Parameter(metavar="NUMBER")] = _PORT,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Serve the address of a Spark Connect server on this machine, and print it. Ctrl-C ends it.

    The address stays the same when the server's driver, or the leading JobManager, is lost.

    Parameters
    ----------
    port
        Port on localhost; 0: a free one.
    """
    from emberkeep.cli.interrupts import Interrupts
    from emberkeep.client.doors.connect_address import ConnectAddress, first_token
    from emberkeep.client.job_reference import resolve_job

    if not 0 <= port < 2**16:
        raise InvalidInput(f"--port {port}: must be between 0 and 65535", field="--port")

    async def serve(client: RestClient) -> None:
        job_id = await resolve_job(client, server)
        open_tunnel = partial(client.connect.tunnel, job_id)
        token = await first_token(open_tunnel, _START_SECONDS)
        interrupts = Interrupts()
        async with ConnectAddress(open_tunnel, say).serving(port) as served:
            say(f"clients of job {job_id[:8]} connect to this address; Ctrl-C ends this command")
            print_line(f"sc://localhost:{served}/;token={quote(token, safe='')}")
            sys.stdout.flush()  # a script reads the address while the command runs
            with interrupts.catching():
                await interrupts.wait_for(1)

    with _hint_how_to_start():
        with_client(cluster.require(), serve)
    return ExitCode.OK


@connect_app.command
def status(
    server: Server = _NAME, /, *, viewing: Viewing = DEFAULT_VIEWING, cluster: ClusterOptions = DEFAULT_CLUSTER
) -> int:
    """Show a Spark Connect server: its job's state, executors, queries of its clients, attempts, failures."""
    with _hint_how_to_start():
        return job_commands.info(server, viewing=viewing, cluster=cluster)


@connect_app.command
def down(server: Server = _NAME, /, *, cluster: ClusterOptions = DEFAULT_CLUSTER) -> int:
    """End a Spark Connect server, with the sessions of all its clients."""
    with _hint_how_to_start():
        return job_commands.cancel(server, cluster=cluster)


@contextmanager
def _hint_how_to_start() -> Iterator[None]:
    try:
        yield
    except Absent as error:
        raise Absent(error.message, hint="`emberkeep connect up` starts a Spark Connect server") from error


async def _running(client: RestClient, name: str) -> JobDetails | None:
    """Return the job of this name that has not ended; None if there is none."""
    jobs = await client.jobs()
    return next((job for job in jobs if job.name == name and not job.state.is_globally_terminal), None)
