"""The versions of the processes of a cluster, as they report them."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import emberkeep
from emberkeep.diagnosis.versions import NodeVersions
from emberkeep.protocol.rest_task_managers import TaskManagerSummary
from emberkeep.spark.distribution import spark_version


def versions_here() -> NodeVersions:
    """Return the versions of the clients on this machine."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return NodeVersions(where="this machine", emberkeep=emberkeep.__version__, python=python, spark=spark_version())


def versions_of(task_manager: TaskManagerSummary) -> NodeVersions:
    """Return what a task manager has registered with."""
    own = task_manager.emberkeep
    where = f"task manager {task_manager.id} on node {own.node_id}"
    return NodeVersions(where=where, emberkeep=own.version, python=own.python, spark=own.spark, java=own.java)


def versions_of_standbys(releases: Mapping[str, str], leader: str) -> list[NodeVersions]:
    """Return the versions of all registered JobManagers but the leader. ``releases``: see ZooKeeperFacts."""
    standbys = sorted(releases.keys() - {leader})
    return [NodeVersions(where=f"JobManager {address}", emberkeep=releases[address]) for address in standbys]
