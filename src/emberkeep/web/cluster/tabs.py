"""What the browser's tab says of a node, a task manager and the leaders. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from emberkeep.jobmanager.views.cluster import TaskManagerView
from emberkeep.jobmanager.views.election import ElectionView, ZooKeeperConnection
from emberkeep.web.health import is_disk_low
from emberkeep.web.node_filter import Standing
from emberkeep.web.tab import Tab


def node_tab(standing: Standing, there: Iterable[TaskManagerView]) -> Tab:
    """Return the tab of a node or of a task manager. ``there``: the node's task managers, or the one."""
    if any(is_disk_low(view) for view in there):
        return Tab(tone="failed", word="DISK NEARLY FULL")
    return Tab() if standing is Standing.AVAILABLE else Tab(tone="waiting", word=standing.value.upper())


def leaders_tab(election: ElectionView | None, address: str) -> Tab:
    """Return the tab of the page of leaders. ``election``: None without high availability. ``address``: its own."""
    if election is None:
        return Tab()
    if election.connection is not ZooKeeperConnection.CONNECTED:
        is_lost = election.connection is ZooKeeperConnection.LOST
        return Tab(tone="failed" if is_lost else "waiting", word=f"ZOOKEEPER {election.connection.value.upper()}")
    if all(each == address for each in election.queue):
        return Tab(tone="waiting", word="NO STANDBY")
    return Tab()
