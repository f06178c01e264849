"""Sees which BLOBs are on their way between the hosts of a cluster, by what the processes and the kernel show."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from campaign.processes.cluster import Member, RealCluster
from campaign.processes.transfers.hits import Transfer

# More than any message of the cluster that is not a BLOB.
_BULK = 16 * 1024  # bytes that a connection has taken, and that its peer has not confirmed
_ESTABLISHED = "01"


class RunningTransfers:
    """``addresses``: of the members' hosts, by name. Without hosts, all have one address, and no sender is known."""

    def __init__(self, cluster: RealCluster, addresses: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._names = {_as_in_tables(address): name for name, address in addresses.items()}

    def now(self) -> list[Transfer]:
        """Return the transfers whose receiver writes a file, and whose sender has bytes on the way to it."""
        if not self._names:
            return []
        receivers = {each.name for each in self._cluster.task_managers if _receives(self._cluster, each)}
        if not receivers:
            return []
        senders = (*self._cluster.job_managers, *self._cluster.task_managers)
        return [
            Transfer(sender.name, receiver)
            for sender in senders
            if self._cluster.is_running(sender)
            for receiver in sorted({self._names.get(address, "") for address in _busy_peers(sender.pid)} & receivers)
            if receiver != sender.name
        ]


def _receives(cluster: RealCluster, task_manager: Member) -> bool:
    """True if a file is in transfer to the cache of a task manager."""
    try:
        return any(each.is_file() and each.stat().st_size for each in cluster.incoming(task_manager).iterdir())
    except FileNotFoundError:  # the directory, or a file that has just arrived
        return False


def _busy_peers(pid: int) -> Iterator[str]:
    """Yield the addresses to which the host of a process is sending much, as the kernel's tables have them."""
    try:
        lines = Path(f"/proc/{pid}/net/tcp").read_text(encoding="ascii").splitlines()
    except OSError:  # it has just ended
        return
    for line in lines[1:]:
        _, _, remote, state, queues, *_ = line.split()
        if state == _ESTABLISHED and int(queues.partition(":")[0], 16) >= _BULK:
            yield remote.partition(":")[0]


def _as_in_tables(address: str) -> str:
    return socket.inet_aton(address)[::-1].hex().upper()
