"""What a JobManager finds around it: its address, shared directories and storage, and what starts task managers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from emberkeep.chronicle.ports import Chronicle
from emberkeep.jobs.periodic.ports import SavepointDisposal
from emberkeep.kept_logs.ports import LogStore, NoLogStore
from emberkeep.notifications.ports import Notifier, SilentNotifier
from emberkeep.protocol.transport import RpcClient
from emberkeep.slots.resource_driver import ResourceManagerDriver
from emberkeep.usage.ports import UsageStore


class SharedStorage(Protocol):
    """State of the storage that all processes share.

    ``problem``: why the storage cannot be used, since ``problem_since_ms``; "" if it can be.
    """

    problem: str
    problem_since_ms: int

    async def expect(self) -> None:
        """Check the storage now, and expect data of this cluster in it, because the cluster has recovered jobs."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a JobManager finds around it, the same for its whole run.

    - ``rpc``: how it calls other processes; ``address``: host:port where they call it.
    - ``checkpoint_root``: where queries without a checkpoint location of their own keep theirs.
    - ``savepoint_root``: where savepoints go if no directory is named or configured.
    - ``savepoints``: deletes savepoints that retention has retired.
    - ``chronicle``: where the leader notes what users want to read.
    - ``settings``: the options that are set and should be the same for all JobManagers; secret values are hidden.
    - ``checkpoints_recorded``: returns True if ``checkpoint_root`` has an ownership record; called once the store is
      open.
    - ``resource_driver``: starts task managers if more are needed; None if operators start them.
    - ``notifier``: learns what happens to jobs.
    - ``logs``: stores the pieces of logs that task managers send.
    - ``usage``: stores how busy task managers have been; None keeps it in memory only.
    """

    rpc: RpcClient
    address: str
    checkpoint_root: str
    savepoint_root: str
    storage: SharedStorage
    savepoints: SavepointDisposal
    chronicle: Chronicle
    settings: Mapping[str, str] = field(default_factory=dict)
    checkpoints_recorded: Callable[[], bool] = lambda: False
    resource_driver: ResourceManagerDriver | None = None
    notifier: Notifier = field(default_factory=SilentNotifier)
    logs: LogStore = field(default_factory=NoLogStore)
    usage: UsageStore | None = None
