"""The shape of a local cluster: its nodes as the options give them, and its description in words."""

from __future__ import annotations

from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import parse_task_manager_id
from emberkeep.client.clusters.cluster_file import ClusterShape

_MAX_TASK_MANAGERS = 250


def node_addresses(count: int | None, listed: str | None) -> tuple[str, ...]:
    """Return one address per task manager: those listed, else 127.0.0.1 for one and 127.0.0.2, .3, … for several.

    Raises InvalidInput.
    """
    if listed is None:
        number = 1 if count is None else count
        if not 1 <= number <= _MAX_TASK_MANAGERS:
            raise InvalidInput(f"--task-managers {number}: not from 1 to {_MAX_TASK_MANAGERS}", field="--task-managers")
        return ("127.0.0.1",) if number == 1 else tuple(f"127.0.0.{index + 2}" for index in range(number))
    nodes = tuple(filter(None, (node.strip() for node in listed.split(","))))
    if not nodes or len(set(nodes)) != len(nodes):
        raise InvalidInput(f"--nodes {listed}: expected different addresses, separated by commas", field="--nodes")
    if count is not None and count != len(nodes):
        raise InvalidInput(f"--task-managers {count} but --nodes lists {len(nodes)}", field="--nodes")
    for node in nodes:
        parse_task_manager_id(f"tm-{node}")
    return nodes


def describe(shape: ClusterShape) -> str:
    """Return the shape in words."""
    count = len(shape.nodes)
    memory = f", {shape.memory} each" if shape.memory else ""
    several = f"{shape.job_managers} JobManagers, {shape.zookeepers} ZooKeepers, " if shape.zookeepers else ""
    nodes = ", ".join(shape.nodes)
    if not nodes:
        return f"{several}task managers of {shape.slots} slots each, started when jobs need them{memory}"
    return f"{several}{count} task manager{'' if count == 1 else 's'} of {shape.slots} slots on {nodes}{memory}"
