"""All requests, by name."""

from __future__ import annotations

from emberkeep.protocol.messages.executors import (
    ExecutorChanged,
    JobMasterBeat,
    ListLocalState,
    OfferSlots,
    ReleaseSlot,
    StartExecutor,
)
from emberkeep.protocol.messages.job_masters import (
    JobMasterHeartbeat,
    ReadProgress,
    ReadSparkUi,
    RegisterJobMaster,
    ReportNow,
    ReportOutcome,
)
from emberkeep.protocol.messages.leaders import AskLeader
from emberkeep.protocol.messages.logs import KeepLog, ListLogs, SearchLog, UploadLog
from emberkeep.protocol.messages.root import Message
from emberkeep.protocol.messages.task_managers import (
    AllocateSlot,
    RegisterTaskManager,
    StartDriver,
    StopDriver,
    StopTaskManager,
    TaskManagerHeartbeat,
)

REQUESTS: dict[str, type[Message]] = {
    kind.__name__: kind
    for kind in (
        RegisterTaskManager,
        TaskManagerHeartbeat,
        KeepLog,
        StartDriver,
        StopDriver,
        StopTaskManager,
        AllocateSlot,
        ListLogs,
        UploadLog,
        SearchLog,
        OfferSlots,
        ExecutorChanged,
        StartExecutor,
        ReleaseSlot,
        JobMasterBeat,
        ListLocalState,
        RegisterJobMaster,
        JobMasterHeartbeat,
        ReportOutcome,
        AskLeader,
        ReportNow,
        ReadSparkUi,
        ReadProgress,
    )
}
