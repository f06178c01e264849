"""``audit``: who changed what, and who was refused."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from emberkeep.base.errors import InvalidInput
from emberkeep.cli.cluster_options import DEFAULT_CLUSTER, ClusterOptions, with_client
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.messages import say
from emberkeep.cli.moments import moment
from emberkeep.cli.parameters import Job, Output
from emberkeep.cli.tables import OutputFormat, print_entries
from emberkeep.cli.views.patience import Patience

if TYPE_CHECKING:
    from emberkeep.client.rest_client import RestClient
    from emberkeep.protocol.rest_audit import AuditEntry

_POLL_SECONDS = 1.0
_COLUMNS = ("TIME", "IDENTITY", "FROM", "ACTION", "TARGET", "OUTCOME")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AuditChoice:
    """Options that select entries."""

    since: Annotated[str | None, Parameter(metavar="TIME")] = None
    "Time of the oldest entries: how long ago, such as 30min or 2d, or 2026-01-31T18:00 (local time)."
    until: Annotated[str | None, Parameter(metavar="TIME")] = None
    "Time of the newest entries, in the same form."
    identity: Annotated[str | None, Parameter(metavar="NAME")] = None
    "Only entries of this identity; `cluster` is the holder of the cluster's token."
    job: Job | None = None
    outcome: Literal["done", "failed", "refused", "unknown"] | None = None
    "Only entries with this outcome."
    limit: Annotated[int, Parameter(metavar="NUMBER")] = 100
    "Maximum number of entries; the newest ones are shown."

    def parameters(self, now_ms: int) -> dict[str, str]:
        """Return the query parameters, without the job. Raises InvalidInput."""
        if self.limit < 1:
            raise InvalidInput(f"--limit {self.limit}: must be at least 1", field="--limit")
        given = {
            "since": moment("--since", self.since, now_ms),
            "until": moment("--until", self.until, now_ms),
            "identity": self.identity,
            "outcome": self.outcome,
            "limit": str(min(self.limit, 1000)),
        }
        return {name: value for name, value in given.items() if value is not None}


_DEFAULT_CHOICE = AuditChoice()


def audit(
    *,
    choice: AuditChoice = _DEFAULT_CHOICE,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], negative=())] = False,
    output: Output = OutputFormat.TABLE,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Show who changed what in the cluster, and who was refused: the newest entries of the audit log, oldest first.

    With -o json, each entry is a line. Needs the role admin.

    Parameters
    ----------
    follow
        Show further entries as they are written, until interrupted; also after another JobManager has taken over.
    """
    from emberkeep.base.clock import SystemClock
    from emberkeep.client.job_reference import resolve_job

    parameters = choice.parameters(SystemClock().now_ms())

    async def show(client: RestClient) -> None:
        if choice.job is not None:
            parameters["jobid"] = await resolve_job(client, choice.job)
        entries = await _newest(client, parameters, choice.limit)
        print_entries(entries, output, _COLUMNS, _row, is_first=True, dispensable=("FROM",))
        if not entries and not output.is_data:
            say("the audit log has no such entries")
        patience = Patience()
        while follow:
            await asyncio.sleep(_POLL_SECONDS)
            last = entries[-1].id if entries else ""
            if last:
                parameters["since"] = str(int(last[:13]))
            found = await patience.of(lambda: _newest(client, parameters, 1000))
            further = [one for one in found if one.id > last]
            print_entries(further, output, _COLUMNS, _row, is_first=False)
            entries = further or entries

    with_client(cluster.require(), show)
    return ExitCode.OK


async def _newest(client: RestClient, parameters: dict[str, str], limit: int) -> list[AuditEntry]:
    """Return the newest selected entries, oldest first."""
    found: list[AuditEntry] = []
    async for entry in client.audit.newest(parameters):
        found.append(entry)
        if len(found) == limit:
            break
    return found[::-1]


def _row(entry: AuditEntry) -> tuple[str, ...]:
    count = f"{entry.count} × " if entry.count > 1 else ""
    status = f" {entry.status}" if entry.status else ""
    reason = f": {entry.reason}" if entry.reason else ""
    return (
        entry.time[:19].replace("T", " ") + "Z",
        entry.identity or "-",
        f"{entry.address or '-'} ({entry.login})" if entry.login != "none" else entry.address or "-",
        count + entry.action,
        " ".join(f"{name}={value}" for name, value in (*entry.target.items(), *entry.parameters.items())) or "-",
        f"{entry.outcome}{status}{reason}",
    )
