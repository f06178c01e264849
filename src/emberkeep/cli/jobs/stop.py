"""``emberkeep stop``, and what it shares with ``savepoint create``: follow a request to its end."""

from __future__ import annotations

import shlex
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from emberkeep.cli.cluster_options import DEFAULT_CLUSTER, ClusterOptions
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.messages import print_line, say, say_error
from emberkeep.cli.parameters import Detach, Job, Output, SavepointTarget
from emberkeep.cli.tables import OutputFormat, print_data

if TYPE_CHECKING:
    from emberkeep.base.ids import JobId
    from emberkeep.client.rest_client import RestClient
    from emberkeep.protocol.rest_savepoints import SavepointStatus, TriggerResponse

_SHOW_AGAIN = 2.0  # seconds before the first line that differs in numbers only; doubles with each such line
_SHOW_AT_LEAST = 30.0

Timeout = Annotated[str | None, Parameter(name="--timeout", metavar="DURATION")]


def stop(
    job: Job,
    /,
    *,
    drain: Annotated[bool, Parameter(negative=())] = False,
    savepoint_path: SavepointTarget = None,
    timeout: Timeout = None,
    detach: Detach = False,
    output: Output = OutputFormat.TABLE,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Stop a job between two micro-batches, with a savepoint to start from again. Print the savepoint's path.

    The script continues after its awaits, and ends by itself or after execution.stop.script-timeout.
    Then the job is FINISHED. Ctrl-C ends the waiting, not the stop.

    Parameters
    ----------
    drain
        First write out everything that waits for later events: windows, sessions, joins, timers.
        Input that was not read yet stays unread.
    timeout
        How long the running micro-batches may take to end, such as 90s or 10min.
        After that the stop fails and the job continues.
        Default: the job's or cluster's execution.stop.batch-timeout.
    """
    limit = milliseconds(timeout)

    def ask(client: RestClient, job_id: JobId, target: str | None) -> Awaitable[TriggerResponse]:
        return client.savepoints.stop(job_id, drain=drain, target=target, limit_ms=limit)

    return with_client_waiting(job, savepoint_path, ask, detach=detach, output=output, cluster=cluster)


def milliseconds(text: str | None) -> int | None:
    """Return the duration of ``--timeout`` in milliseconds; None without ``--timeout``. Raises InvalidInput."""
    return None if text is None else milliseconds_of("--timeout", text)


def milliseconds_of(option: str, text: str) -> int:
    """Return the duration that an option has, in milliseconds. Raises InvalidInput."""
    from emberkeep.base.configuration.option_types import duration
    from emberkeep.base.errors import InvalidInput

    try:
        return int(duration(text) * 1000)
    except ValueError as error:
        raise InvalidInput(f"{option}: {text!r} is not valid: {error}", field=option) from None


def with_client_waiting(
    job: str,
    savepoint_path: str | None,
    ask: Callable[[RestClient, JobId, str | None], Awaitable[TriggerResponse]],
    *,
    detach: bool,
    output: OutputFormat,
    cluster: ClusterOptions,
) -> int:
    """Make a request about a job with ``ask``, print its progress and result, and return the exit code.

    ``detach``: return once the request is durable. Ctrl-C ends the waiting, not the request.
    """
    from emberkeep.cli.views.asked import Asked, with_client_asking
    from emberkeep.cli.wording import SHORT_ID
    from emberkeep.client.calls.savepoints import savepoint_location
    from emberkeep.client.job_reference import resolve_job
    from emberkeep.client.savepoint_wait import asked_when_free, until_completed

    target = None if savepoint_path is None else savepoint_location(savepoint_path)

    async def work(client: RestClient, asked: Asked) -> int:
        job_id = await resolve_job(client, job)
        look = f"`emberkeep info {job_id[:SHORT_ID]}` shows"
        asked.text = f"the request may be carried out: {look} it"
        trigger = await asked_when_free(client, job_id, lambda: ask(client, job_id, target), say)
        asked.text = f"request {trigger.request_id} continues: {look} its progress"
        if trigger.emberkeep is not None:
            say(f"job {job_id[:SHORT_ID]}: the savepoint goes below {trigger.emberkeep.target_directory}")
        if detach:
            return _detached(trigger, output)
        display = ProcedureDisplay()
        state = await until_completed(client, job_id, trigger.request_id, display.show, say)
        code = _ended(state, output)
        if state.emberkeep.location:
            await _say_how_to_restore(client, state.emberkeep.location)
        if state.emberkeep.warning:
            say(f"warning: {state.emberkeep.warning}")
        return code

    return with_client_asking(cluster.require(), work)


async def _say_how_to_restore(client: RestClient, location: str) -> None:
    """Say the command that starts a job from the savepoint, and if it is incomplete.

    Warn if the JobManager does not find the savepoint, which may then be only on a disk of the driver's machine.
    """
    from emberkeep.base.errors import Absent, EmberkeepError, RetryLater
    from emberkeep.cli.wording import RESTORE_NEEDS_MORE, restore_line

    command, is_found, lacks = "", True, RESTORE_NEEDS_MORE
    try:
        command = (await client.savepoints.manifest(location)).restore_command
    except Absent:
        is_found = False
    except EmberkeepError as error:  # the savepoint is complete all the same
        lacks = RESTORE_NEEDS_MORE
        if isinstance(error, RetryLater):
            show = f"`emberkeep savepoint show {shlex.quote(location)}`"
            lacks += f"; {show} prints the whole command once the JobManager answers"
        lacks += f" ({error.message})"
    say(f"start from it with `{restore_line(location, command)}`")
    if not command:
        say(lacks)
    if not is_found:
        say(
            f"warning: the JobManager does not find {location}, which may be on a disk of the driver's machine alone. "
            "Copy the savepoint to storage that all nodes can read before you start from it, and use such storage for "
            "the next one"
        )


def _detached(trigger: TriggerResponse, output: OutputFormat) -> int:
    if output.is_data:
        print_data(trigger, output)
    else:
        print_line(trigger.request_id)
    return ExitCode.OK


class ProcedureDisplay:
    """Print a line for each new phase; for a change in numbers only, at intervals that grow from 2 s to 30 s."""

    def __init__(self) -> None:
        self._shown = ""
        self._kind = ""
        self._shown_at = 0.0
        self._pause = _SHOW_AGAIN

    def show(self, state: SavepointStatus) -> None:
        from emberkeep.cli.wording import procedure_text
        from emberkeep.protocol.rest_savepoints import OperationStatus

        if state.status.id is OperationStatus.COMPLETED:
            return  # printed with its result
        text, kind = procedure_text(state.emberkeep), str(state.emberkeep.phase)
        now = time.monotonic()
        if text == self._shown or (kind == self._kind and now - self._shown_at < self._pause):
            return
        self._pause = min(2 * self._pause, _SHOW_AT_LEAST) if kind == self._kind else _SHOW_AGAIN
        self._shown, self._kind, self._shown_at = text, kind, now
        say(text)


def _ended(state: SavepointStatus, output: OutputFormat) -> int:
    from emberkeep.cli.wording import duration
    from emberkeep.jobs.model import JobStatus

    if output.is_data:
        print_data(state, output)
    own, outcome = state.emberkeep, state.operation
    failure = None if outcome is None else outcome.failure_cause
    if failure is not None:
        say_error(f"no savepoint was made: {failure.stack_trace}", None)
        return ExitCode.FAILED
    took = f" after {duration(own.duration)}" if own.duration >= 0 else ""
    ends = own.procedure is not None and own.procedure.stops_job
    say(f"the job is {own.job_status.value}{took}" if ends else f"the savepoint is complete{took}; the job continues")
    if not output.is_data:
        print_line(own.location)
    return ExitCode.OK if not ends or own.job_status is JobStatus.FINISHED else ExitCode.FAILED
