"""``node list|block|unblock|evacuate``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from emberkeep.base.errors import InvalidInput
from emberkeep.cli.cluster_options import ClusterOptions
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.job_commands import DEFAULT_CLUSTER, Output, with_client
from emberkeep.cli.messages import say
from emberkeep.cli.tables import OutputFormat, print_json, print_table
from emberkeep.cli.wording import until

if TYPE_CHECKING:
    from emberkeep.blocklist.model import BlockAction

node_app = App(name="node", help="Show nodes; keep work away from them, and bring it back.", sort_key=22)

Cause = Annotated[str, Parameter(metavar="TEXT")]
Lapse = Annotated[str | None, Parameter(metavar="DURATION", name="--for")]
Until = Annotated[str | None, Parameter(metavar="TIME")]
Flag = Annotated[bool, Parameter(negative=())]


@node_app.default
@node_app.command(name="list")
def list_nodes(*, output: Output = OutputFormat.TABLE, cluster: ClusterOptions = DEFAULT_CLUSTER) -> int:
    """List the nodes with what runs there, and what is blocked.

    Parameters
    ----------
    output
        How to print: a table, or the API's JSON of the blocklist.
    """
    from emberkeep.cli.node_status import NODE_COLUMNS, node_rows, read_nodes

    blocklist, task_managers = with_client(cluster.require(), read_nodes)
    if output is OutputFormat.JSON:
        print_json(blocklist)
        return ExitCode.OK
    rows = node_rows(blocklist, task_managers)
    if rows:
        print_table(NODE_COLUMNS, rows)
    else:
        say("no task manager is registered, and nothing is blocked")
    return ExitCode.OK


@node_app.command
def block(
    node: str,
    /,
    *,
    cause: Cause,
    duration: Lapse = None,
    until: Until = None,
    merge: Flag = False,
    wait: Flag = False,
    task_manager: Flag = False,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Give a node no new work. What runs there stays.

    Parameters
    ----------
    node
        Its id, as `emberkeep node list` shows it.
    cause
        Why; everybody who looks at the list sees it.
    duration
        For how long, such as 30min, 2h or 1d. Default: until it is unblocked.
    until
        Until when, such as 2026-01-31T18:00 (local time) or with a zone. Default: until it is unblocked.
    merge
        Where it is blocked already: the stronger action, the later end, both causes.
    wait
        Return when nothing runs in its slots any more.
    task_manager
        What is named is not a node but a single task manager, by its id.
    """
    from emberkeep.blocklist.model import BlockAction

    return _block(BlockAction.MARK_BLOCKED, node, cause, (duration, until), merge, wait, task_manager, cluster)


@node_app.command
def evacuate(
    node: str,
    /,
    *,
    cause: Cause,
    duration: Lapse = None,
    until: Until = None,
    merge: Flag = False,
    wait: Flag = False,
    task_manager: Flag = False,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Give a node no new work, and replace the executors there by others elsewhere at once. Their tasks run again
    there; what they had cached or shuffled is computed again. Drivers stay where they are.

    Parameters
    ----------
    node
        Its id, as `emberkeep node list` shows it.
    cause
        Why; everybody who looks at the list sees it.
    duration
        For how long, such as 30min, 2h or 1d. Default: until it is unblocked.
    until
        Until when, such as 2026-01-31T18:00 (local time) or with a zone. Default: until it is unblocked.
    merge
        Where it is blocked already: the stronger action, the later end, both causes.
    wait
        Return when nothing runs in its slots any more.
    task_manager
        What is named is not a node but a single task manager, by its id.
    """
    from emberkeep.blocklist.model import BlockAction

    action = BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS
    return _block(action, node, cause, (duration, until), merge, wait, task_manager, cluster)


@node_app.command
def unblock(node: str, /, *, task_manager: Flag = False, cluster: ClusterOptions = DEFAULT_CLUSTER) -> int:
    """Give a node work again. Exit code 4 when it is not blocked.

    Parameters
    ----------
    node
        Its id, as `emberkeep node list` shows it.
    task_manager
        What is named is not a node but a single task manager, by its id.
    """
    with_client(cluster.require(), lambda client: client.unblock(node, task_manager=task_manager))
    say(f"{_what(task_manager)} {node} gets work again")
    return ExitCode.OK


def _what(task_manager: bool) -> str:
    return "task manager" if task_manager else "node"


def _block(
    action: BlockAction,
    name: str,
    cause: str,
    end: tuple[str | None, str | None],
    merge: bool,
    wait: bool,
    task_manager: bool,
    cluster: ClusterOptions,
) -> int:
    from emberkeep.cli.node_status import wait_until_free
    from emberkeep.client.rest_client import RestClient
    from emberkeep.protocol.rest import BlockRequest

    request = BlockRequest(action=action, cause=cause, end_timestamp=_end(*end), allow_merge=merge)

    async def work(client: RestClient) -> None:
        entry = await client.block(name, request, task_manager=task_manager)
        say(f"{_what(task_manager)} {name} gets no new work {until(entry.end_timestamp)}: {entry.cause}")
        if wait:
            await wait_until_free(client, name, task_manager=task_manager)

    with_client(cluster.require(), work)
    return ExitCode.OK


def _end(duration: str | None, moment: str | None) -> int | None:
    """Unix milliseconds. Raises InvalidInput."""
    from datetime import datetime

    from emberkeep.base.option_types import duration as seconds

    if duration is not None and moment is not None:
        raise InvalidInput("--for and --until are given", field="--until", hint="give one of them")
    if duration is not None:
        try:
            length = seconds(duration)
        except ValueError as error:
            raise InvalidInput(f"--for {duration}: {error}", field="--for") from None
        return time.time_ns() // 1_000_000 + round(length * 1000)
    if moment is not None:
        try:
            return round(datetime.fromisoformat(moment).timestamp() * 1000)
        except (ValueError, OverflowError, OSError):
            hint = "for example 2026-01-31T18:00 or 2026-01-31T17:00:00Z"
            raise InvalidInput(f"--until {moment}: not a time", field="--until", hint=hint) from None
    return None
