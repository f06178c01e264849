"""Task managers that a new leader has not heard yet.

They register with it one after the other, within moments. Until then what lies on one of them is not missing: who asks
for it waits for a moment, and is told to ask again after that.
"""

from __future__ import annotations

from collections.abc import Collection

from emberkeep.base.configuration.options import HEARTBEAT_TIMEOUT
from emberkeep.base.ids import TaskManagerId
from emberkeep.jobmanager.views.cluster import TaskManagerView
from emberkeep.rest.serving.api import Api

LONGEST_WAIT = 8.0  # seconds; clients wait longer for an answer
_POLL = 0.1


def may_still_come(api: Api) -> bool:
    """Whether this JobManager leads for so short a time that a task manager which lives may not be registered yet."""
    return api.now_ms() - api.gateway.started_ms() < api.configuration[HEARTBEAT_TIMEOUT] * 1000


async def task_managers(api: Api, wanted: Collection[TaskManagerId]) -> list[TaskManagerView]:
    """All that are registered, once the ``wanted`` ones are among them or late. Raises RetryLater: too many wait."""
    clock, views = api.system.clock, await api.gateway.task_managers()
    if not _missing(wanted, views) or not may_still_come(api):
        return views
    end = clock.monotonic() + LONGEST_WAIT
    with api.waiting.place():
        while _missing(wanted, views) and may_still_come(api) and clock.monotonic() < end:
            if await api.pause(_POLL):
                break
            views = await api.gateway.task_managers()
    return views


def _missing(wanted: Collection[TaskManagerId], views: list[TaskManagerView]) -> bool:
    return not set(wanted) <= {view.info.id for view in views}
