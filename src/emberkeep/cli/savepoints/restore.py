"""``emberkeep savepoint restore``: check a savepoint, then submit a job that starts from it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from emberkeep.cli.cluster_options import DEFAULT_CLUSTER, ClusterOptions, with_client
from emberkeep.cli.completion.candidates import first_savepoint
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.jobs.commands import submit
from emberkeep.cli.jobs.submit_options import DEFAULT_SUBMIT, JobOptions, Quiet, SubmitOptions, Words
from emberkeep.cli.messages import print_line, say
from emberkeep.cli.parameters import JobNamespace, Module, Secrets
from emberkeep.cli.stopwatch import Stopwatch

if TYPE_CHECKING:
    from emberkeep.client.rest_client import RestClient
    from emberkeep.protocol.rest_savepoints import SavepointCheck, SavepointInfo


def restore(
    *words: Annotated[Words, Parameter(completer=first_savepoint)],
    module: Module = None,
    namespace: JobNamespace = "",
    secret: Secrets = (),
    quiet: Quiet = False,
    spark: SubmitOptions = DEFAULT_SUBMIT,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Check a savepoint, then submit a script that starts from it. Print the job id.

    The cluster reads the whole savepoint first. If a file is missing or was changed, nothing is submitted.
    The options are those of `emberkeep submit`. Without --name, the job has the name of the savepoint's job.
    The script may differ from the one that made the savepoint.

    Parameters
    ----------
    quiet
        Print only the job id.
    """
    from emberkeep.base.errors import InvalidInput
    from emberkeep.client.calls.savepoints import savepoint_location
    from emberkeep.client.savepoint_verification import verified

    if not words or (module is None and len(words) < 2):
        missing = "script" if words else "savepoint"
        raise InvalidInput(
            f"no {missing} was given", hint="emberkeep savepoint restore PATH [OPTIONS] SCRIPT [ARGUMENTS...]"
        )
    location = savepoint_location(words[0])

    async def look(client: RestClient) -> tuple[SavepointCheck, SavepointInfo | None, list[str]]:
        check = await verified(client, location, _tell_nothing if quiet else tell_read)
        if check.problems:
            return check, None, []
        info = await client.savepoints.manifest(location)
        return check, info, await _warnings(client, info)

    watch = Stopwatch()
    check, info, warnings = with_client(cluster.require(), look)
    if info is None:
        for problem in check.problems:
            print_line(problem)
        say(f"{location} is damaged: nothing was submitted; `emberkeep savepoint list` shows others")
        return ExitCode.FAILED
    if not quiet:
        _tell(info, check, watch)
    for warning in (*check.warnings, *warnings):
        say(f"warning: {warning}")
    named = spark if spark.name is not None else dataclasses.replace(spark, name=info.job_name)
    job = JobOptions(module=module, from_savepoint=location, namespace=namespace, secret=secret)
    return submit(*words[1:], job=job, quiet=quiet, spark=named, cluster=cluster)


def tell_read(files: int, files_total: int, size: int, size_total: int) -> None:
    """Print how much of a savepoint was read."""
    from emberkeep.cli.wording import byte_count, counted

    say(f"read {files} of {counted(files_total, 'file')}, {byte_count(size)} of {byte_count(size_total)}")


def _tell_nothing(*_: int) -> None:
    return


def _tell(info: SavepointInfo, check: SavepointCheck, watch: Stopwatch) -> None:
    from emberkeep.cli.wording import byte_count, counted, timestamp

    say(f"savepoint of {info.job_name}, made {timestamp(info.created)}")
    for query in info.queries:
        say(f"{query.name or query.key}: continues after batch {query.batch_id}")
    say(f"{counted(check.files, 'file')}, {byte_count(check.size)}: all unchanged, {watch}")


async def _warnings(client: RestClient, info: SavepointInfo) -> list[str]:
    """Return reasons not to start from the savepoint now."""
    from emberkeep.cli.wording import SHORT_ID, timestamp

    found = []
    job = next((job for job in await client.jobs() if job.jid == info.job_id), None)
    if job is not None and not job.state.is_globally_terminal:
        found.append(
            f"the savepoint's job, {info.job_id[:SHORT_ID]} ({info.job_name}), is {job.state.value}: both jobs will "
            "read the same input"
        )
    made = [each for each in (await client.savepoints.all()).savepoints if each.job_id == info.job_id]
    newer = max(made, key=lambda each: each.created, default=None)
    if newer is not None and newer.created > info.created and newer.trigger_id != info.trigger_id:
        found.append(
            f"that job has a newer savepoint, {timestamp(newer.created)}: {newer.path}; outputs that are ahead of the "
            "older one refuse it, or get rows twice"
        )
    return found
