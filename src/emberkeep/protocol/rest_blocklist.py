"""REST bodies about blocked nodes and task managers."""

from __future__ import annotations

from typing import Literal

from emberkeep.base.ids import TaskManagerId
from emberkeep.blocklist.model import BlockAction, EvacuatedDrivers
from emberkeep.protocol.rest import Camel, Millis


class BlockRequest(Camel, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to block a node or a task manager.

    ``endTimestamp``: Unix milliseconds, as a number or a string; without it the entry does not expire.
    ``allowMerge``: merge into an existing entry; a boolean, or a boolean as a string. ``drivers``: what happens to
    drivers without a streaming query if tasks are evacuated. If ``drivers`` is absent, an existing
    evacuation keeps its setting; otherwise they are restarted elsewhere.
    """

    action: BlockAction
    cause: str
    drivers: EvacuatedDrivers | None = None
    end_timestamp: int | str | None = None
    allow_merge: bool | Literal["true", "false"] = False


class BlockedTaskManagerInfo(Camel, frozen=True, kw_only=True, omit_defaults=True):
    """One entry.

    ``endTimestamp`` 9223372036854775807: it does not expire. ``drivers``: "wait" if tasks are evacuated but drivers
    without a streaming query stay; otherwise the field is absent.
    """

    action: BlockAction
    start_timestamp: Millis
    end_timestamp: int  # Unix milliseconds
    cause: str
    drivers: EvacuatedDrivers | None = None


class BlockedNodeInfo(BlockedTaskManagerInfo, frozen=True, kw_only=True):
    """One entry about a node, with the registered task managers on that node."""

    task_managers: list[TaskManagerId]


class BlocklistInfo(Camel, frozen=True, kw_only=True):
    """All entries, by resource id and by node id."""

    blocked_task_managers: dict[TaskManagerId, BlockedTaskManagerInfo]
    blocked_nodes: dict[str, BlockedNodeInfo]
