"""``events``: what has happened to a job or to the cluster."""

from __future__ import annotations

import asyncio
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

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
    from emberkeep.protocol.chronicle.rest_events import Event

_POLL_SECONDS = 1.0
_COLUMNS = ("TIME", "TYPE", "ATTEMPT", "BY", "EVENT")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class EventChoice:
    """Options that select events."""

    types: Annotated[tuple[str, ...], Parameter(name="--type", metavar="TYPE")] = ()
    "Only events of this type, such as attempt-started or leader-started; may be repeated."
    since: Annotated[str | None, Parameter(metavar="TIME")] = None
    "Time of the oldest events: how long ago, such as 30min or 2d, or 2026-01-31T18:00 (local time)."
    until: Annotated[str | None, Parameter(metavar="TIME")] = None
    "Time of the newest events, in the same form."
    by: Annotated[str, Parameter(metavar="NAME")] = ""
    "Only what this identity asked for."
    text: Annotated[str, Parameter(metavar="TEXT")] = ""
    "Only events whose message, type, node or task manager contains this, in any case."
    limit: Annotated[int, Parameter(metavar="NUMBER")] = 100
    "Maximum number of events; the newest ones are shown."

    def parameters(self, now_ms: int) -> dict[str, str]:
        """Return the query parameters, without types and limit. Raises InvalidInput."""
        if self.limit < 1:
            raise InvalidInput(f"--limit {self.limit}: must be at least 1", field="--limit")
        given = {"since": moment("--since", self.since, now_ms), "until": moment("--until", self.until, now_ms)}
        known = {name: value for name, value in given.items() if value is not None}
        return {**known, **{name: value for name, value in (("by", self.by), ("text", self.text)) if value}}


_DEFAULT_CHOICE = EventChoice()


def events(
    job: Job | None = None,
    /,
    *,
    choice: EventChoice = _DEFAULT_CHOICE,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], negative=())] = False,
    output: Output = OutputFormat.TABLE,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Show what has happened to a job, oldest first; without a job, what has happened to the cluster.

    The events of a job: its attempts, executors, savepoints, stops, moves and failures, and who asked for what.
    Those of the cluster: leaders, nodes, blocks, quotas and settings.
    With -o json, each event is a line.

    Parameters
    ----------
    job
        Job id, a prefix of one, or a job name.
    follow
        Show further events as they happen, until interrupted; also after another JobManager has taken over.
    """
    from emberkeep.base.clock import SystemClock
    from emberkeep.client.job_reference import resolve_job

    parameters = choice.parameters(SystemClock().now_ms())

    async def show(client: RestClient) -> None:
        job_id = "" if job is None else str(await resolve_job(client, job))
        shown = await client.events.newest(job_id, parameters, choice.types, choice.limit)
        print_entries(shown, output, _COLUMNS, _row, is_first=True, dispensable=("ATTEMPT",))
        if follow:
            await _follow(client, job_id, shown[-1].id if shown else "", parameters, choice.types, output)
        elif not shown and not output.is_data:
            say("there are no such events")

    with_client(cluster.require(), show)
    return ExitCode.OK


async def _follow(
    client: RestClient,
    job_id: str,
    cursor: str,
    parameters: dict[str, str],
    types: tuple[str, ...],
    output: OutputFormat,
) -> None:
    """Print further events until interrupted."""
    patience = Patience()
    while True:
        await asyncio.sleep(_POLL_SECONDS)
        page = await patience.of(functools.partial(client.events.after, job_id, cursor, parameters, types))
        cursor = page.next
        print_entries(page.events, output, _COLUMNS, _row, is_first=False)


def _row(event: Event) -> tuple[str, ...]:
    from datetime import UTC, datetime

    time = datetime.fromtimestamp(event.timestamp / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    return (time, event.type, str(event.attempt or "-"), event.by or "-", event.message)
