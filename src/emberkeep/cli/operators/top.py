"""``top``: jobs and nodes, live on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emberkeep.cli.cluster_options import DEFAULT_CLUSTER, ClusterOptions, with_client
from emberkeep.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from emberkeep.client.rest_client import RestClient


def top(*, cluster: ClusterOptions = DEFAULT_CLUSTER) -> int:
    """Show jobs and nodes as they change, until Ctrl-C: what runs, what waits for what, rates, and what is in use.

    Jobs with an alarm come first, then those that do not run or that wait.
    If standard output is not a terminal, print the picture once.
    """
    from emberkeep.cli.operators.top_reading import read_top
    from emberkeep.cli.operators.top_view import render
    from emberkeep.cli.tables import print_renderable
    from emberkeep.cli.views.repetition import repeat
    from emberkeep.cli.views.surfaces import Screen, is_live_terminal

    endpoint = cluster.require()

    async def run(client: RestClient) -> None:
        if is_live_terminal():
            await repeat(lambda: read_top(client), Screen(f"emberkeep top · {endpoint.url}", render))
        else:
            print_renderable(render(await read_top(client)))

    with_client(endpoint, run)
    return ExitCode.OK
