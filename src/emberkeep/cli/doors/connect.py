"""`emberkeep connect`: Spark Connect servers that run as jobs."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

from cyclopts import App, Parameter

from emberkeep.base.errors import Absent, Fatal, InvalidInput
from emberkeep.cli.cluster_options import DEFAULT_CLUSTER, ClusterOptions, with_client
from emberkeep.cli.completion.candidates import jobs
from emberkeep.cli.doors.job_options import DEFAULT_DOOR, DoorOptions
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.jobs import commands as job_commands
from emberkeep.cli.jobs.submit_options import DEFAULT_SUBMIT, JobOptions, Quiet, SubmitOptions, Words
from emberkeep.cli.messages import print_line, say
from emberkeep.cli.views.viewing import DEFAULT_VIEWING, Viewing

if TYPE_CHECKING:
    from emberkeep.base.ids import JobId
    from emberkeep.client.rest_client import RestClient

_PROGRAM = "emberkeep.spark.doors.connect_run"
_NAME = "connect"
_PORT = 15002  # Spark's own
_TOKEN = "CONNECT_TOKEN"  # noqa: S105 - the name of the job's secret
_TIMEOUT = "spark.connect.session.manager.defaultSessionTimeout"
_SPARK_TIME = re.compile(r"-?[0-9]+(us|ms|s|m|min|h|d)?", re.IGNORECASE)
_START_SECONDS = 120.0
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP)

Server = Annotated[str, Parameter(metavar="NAME", help="Name or job id of the server.", completer=jobs)]

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

    The name is that of --name; default: connect.
    The number of executors follows what clients run, by Spark's dynamic allocation.
    With --num-executors, or a setting of Spark that says how many there are, it is fixed.

    Parameters
    ----------
    session_timeout
        End the sessions of clients that have sent nothing for this long.
    quiet
        Print only the job id.
    """
    from emberkeep.cli.jobs.preparing import prepare_job, send_job
    from emberkeep.client.doors.connect_plugin import sized_by_load, with_connect_server
    from emberkeep.client.doors.connect_server import find_server
    from emberkeep.client.submission.job_options import refuse_cluster_options

    refuse_cluster_options(cluster.definitions)
    if not _SPARK_TIME.fullmatch(session_timeout):
        raise InvalidInput(
            f"--session-timeout {session_timeout!r}: not a time as Spark writes it",
            field="--session-timeout",
            hint="write a number and us, ms, s, m, h or d, such as 30m; -1 keeps sessions for ever",
        )
    endpoint = cluster.require()
    name = spark.name or _NAME
    known = with_client(endpoint, partial(find_server, name=name, namespace=job.namespace))
    if known.running is not None:
        say(f"{name} runs already; connect with `emberkeep connect open {name}`")
        print_line(known.running)
        return ExitCode.OK
    named = JobOptions(module=_PROGRAM, namespace=job.namespace, secret=job.secret)
    prepared = sized_by_load(prepare_job((), named, replace(spark, name=name), cluster, quiet=quiet))
    server = with_connect_server(prepared, {_TIMEOUT: session_timeout}, {_TOKEN: token_urlsafe(32)})
    job_id = send_job(known.succeeded_by(server), endpoint, quiet=quiet)
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

    if not 0 <= port < 2**16:
        raise InvalidInput(f"--port {port}: must be between 0 and 65535", field="--port")

    async def serve(client: RestClient) -> None:
        interrupts = Interrupts()
        async with _serving(client, server, port) as (job_id, address):
            say(f"clients of job {job_id[:8]} connect to this address; Ctrl-C ends this command")
            print_line(address)
            sys.stdout.flush()  # a script reads the address while the command runs
            with interrupts.catching():
                await interrupts.wait_for(1)

    with _hint_how_to_start():
        with_client(cluster.require(), serve)
    return ExitCode.OK


@connect_app.command(name="exec", usage="Usage: emberkeep connect exec [OPTIONS] COMMAND [ARGUMENTS...]")
def execute(
    *words: Words,
    name: Annotated[str, Parameter(metavar="NAME")] = _NAME,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Run a command whose Spark sessions are at a Spark Connect server, and return its exit code.

    The command finds the server's address in $SPARK_REMOTE. The address exists as long as the command runs.

    Parameters
    ----------
    name
        Name or job id of the server.
    """
    if not words:
        raise InvalidInput("no command is given", hint="for example: emberkeep connect exec jupyter lab")

    async def run(client: RestClient) -> int:
        async with _serving(client, name, 0) as (_, address):
            return await _run(words, address)

    with _hint_how_to_start():
        return with_client(cluster.require(), run)


async def _run(words: tuple[str, ...], address: str) -> int:
    """Run the command to its end, whatever signals arrive, and return its exit code as a shell does. Raises Fatal."""
    from emberkeep.cli.interrupts import to_catch

    loop = asyncio.get_running_loop()
    early: list[signal.Signals] = []  # before there is a process
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # Ctrl-C reaches the command, too, which decides what it means
    passed_on = to_catch(_PASSED_ON)
    for number in passed_on:
        loop.add_signal_handler(number, early.append, number)
    try:
        process = await asyncio.create_subprocess_exec(*words, env={**os.environ, "SPARK_REMOTE": address})
    except OSError as error:
        raise Fatal(f"cannot run {words[0]!r}: {error.strerror}") from None

    def pass_on(number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            process.send_signal(number)

    for number in passed_on:
        loop.add_signal_handler(number, pass_on, number)
    for number in early:
        pass_on(number)
    code = await process.wait()
    return code if code >= 0 else 128 - code


@asynccontextmanager
async def _serving(client: RestClient, server: str, port: int) -> AsyncIterator[tuple[JobId, str]]:
    """Serve a server's address within the context; yield the server's job id and the address."""
    from emberkeep.client.doors.connect_address import ConnectAddress, first_token
    from emberkeep.client.job_reference import resolve_job

    job_id = await resolve_job(client, server)
    open_tunnel = partial(client.connect.tunnel, job_id)
    token = await first_token(open_tunnel, _START_SECONDS)
    async with ConnectAddress(open_tunnel, say).serving(port) as served:
        yield job_id, f"sc://localhost:{served}/;token={quote(token, safe='')}"


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
