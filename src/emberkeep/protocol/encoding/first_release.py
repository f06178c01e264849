"""Messages for processes of release 0.1.0, which refuse fields that they do not know.

All later releases ignore unknown fields (``base.compatible``) and announce that with each request and reply. A process
that does not announce it gets only the fields that 0.1.0 knows. The defaults of the other fields mean what 0.1.0 does.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

import msgspec

from emberkeep.jobs.model import AttemptOutcome, ExceptionEntry, JobGraph, JobResources
from emberkeep.lifecycle.model import ProcedureProgress, ProcedureRequest
from emberkeep.protocol.messages.executors import OfferSlotsReply, StartExecutor
from emberkeep.protocol.messages.job_master_reports import ExecutorView, JobMasterStatus, QueryProgress
from emberkeep.protocol.messages.job_masters import JobMasterHeartbeat, JobMasterReply, RegisterJobMaster, ReportOutcome
from emberkeep.protocol.messages.root import Ack, Message
from emberkeep.protocol.messages.task_manager_reports import (
    DriverReport,
    ExecutorReport,
    StateGatewayReport,
    TaskManagerReport,
)
from emberkeep.protocol.messages.task_managers import (
    AllocateSlot,
    RegisterTaskManager,
    StartDriver,
    StopDriver,
    StopTaskManager,
    TaskManagerHeartbeat,
    TaskManagerHeartbeatReply,
    TaskManagerRegistered,
)
from emberkeep.slots.model import Allocation, ResourceProfile, TaskManagerInfo

MessageT = TypeVar("MessageT", bound=Message)

# For each class, the fields that were added after 0.1.0.
ADDED: dict[type[msgspec.Struct], tuple[str, ...]] = {
    Allocation: ("addresses",),
    AttemptOutcome: ("lasting",),
    ExceptionEntry: ("executor",),
    JobGraph: ("owner", "namespace", "secrets"),
    JobResources: ("executor_resources", "driver_resources"),
    ProcedureProgress: ("impossible", "procedure"),
    ProcedureRequest: ("periodic", "attempt"),
    ResourceProfile: ("custom",),
    TaskManagerInfo: ("release", "addresses", "unconfirmed", "cgroups"),
    Ack: ("never_had_by",),
    AllocateSlot: ("lineage",),
    DriverReport: ("custom", "start", "why_cold"),
    ExecutorReport: ("start", "why_cold"),
    ExecutorView: ("outgoing", "cordoned", "start", "why_cold", "dismissed", "lacks_space"),
    JobMasterHeartbeat: ("lineage", "known_epoch", "asks_confirmation"),
    JobMasterReply: ("blocklist_lost", "lineage", "trace", "reclaim", "confirmed", "lease"),
    JobMasterStatus: (
        *("blocklist", "blocklist_epoch", "functions", "trace", "work", "trend", "scaling"),
        *("least_slots", "reclaim", "given_back", "flows", "course"),
    ),
    OfferSlotsReply: ("later",),
    QueryProgress: ("state_bytes", "backlog_rows", "late_rows", "state_commit_ms", "totals", "sources"),
    RegisterJobMaster: ("lineage", "known_epoch"),
    RegisterTaskManager: ("attempts", "lineage", "known_epoch"),
    ReportOutcome: ("lineage", "known_epoch"),
    StartDriver: ("checkpoints_recorded", "lineage", "addresses"),
    StartExecutor: ("python_path_owner", "secrets", "namespace_claim", "addresses"),
    StopDriver: ("lineage",),
    StopTaskManager: ("lineage",),
    StateGatewayReport: ("standby_bytes",),
    TaskManagerHeartbeat: ("lineage", "known_epoch"),
    TaskManagerHeartbeatReply: ("lineage", "reserved_standbys"),
    TaskManagerRegistered: ("lineage",),
    TaskManagerReport: (
        *("connections_rejected", "standbys", "reserved_standbys", "memory_total_mb", "disk_total_mb"),
    ),
}


def for_first_release(message: MessageT) -> MessageT:
    """Return ``message`` without the fields that 0.1.0 does not know; ``message`` itself if none of them is set."""
    reduced: MessageT = _reduced(message)
    return reduced


def _reduced(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return _reduced_struct(value)
    if isinstance(value, tuple):
        items = tuple(map(_reduced, value))
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    if isinstance(value, dict):
        entries = {key: _reduced(entry) for key, entry in value.items()}
        return value if all(entries[key] is entry for key, entry in value.items()) else entries
    return value


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[Any, ...]:
    return msgspec.structs.fields(kind)


def _default(field: Any) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _reduced_struct(value: msgspec.Struct) -> msgspec.Struct:
    added = ADDED.get(type(value), ())
    changes: dict[str, Any] = {}
    for field in _fields(type(value)):
        old = getattr(value, field.name)
        new = _default(field) if field.name in added else _reduced(old)
        if new is not old and new != old:
            changes[field.name] = new
    return msgspec.structs.replace(value, **changes) if changes else value
