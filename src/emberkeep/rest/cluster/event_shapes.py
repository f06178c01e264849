"""Events as REST bodies."""

from __future__ import annotations

from emberkeep.chronicle.occurrence import SETTING, Occurrence
from emberkeep.protocol.chronicle.rest_events import Event


def event_of(occurrence: Occurrence) -> Event:
    return Event(
        id=occurrence.id,
        timestamp=occurrence.time_ms,
        type=occurrence.what,
        message=occurrence.message,
        by=occurrence.by,
        jobid=occurrence.job_id,
        attempt=occurrence.attempt,
        task_manager=occurrence.task_manager,
        node=occurrence.node,
        details={name: value for name, value in occurrence.details.items() if not name.startswith(SETTING)},
    )
