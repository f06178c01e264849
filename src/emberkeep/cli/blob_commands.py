"""``blob list|show|verify|gc``: inspect, check and clean up the BLOB store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from emberkeep.base.errors import Absent, InvalidInput
from emberkeep.cli.cluster_options import DEFAULT_CLUSTER, ClusterOptions, with_client
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.messages import print_line, say
from emberkeep.cli.parameters import CompletedJob, Job, Output
from emberkeep.cli.tables import OutputFormat, print_data, print_fields, print_table
from emberkeep.cli.views.viewing import DEFAULT_VIEWING, Viewing, show

if TYPE_CHECKING:
    from emberkeep.client.rest_client import RestClient
    from emberkeep.protocol.rest_blobs import BlobCheck, BlobInfo, BlobList

blob_app = App(name="blob", help="Inspect and check the BLOB store: job files, off-loaded messages, logs.", sort_key=22)
_SHOWN_KEY = 14  # characters: the kind and 12 hex digits
_SHOWN_REFERENCES = 3


@blob_app.command(name="list")
def list_blobs(
    job: Job | None = None, /, *, viewing: Viewing = DEFAULT_VIEWING, cluster: ClusterOptions = DEFAULT_CLUSTER
) -> int:
    """List all BLOBs, or those of one job."""
    from emberkeep.client.job_reference import resolve_job

    async def read(client: RestClient) -> BlobList:
        return await client.blobs.all(None if job is None else await resolve_job(client, job))

    def text(found: BlobList, is_wide: bool) -> None:
        from emberkeep.cli.wording import byte_count, counted

        if not found.blobs:
            say("no BLOBs are stored")
            return
        columns = ("JOB ID", "KEY", "SIZE", "STORES", "STATE", "HELD BY")
        print_table(columns, [_row(blob, is_wide) for blob in found.blobs])
        say(f"{counted(len(found.blobs), 'BLOB')}, {byte_count(found.bytes)}")

    show(cluster, viewing, read, text)
    return ExitCode.OK


@blob_app.command(name="show")
def show_blob(
    job: Job,
    key: str,
    /,
    *,
    save: Annotated[str | None, Parameter(metavar="FILE")] = None,
    output: Output = OutputFormat.TABLE,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Show one BLOB, or save its content.

    Parameters
    ----------
    key
        The BLOB's key, the beginning of the key, or the beginning of its SHA-256.
    save
        Verify the content and save it to this file.
    """
    from emberkeep.blobs.model import parse_blob_key
    from emberkeep.client.job_reference import resolve_job

    async def read(client: RestClient) -> tuple[BlobInfo, int]:
        found = _choose(key, (await client.blobs.all(await resolve_job(client, job))).blobs)
        if save is None:
            return found, 0
        return found, await client.blobs.download(found.jobid, parse_blob_key(found.key), Path(save))

    blob, saved = with_client(cluster.require(), read)
    if output.is_data:
        print_data(blob, output)
    elif save is None:
        _print_blob(blob)
    if save is not None:
        say(f"{save}: {saved} bytes, SHA-256 verified")
    return ExitCode.OK


@blob_app.command
def verify(
    job: CompletedJob | None = None,
    /,
    *,
    output: Output = OutputFormat.TABLE,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Read every BLOB in both stores and repair damaged copies. Exit code 1 if one stays damaged.

    Parameters
    ----------
    job
        Read only the BLOBs of this job: job id, a prefix of one, or a job name.
    """
    from emberkeep.cli.wording import byte_count
    from emberkeep.client.job_reference import resolve_job

    async def check(client: RestClient) -> BlobCheck:
        return await client.blobs.verify(None if job is None else await resolve_job(client, job))

    found = with_client(cluster.require(), check)
    damaged = [problem for problem in found.problems if not problem.healed]
    if output.is_data:
        print_data(found, output)
    else:
        for problem in found.problems:
            end = "healed" if problem.healed else "DAMAGED"
            print_line(f"{end}: {problem.key} of job {problem.jobid} in {problem.store}: {problem.problem}")
        say(f"{found.checked} copies, {byte_count(found.bytes)} read; {len(damaged)} damaged")
    return ExitCode.FAILED if damaged else ExitCode.OK


@blob_app.command
def gc(*, output: Output = OutputFormat.TABLE, cluster: ClusterOptions = DEFAULT_CLUSTER) -> int:
    """Run the staged clean-up once, now: delete BLOBs that are due, stage those that are unreferenced."""
    from emberkeep.cli.wording import byte_count, counted

    async def collect(client: RestClient) -> tuple[int, BlobList, BlobList]:
        before = await client.blobs.all()
        deleted = (await client.blobs.collect()).deleted
        return deleted, before, await client.blobs.all()

    deleted, before, after = with_client(cluster.require(), collect)
    left = {(blob.jobid, blob.key) for blob in after.blobs}
    gone = [blob for blob in before.blobs if (blob.jobid, blob.key) not in left]
    staged = sum(blob.state in ("staged", "deleting") for blob in after.blobs)
    if output.is_data:
        print_data({"deleted": deleted, "gone": gone, "staged": staged}, output)
    else:
        for blob in gone:
            print_line(f"{blob.key} of job {blob.jobid}, {byte_count(blob.size)}")
        say(f"{counted(deleted, 'BLOB')} deleted; {staged} to be deleted by one of the next two clean-ups")
    return ExitCode.OK


def _choose(key: str, blobs: list[BlobInfo]) -> BlobInfo:
    matches = [blob for blob in blobs if key and (blob.key.startswith(key) or blob.key[2:].startswith(key))]
    if not matches:
        raise Absent(f"the job has no BLOB {key!r}", hint="`emberkeep blob list JOB` shows the job's BLOBs")
    if len(matches) > 1:
        raise InvalidInput(
            f"{len(matches)} BLOBs begin with {key!r}: {', '.join(blob.key[:_SHOWN_KEY] for blob in matches[:5])}",
            field="key",
            hint="give more of the key",
        )
    return matches[0]


def _row(blob: BlobInfo, is_wide: bool) -> tuple[str, ...]:
    from emberkeep.cli.wording import byte_count, shown_id

    shown = len(blob.references) if is_wide else _SHOWN_REFERENCES
    more = len(blob.references) - shown
    held = ", ".join(blob.references[:shown]) + (f" and {more} more" if more > 0 else "")
    key = blob.key if is_wide else blob.key[:_SHOWN_KEY]
    return (shown_id(blob.jobid, is_wide), key, byte_count(blob.size), _stores(blob), blob.state, held or "-")


def _stores(blob: BlobInfo) -> str:
    return " ".join(name for name, there in (("local", blob.local), ("ha", blob.ha)) if there) or "-"


def _print_blob(blob: BlobInfo) -> None:
    kind = "permanent" if blob.key.startswith("p-") else "transient"
    print_fields(
        [
            ("Job", blob.jobid),
            ("Key", f"{blob.key} ({kind})"),
            ("Size", f"{blob.size} bytes"),
            ("Stores", _stores(blob)),
            ("State", blob.state),
            ("Held by", "\n".join(blob.references) or "no holder"),
        ]
    )
