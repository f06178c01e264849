"""``node list|block|unblock|evacuate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from cyclopts import App
from msgspec.structs import replace

from emberkeep.base.errors import InvalidInput
from emberkeep.cli.cluster_options import DEFAULT_CLUSTER, ClusterOptions, with_client
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.messages import say
from emberkeep.cli.nodes.options import BlockOptions, Flag
from emberkeep.cli.parameters import Node
from emberkeep.cli.tables import print_table
from emberkeep.cli.views.viewing import DEFAULT_VIEWING, Viewing, show
from emberkeep.cli.wording import timestamp, until

if TYPE_CHECKING:
    from emberkeep.blocklist.model import BlockAction, EvacuatedDrivers

Drivers = Literal["restart", "wait"]

node_app = App(name="node", help="Show nodes; block them for new work, evacuate them, unblock them.", sort_key=22)


@node_app.default
@node_app.command(name="list")
def list_nodes(
    *,
    viewing: Viewing = DEFAULT_VIEWING,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """List the nodes: what runs there, and what is blocked. As JSON or YAML: the blocklist."""
    from emberkeep.cli.nodes.status import LESS_OF_NODES, Nodes, node_table, read_nodes

    def text(nodes: Nodes, is_wide: bool) -> None:
        columns, rows = node_table(*nodes, is_wide=is_wide)
        if rows:
            print_table(columns, rows, LESS_OF_NODES)
        else:
            say("no task manager is registered, and nothing is blocked")

    show(cluster, viewing, read_nodes, text, lambda nodes: nodes[0])
    return ExitCode.OK


@node_app.command
def block(node: Node, /, *, blocking: BlockOptions, cluster: ClusterOptions = DEFAULT_CLUSTER) -> int:
    """Give a node no new work. Running drivers and executors stay."""
    from emberkeep.blocklist.model import BlockAction

    return _block(BlockAction.MARK_BLOCKED, node, blocking, cluster)


@node_app.command
def evacuate(
    node: Node, /, *, blocking: BlockOptions, drivers: Drivers | None = None, cluster: ClusterOptions = DEFAULT_CLUSTER
) -> int:
    """Give a node no new work, and move running work elsewhere.

    Executors are replaced at once: they hand over cached and shuffled data, then end.
    Drivers of streaming jobs stop between two batches and continue elsewhere.

    Parameters
    ----------
    drivers
        What happens to drivers without a streaming query: `restart` elsewhere, or `wait` until their jobs end.
        Default: with --merge the choice of an evacuation that is under way, else `restart`.
    """
    from emberkeep.blocklist.model import BlockAction, EvacuatedDrivers

    said = None if drivers is None else EvacuatedDrivers(drivers)
    return _block(BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS, node, blocking, cluster, said)


@node_app.command
def unblock(node: Node, /, *, task_manager: Flag = False, cluster: ClusterOptions = DEFAULT_CLUSTER) -> int:
    """Give a node work again. Exit code 4 if it is not blocked.

    Parameters
    ----------
    task_manager
        NODE is the id of a single task manager, not of a node.
    """
    with_client(cluster.require(), lambda client: client.unblock(node, task_manager=task_manager))
    say(f"{_what(task_manager)} {node} gets new work again")
    return ExitCode.OK


def _what(task_manager: bool) -> str:
    return "task manager" if task_manager else "node"


def _block(
    action: BlockAction,
    name: str,
    blocking: BlockOptions,
    cluster: ClusterOptions,
    drivers: EvacuatedDrivers | None = None,
) -> int:
    from emberkeep.cli.nodes.wait import there_now, wait_until_free
    from emberkeep.cli.views.asked import Asked, with_client_asking
    from emberkeep.client.rest_client import RestClient

    request, task_manager, patience = blocking.request(action, drivers), blocking.task_manager, blocking.patience()
    length = blocking.length_ms()

    async def work(client: RestClient, asked: Asked) -> bool:
        end = request.end_timestamp
        if length is not None:  # by the JobManager's clock, which is rounded down to whole seconds
            end = (await client.leadership()).now_ms + 1000 + length
        asked.text = f"{name} may be blocked: `emberkeep node list` shows it"
        try:
            entry = await client.block(name, replace(request, end_timestamp=end), task_manager=task_manager)
        except InvalidInput as error:
            if error.field != "endTimestamp":
                raise
            option, value = ("--until", blocking.until) if blocking.until is not None else ("--for", blocking.duration)
            now = (await client.leadership()).now_ms
            too_late = f"not a time in the future; at the JobManager it is {timestamp(now)} (local time)"
            problem = too_late if isinstance(end, int) and end <= now else error.message
            raise InvalidInput(f"{option} {value}: {problem}", field=option) from None
        asked.text = f"{name} stays blocked until `emberkeep node unblock`, or the end of its entry"
        say(f"{_what(task_manager)} {name} gets no new work {until(entry.end_timestamp)}: {entry.cause}")
        if not await there_now(client, name, task_manager=task_manager):
            where = f"task manager {name} is" if task_manager else f"task manager of node {name} is"
            say(f"no {where} registered now: if the id is wrong, undo this with `emberkeep node unblock {name}`")
        return not blocking.wait or await wait_until_free(client, name, task_manager=task_manager, patience=patience)

    return ExitCode.OK if with_client_asking(cluster.require(), work) else ExitCode.TIMED_OUT
