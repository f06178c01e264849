"""``savepoint create|list|show|verify|restore|dispose``."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from cyclopts import App

from emberkeep.cli.cluster_options import DEFAULT_CLUSTER, ClusterOptions, with_client
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.jobs.stop import Timeout, milliseconds, with_client_waiting
from emberkeep.cli.messages import print_line, say
from emberkeep.cli.parameters import CompletedJob, Detach, Job, Output, SavepointPath, SavepointTarget
from emberkeep.cli.savepoints.restore import restore, tell_read
from emberkeep.cli.stopwatch import Stopwatch
from emberkeep.cli.tables import OutputFormat, print_data, print_fields, print_table
from emberkeep.cli.views.viewing import DEFAULT_VIEWING, Viewing
from emberkeep.cli.views.viewing import show as show_view

if TYPE_CHECKING:
    from emberkeep.base.ids import JobId
    from emberkeep.client.rest_client import RestClient
    from emberkeep.protocol.rest_savepoints import SavepointEntry, SavepointInfo, TriggerResponse

savepoint_app = App(
    name="savepoint", help="Make, list, verify and delete savepoints of jobs; start a job from one.", sort_key=14
)
savepoint_app.command(
    restore,
    usage="Usage: "
    + "\n       ".join(
        f"emberkeep savepoint restore PATH [OPTIONS] {what} [ARGUMENTS...]" for what in ("SCRIPT", "-m MODULE")
    ),
)


@savepoint_app.command
def create(
    job: Job,
    /,
    *,
    savepoint_path: SavepointTarget = None,
    timeout: Timeout = None,
    detach: Detach = False,
    output: Output = OutputFormat.TABLE,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Make a savepoint of a job, which continues to run. Print the savepoint's path.

    Parameters
    ----------
    timeout
        How long the running micro-batches may take to end, such as 90s or 10min.
        After that no savepoint is made.
        Default: the job's or cluster's execution.stop.batch-timeout.
    """
    limit = milliseconds(timeout)

    def ask(client: RestClient, job_id: JobId, target: str | None) -> Awaitable[TriggerResponse]:
        return client.savepoints.create(job_id, target=target, limit_ms=limit)

    return with_client_waiting(job, savepoint_path, ask, detach=detach, output=output, cluster=cluster)


@savepoint_app.command(name="list")
def list_savepoints(
    job: CompletedJob | None = None, /, *, viewing: Viewing = DEFAULT_VIEWING, cluster: ClusterOptions = DEFAULT_CLUSTER
) -> int:
    """List the savepoints of all jobs that the cluster knows, newest first.

    Parameters
    ----------
    job
        List only the savepoints of this job: job id, a prefix of one, or a job name.
    """
    from emberkeep.client.job_reference import resolve_job

    async def read(client: RestClient) -> list[SavepointEntry]:
        wanted = None if job is None else await resolve_job(client, job)
        return [each for each in (await client.savepoints.all()).savepoints if wanted in (None, each.job_id)]

    def text(entries: list[SavepointEntry], is_wide: bool) -> None:
        from emberkeep.cli.wording import byte_count, shown_id, timestamp

        rows = [
            (
                timestamp(each.created),
                shown_id(each.job_id, is_wide),
                each.job_name,
                each.job_status.value,
                _kind(each),
                "-" if each.size < 0 else byte_count(each.size),
                _verified(each),
                each.path,
            )
            for each in entries
        ]
        if rows:
            columns = ("CREATED", "JOB ID", "NAME", "STATE", "KIND", "SIZE", "VERIFIED", "PATH")
            print_table(columns, rows, ("VERIFIED", "SIZE", "STATE", "KIND"))
        else:
            say("no savepoints yet; make one with `emberkeep savepoint create JOB`")

    show_view(cluster, viewing, read, text)
    return ExitCode.OK


@savepoint_app.command
def show(
    path: SavepointPath, /, *, viewing: Viewing = DEFAULT_VIEWING, cluster: ClusterOptions = DEFAULT_CLUSTER
) -> int:
    """Show the contents of a savepoint: job, queries, batches, offsets, watermarks, size."""
    from emberkeep.client.calls.savepoints import savepoint_location

    location = savepoint_location(path)
    show_view(
        cluster, viewing, lambda client: client.savepoints.manifest(location), lambda info, _is_wide: _print(info)
    )
    return ExitCode.OK


