"""``storage status|adopt|purge``: the owner of the shared storage, and the data there that no job needs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from emberkeep.base.errors import InvalidInput
from emberkeep.cli.cluster.other_store import print_of_another_store
from emberkeep.cli.cluster_options import DEFAULT_CLUSTER, ClusterOptions, with_client
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.messages import say, say_error
from emberkeep.cli.parameters import Output
from emberkeep.cli.tables import OutputFormat, print_data, print_fields, print_table
from emberkeep.cli.views.viewing import DEFAULT_VIEWING, Viewing, show

if TYPE_CHECKING:
    from emberkeep.protocol.rest_storage import StorageInfo

storage_app = App(
    name="storage", help="Show or settle who owns the shared storage, and delete data that no job needs.", sort_key=23
)


@storage_app.command
def status(*, viewing: Viewing = DEFAULT_VIEWING, cluster: ClusterOptions = DEFAULT_CLUSTER) -> int:
    """Show who owns the shared storage, and which data there no job needs. Exit code 1 if the owner is not settled."""
    found = show(cluster, viewing, lambda client: client.storage.status(), lambda found, _is_wide: _print(found))
    return ExitCode.OK if found is None or found.owned else ExitCode.FAILED


@storage_app.command
def adopt(*, output: Output = OutputFormat.TABLE, cluster: ClusterOptions = DEFAULT_CLUSTER) -> int:
    """Declare that the data in the storage belongs to this cluster: mark what no job needs, and delete it later."""
    _show(with_client(cluster.require(), lambda client: client.storage.adopt()), output)
    return ExitCode.OK


@storage_app.command
def purge(
    *,
    yes: Annotated[bool, Parameter(name="--yes")] = False,
    force: Annotated[bool, Parameter(name="--force")] = False,
    output: Output = OutputFormat.TABLE,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Adopt the storage, and delete at once all checkpoints, graphs and BLOBs of jobs that the job store does not know.

    Savepoints stay.

    Parameters
    ----------
    yes
        Do not ask for confirmation.
    force
        Delete even while task managers of another job store run. Their jobs may use the deleted data.
    """
    endpoint = cluster.require()
    found = with_client(endpoint, lambda client: client.storage.status())
    unknown = sorted({data.jobid for data in found.data if not data.known})
    if unknown and not yes:
        if not output.is_data:
            _show(found, output)
        _confirm(len(unknown))
    _show(with_client(endpoint, lambda client: client.storage.purge(force=force)), output)
    return ExitCode.OK


def _confirm(jobs: int) -> None:
    """Ask for confirmation on the terminal. Raises InvalidInput without a terminal, or unless the user types yes."""
    if sys.stdin.isatty():
        say(f"this permanently deletes all data of {jobs} jobs; type yes to continue")
        if sys.stdin.readline().strip() == "yes":
            return
    raise InvalidInput("nothing is deleted", field="--yes", hint="--yes deletes without asking")


def _show(found: StorageInfo, output: OutputFormat) -> None:
    if output.is_data:
        print_data(found, output)
    else:
        _print(found)


def _print(found: StorageInfo) -> None:
    from emberkeep.cli.wording import counted, timestamp

    owner = found.cluster if found.owned else "not settled"
    blobs = [("BLOBs", found.blobs)] if found.blobs else []
    print_fields([("Storage", found.location), *blobs, ("Owner", owner)])
    if found.problem:
        say_error(f"nothing is deleted there: {found.problem}", found.hint)
    if found.data:
        print_table(
            ("JOB ID", "DATA", "JOB", "MARKED", "DELETED AFTER"),
            [
                (
                    data.jobid,
                    data.kind,
                    "ended" if data.known else "unknown",
                    timestamp(data.marked),
                    timestamp(data.due),
                )
                for data in found.data
            ],
        )
    if found.used_by:
        print_of_another_store(found.used_by)
        say("their jobs may use data in the storage: it is kept as long as this JobManager has contact with them")
    say(f"{counted(len({data.jobid for data in found.data}), 'job')} with data that no job needs")
