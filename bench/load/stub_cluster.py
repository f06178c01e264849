"""Many stub nodes in a process of their own: ``python -m bench.load.stub_cluster``, until its standard input ends.

Standard input begins with a line of JSON, see ``Order``. The process prints "ready" when all nodes run, and at its end
how many drivers they were asked for.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass

import msgspec
import structlog

from bench.commands import end
from bench.load.stub_node import StubShape, stub_nodes
from emberkeep.base.configuration.layout import state_layout
from emberkeep.base.configuration.sources import load_configuration
from emberkeep.base.ids import JobId
from emberkeep.daemons.local_zookeeper import with_local_zookeeper

_GROUP = 10  # nodes that share a session: ZooKeeper allows 60 sessions from one address by default


class Order(msgspec.Struct, frozen=True):
    """What the process runs: ``nodes`` task managers, each with ``places`` and ``slots``.

    ``wanted``: slots that each driver asks for. ``definitions``: settings, as KEY=VALUE.
    """

    definitions: list[str]
    token: str
    leader: str
    nodes: int
    places: int
    slots: int
    wanted: int


@dataclass(frozen=True)
class StubCluster:
    """The process, seen from outside."""

    process: subprocess.Popen[str]

    def starts(self) -> int:
        """End the process; return how many drivers it was asked for."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        return int(self.process.stdout.read().split()[-1])


@contextmanager
def stub_cluster(order: Order) -> Iterator[StubCluster]:
    """Start the process; it is ended at the end."""
    command = [sys.executable, "-m", "bench.load.stub_cluster"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(order).decode() + "\n")
        process.stdin.flush()
        if process.stdout.readline() != "ready\n":
            raise SystemExit("the stub nodes did not start")
        yield StubCluster(process)
    finally:
        end(process)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


async def _run(order: Order) -> None:
    configuration = load_configuration(environ={}, definitions=order.definitions)
    # With the state directory of `cluster up --ha`, its ZooKeeper.
    configuration = with_local_zookeeper(configuration, state_layout(configuration, {}))
    accepted: Counter[JobId] = Counter()
    async with AsyncExitStack() as stack:
        nodes = []
        for first in range(0, order.nodes, _GROUP):
            numbers = range(first, min(order.nodes, first + _GROUP))
            shapes = [StubShape(f"stub-{number}", order.places, order.slots, order.wanted) for number in numbers]
            nodes += await stack.enter_async_context(
                stub_nodes(configuration, order.token, order.leader, shapes, accepted)
            )
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        print(sum(node.starts for node in nodes), flush=True)


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    asyncio.run(_run(msgspec.json.decode(sys.stdin.readline(), type=Order)))
