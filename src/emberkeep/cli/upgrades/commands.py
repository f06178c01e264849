"""``emberkeep upgrade``: move a job to new code, watch it, and go back if it is not good."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from emberkeep.cli.cluster_options import DEFAULT_CLUSTER, ClusterOptions
from emberkeep.cli.completion.candidates import first_job
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.jobs.stop import Timeout, milliseconds, milliseconds_of
from emberkeep.cli.jobs.submit_options import DEFAULT_SUBMIT, JobOptions, SubmitOptions, Words
from emberkeep.cli.jobs.upgrade_display import UpgradeDisplay, continues
from emberkeep.cli.messages import print_line, say, say_error
from emberkeep.cli.parameters import Module, Output, SavepointTarget, Secrets
from emberkeep.cli.tables import OutputFormat, print_data
from emberkeep.cli.upgrades.new_code import refuse_options_of_new_code
from emberkeep.cli.views.asked import with_client_asking

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from emberkeep.base.ids import JobId
    from emberkeep.cli.views.asked import Asked
    from emberkeep.client.rest_client import RestClient
    from emberkeep.client.submission.preparation import PreparedJob
    from emberkeep.client.upgrades.upgrading import UpgradeChoice
    from emberkeep.protocol.upgrades.rest_upgrades import UpgradeInfo

_BATCHES = 3
_WITHIN = "10min"
_RESTARTS = 2


def upgrade(
    *words: Annotated[Words, Parameter(completer=first_job)],
    batches: Annotated[int | None, Parameter(metavar="N")] = None,
    within: Annotated[str | None, Parameter(metavar="DURATION")] = None,
    restarts: Annotated[int | None, Parameter(metavar="N")] = None,
    cancel: Annotated[bool, Parameter(negative=())] = False,
    detach: Annotated[bool, Parameter(negative=())] = False,
    savepoint_path: SavepointTarget = None,
    timeout: Timeout = None,
    module: Module = None,
    secret: Secrets = (),
    spark: SubmitOptions = DEFAULT_SUBMIT,
    output: Output = OutputFormat.TABLE,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Upgrade a job to new code: stop it with a savepoint, start the new code from there, and watch it.

    If the new code is not good in time, the old code is started again from the same savepoint.
    The JobManager does all this. Ctrl-C ends the waiting, not the upgrade.
    With JOB alone, follow the job's newest upgrade, or show how that upgrade has ended.
    The exit code is 0 if the new code runs, and 1 if not.
    With --cancel, it is 0 if the old code runs, and 1 if not, or if it was too late.
    The other options are those of `emberkeep submit`. Without --name, the job keeps its name.

    Parameters
    ----------
    batches
        Micro-batches that each streaming query of the new code must commit. Default: 3.
    within
        Time in which the queries must do so, such as 90s or 1h. Default: 10min.
        A query that waits for data at the end of this time is good as well.
    restarts
        How often the new job's driver may be restarted in this time. Default: 2.
    cancel
        Go back to the old code.
    detach
        Return as soon as the request is durable; print the upgrade's id. With JOB alone, do not wait.
    timeout
        How long the running micro-batches may take to end, such as 90s or 10min.
        After that the upgrade fails and the job continues.
        Default: the job's or cluster's execution.stop.batch-timeout.
    """
    from emberkeep.base.errors import InvalidInput

    if not words:
        raise InvalidInput("no job was given", hint="emberkeep upgrade JOB [OPTIONS] SCRIPT [ARGUMENTS...]")
    job = words[0]
    if cancel and (len(words) > 1 or module is not None):
        raise InvalidInput("--cancel takes a job and no script", field="--cancel")
    if len(words) == 1 and module is None:
        own = {"batches": batches, "within": within, "restarts": restarts, "timeout": timeout}
        refuse_options_of_new_code({**own, "savepoint_path": savepoint_path, "secret": secret or None}, spark)
        ask = _cancel if cancel else _show
        return _run(job, ask, cancel=cancel, detach=detach, output=output, cluster=cluster)
    if spark.name is None:
        name = with_client_asking(cluster.require(), lambda client, _: _name(client, job))
        spark = dataclasses.replace(spark, name=name)
    choice = _choice(batches, within, restarts, savepoint_path, timeout)
    prepared = _prepared(words[1:], JobOptions(module=module, secret=secret), spark, cluster)
    ask = functools.partial(_begin, prepared=prepared, choice=choice)
    return _run(job, ask, cancel=False, detach=detach, output=output, cluster=cluster)


async def _name(client: RestClient, job: str) -> str:
    from emberkeep.client.job_reference import resolve_job

    return (await client.job(await resolve_job(client, job))).name


