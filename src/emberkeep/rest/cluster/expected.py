"""Task managers that have not yet registered with a new leader.

They register one after the other, within moments. Until then their data is not missing: a request that needs one of
them waits for up to LONGEST_WAIT, and its handler may then ask the client to retry.
"""

from __future__ import annotations

from collections.abc import Collection

from emberkeep.base.configuration.options.job_managers import HEARTBEAT_TIMEOUT
from emberkeep.base.ids import TaskManagerId
from emberkeep.jobmanager.views.cluster import TaskManagerView
from emberkeep.rest.serving.api import Api

LONGEST_WAIT = 8.0  # seconds; clients wait longer than this for an answer
_POLL = 0.1


def may_still_come(api: Api) -> bool:
    """True if running task managers may not have registered yet: the leader is younger than one heartbeat timeout."""
    return api.now_ms() - api.gateway.started_ms() < api.configuration[HEARTBEAT_TIMEOUT] * 1000


async def task_managers(api: Api, wanted: Collection[TaskManagerId]) -> list[TaskManagerView]:
    """Return all registered task managers, after waiting for the ``wanted`` ids while they may still register.

    Waits for at most LONGEST_WAIT, and stops waiting when the server stops. Raises RetryLater if too many requests
    wait already.
    """
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