@savepoint_app.command
def verify(
    path: SavepointPath, /, *, output: Output = OutputFormat.TABLE, cluster: ClusterOptions = DEFAULT_CLUSTER
) -> int:
    """Read all of a savepoint and compare each file with the manifest. Exit code 1 if a file is missing or differs."""
    from emberkeep.cli.wording import byte_count, counted
    from emberkeep.client.calls.savepoints import savepoint_location
    from emberkeep.client.savepoint_verification import verified

    location, watch = savepoint_location(path), Stopwatch()
    check = with_client(cluster.require(), lambda client: verified(client, location, tell_read))
    if output.is_data:
        print_data(check, output)
    elif check.problems:
        for problem in check.problems:
            print_line(problem)
    else:
        for warning in check.warnings:
            say(f"warning: {warning}")
        say(f"{counted(check.files, 'file')}, {byte_count(check.size)}: all unchanged, {watch}")
    return ExitCode.FAILED if check.problems else ExitCode.OK


@savepoint_app.command
def dispose(path: SavepointPath, /, *, cluster: ClusterOptions = DEFAULT_CLUSTER) -> int:
    """Delete a savepoint.

    A directory without a savepoint's manifest is refused. So is a savepoint that an unfinished job has started from.
    Files that the manifest does not name stay.
    """
    from emberkeep.client.calls.savepoints import savepoint_location

    location, watch = savepoint_location(path), Stopwatch()
    left = with_client(cluster.require(), lambda client: client.savepoints.dispose(location))
    say(f"{location} is deleted {watch}")
    if left:
        say(f"not deleted, as the savepoint's manifest does not name it: {', '.join(left)}")
    return ExitCode.OK


def _kind(entry: SavepointEntry) -> str:
    if entry.retired >= 0:
        return "being deleted"
    return entry.kind or ("periodic" if entry.periodic else "on request")


def _verified(entry: SavepointEntry) -> str:
    """Return what the newest verification has found; "-" if none was made since this JobManager leads."""
    from emberkeep.cli.wording import timestamp

    found = entry.verification
    if found is None:
        return "-"
    return f"{'damaged' if found.problems else 'intact'}, {timestamp(found.time)}"


def _print(info: SavepointInfo) -> None:
    from emberkeep.cli.wording import RESTORE_NEEDS_MORE, byte_count, counted, restore_line, timestamp

    print_fields(
        [
            ("Savepoint", info.path),
            ("Job", f"{info.job_name} ({info.job_id})"),
            ("Made by", f"{info.procedure.value}, attempt {info.attempt}, request {info.trigger_id}"),
            ("Created", timestamp(info.created)),
            ("Versions", f"Spark {info.spark_version}, Emberkeep {info.emberkeep_version}"),
            ("Content", f"{counted(len(info.files), 'file')}, {byte_count(info.size)}"),
            ("Functions", ", ".join(info.functions)),
            ("Manifest", f"SHA-256 {info.manifest_sha256}"),
        ]
    )
    if info.queries:
        print_line("\nStreaming queries")
        print_table(
            ("NAME", "BATCH", "WATERMARK", "DRAINED FROM", "SINK", "MODE", "FILES", "SIZE"),
            [
                (
                    query.name or query.key,
                    str(query.batch_id) if query.batch_id >= 0 else "-",
                    timestamp(query.watermark) if query.watermark else "-",
                    str(query.drained_from) if query.drained_from >= 0 else "-",
                    f"{query.sink} {query.target}".strip(),
                    query.output_mode,
                    str(query.files),
                    byte_count(query.size),
                )
                for query in info.queries
            ],
            ("FILES", "MODE", "DRAINED FROM"),
        )
    print_line("\nStart the job from it")
    print_line(restore_line(info.path, info.restore_command))
    if not info.restore_command:
        say(RESTORE_NEEDS_MORE)