def _choice(
    batches: int | None, within: str | None, restarts: int | None, savepoint_path: str | None, timeout: str | None
) -> UpgradeChoice:
    from secrets import token_hex

    from emberkeep.client.calls.savepoints import savepoint_location
    from emberkeep.client.upgrades.upgrading import UpgradeChoice

    return UpgradeChoice(
        upgrade_id=token_hex(16),
        batches=_BATCHES if batches is None else batches,
        within_ms=milliseconds_of("--within", _WITHIN if within is None else within),
        restarts=_RESTARTS if restarts is None else restarts,
        target=None if savepoint_path is None else savepoint_location(savepoint_path),
        limit_ms=milliseconds(timeout),
    )


def _prepared(words: tuple[str, ...], job: JobOptions, spark: SubmitOptions, cluster: ClusterOptions) -> PreparedJob:
    from emberkeep.cli.jobs.preparing import prepare_job
    from emberkeep.client.submission.job_options import refuse_cluster_options

    refuse_cluster_options(cluster.definitions)
    return prepare_job(words, job, spark, cluster, quiet=False)


def _run(
    job: str,
    ask: Callable[[RestClient, JobId, Asked], Awaitable[UpgradeInfo]],
    *,
    cancel: bool,
    detach: bool,
    output: OutputFormat,
    cluster: ClusterOptions,
) -> int:
    from emberkeep.client.job_reference import resolve_job

    async def work(client: RestClient, asked: Asked) -> UpgradeInfo:
        state = await ask(client, await resolve_job(client, job), asked)
        asked.text = continues(state)
        if detach or state.phase.is_final:
            return state
        from emberkeep.client.upgrades.upgrading import until_ended

        return await until_ended(client, state.old_job, UpgradeDisplay(say).show, say)

    state = with_client_asking(cluster.require(), work)
    return _told_cancelled(state, output) if cancel else _told(state, output)


async def _show(client: RestClient, job_id: JobId, _asked: Asked) -> UpgradeInfo:
    return await client.upgrades.of_job(job_id)


async def _cancel(client: RestClient, job_id: JobId, asked: Asked) -> UpgradeInfo:
    asked.text = f"the upgrade may be cancelled: `emberkeep upgrade {job_id[:8]}` shows it"
    return await client.upgrades.cancel(job_id)


async def _begin(
    client: RestClient, job_id: JobId, asked: Asked, prepared: PreparedJob, choice: UpgradeChoice
) -> UpgradeInfo:
    from emberkeep.cli.jobs.upload_display import UploadDisplay
    from emberkeep.client.upgrades.upgrading import begun

    if not (await client.job(job_id)).emberkeep.queries:
        say(f"warning: job {job_id[:8]} runs no streaming query that could be saved")
    asked.text = f"the upgrade may begin: `emberkeep upgrade {job_id[:8]}` shows it"
    state = await begun(client, job_id, prepared, choice, UploadDisplay(say, quiet=False), say)
    say(f"upgrade {state.upgrade_id[:8]} of job {job_id[:8]} begins; Ctrl-C ends only the waiting")
    return state


def _told(state: UpgradeInfo, output: OutputFormat) -> int:
    from emberkeep.jobs.upgrades.model import UpgradePhase

    if output.is_data:
        print_data(state, output)
    if not state.phase.is_final:
        if not output.is_data:
            say(state.text)
            print_line(state.upgrade_id)
        return ExitCode.OK
    if state.phase is UpgradePhase.DONE:
        say(state.text)
        if not output.is_data:
            print_line(state.new_job)
        return ExitCode.OK
    say_error(f"the upgrade has failed: {state.text}", _hint(state))
    return ExitCode.FAILED


def _told_cancelled(state: UpgradeInfo, output: OutputFormat) -> int:
    """Tell how far the way back has come. The old code is what the user asked for."""
    from emberkeep.jobs.upgrades.model import UpgradePhase

    if output.is_data:
        print_data(state, output)
    if state.phase is UpgradePhase.DONE:  # the new job has finished before it was cancelled
        say_error(f"it was too late: {state.text}", None)
        return ExitCode.FAILED
    if state.phase is UpgradePhase.FAILED:
        say_error(f"the upgrade has failed: {state.text}", _hint(state))
        return ExitCode.FAILED
    say(f"the upgrade is cancelled: {state.text}")
    if not output.is_data:
        running = {UpgradePhase.RETURNED: state.back_job, UpgradePhase.UNCHANGED: state.old_job}
        print_line(running.get(state.phase, state.upgrade_id))
    return ExitCode.OK


def _hint(state: UpgradeInfo) -> str | None:
    from emberkeep.jobs.upgrades.model import UpgradePhase

    if state.phase is UpgradePhase.RETURNED:
        return f"`emberkeep logs {state.new_job[:8]}` shows what the new code did"
    if state.phase is UpgradePhase.FAILED and state.savepoint:
        return f"`emberkeep savepoint restore {state.savepoint} app.py` starts a version of your choice"
    return None
