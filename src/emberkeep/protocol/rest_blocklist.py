"""REST bodies about blocked nodes and task managers."""

from __future__ import annotations

from typing import Literal

from emberkeep.base.ids import TaskManagerId
from emberkeep.blocklist.model import BlockAction, EvacuatedDrivers
from emberkeep.protocol.rest import Camel, Millis


class BlockRequest(Camel, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to block a node or a task manager with. ``endTimestamp``: Unix milliseconds, as a number or a string;
    without it the entry does not time out. ``allowMerge``: where there is an entry, merge into it; a boolean, or one
    as a string. ``drivers``: where
    tasks are evacuated, what becomes of drivers without a streaming query; without it what the entry says that is
    merged into, or they are restarted elsewhere."""

    action: BlockAction
    cause: str
    drivers: EvacuatedDrivers | None = None
    end_timestamp: int | str | None = None
    allow_merge: bool | Literal["true", "false"] = False


class BlockedTaskManagerInfo(Camel, frozen=True, kw_only=True, omit_defaults=True):
    """``endTimestamp`` 9223372036854775807: it does not time out. ``drivers``: "wait" where tasks are evacuated
    and drivers without a streaming query stay; else it is not there."""

    action: BlockAction
    start_timestamp: Millis
    end_timestamp: int  # Unix milliseconds
    cause: str
    drivers: EvacuatedDrivers | None = None


class BlockedNodeInfo(BlockedTaskManagerInfo, frozen=True, kw_only=True):
    """Likewise; with the registered task managers that stand on the node."""

    task_managers: list[TaskManagerId]


class BlocklistInfo(Camel, frozen=True, kw_only=True):
    """All entries, by resource id and by node id."""

    blocked_task_managers: dict[TaskManagerId, BlockedTaskManagerInfo]
    blocked_nodes: dict[str, BlockedNodeInfo]
