"""``emberkeep taskmanager stop``."""

from __future__ import annotations

import asyncio

from emberkeep.base.errors import Absent, InvalidInput
from emberkeep.cli.messages import say
from emberkeep.cli.views.asked import Asked
from emberkeep.cli.views.patience import Patience
from emberkeep.client.rest_client import RestClient

_POLL = 0.3  # seconds


async def end_task_manager(
    client: RestClient, task_manager: str | None, asked: Asked, *, drain: float, wait: bool
) -> None:
    """Ask the JobManager to end a task manager; with ``wait``, return once its process is no longer registered.

    ``task_manager`` None means the only one that is registered. ``drain``: seconds that the work on it has to leave.
    Raises Absent, and InvalidInput if ``task_manager`` is None and not exactly one is registered.
    """
    name = task_manager or await _only_one(client)
    pid = (await client.task_manager(name)).emberkeep.pid
    asked.text = f"task manager {name} may end: `emberkeep taskmanagers` shows whether it is there"
    await client.stop_task_manager(name, drain=drain)
    asked.text = f"task manager {name} will end: `emberkeep taskmanagers` shows whether it is there"
    if not wait:
        say(f"task manager {name} will end")
        return
    say(f"task manager {name} ends")
    patience = Patience()
    while await patience.of(lambda: _is_there(client, name, pid)):  # noqa: ASYNC110 - the end of another process
        await asyncio.sleep(_POLL)
    say(f"task manager {name} has ended")


async def _is_there(client: RestClient, name: str, pid: int) -> bool:
    """True if the process ``pid`` is still registered. Another process may register under the same name at once."""
    try:
        return (await client.task_manager(name)).emberkeep.pid == pid
    except Absent:
        return False


async def _only_one(client: RestClient) -> str:
    found = [task_manager.id for task_manager in await client.task_managers()]
    if len(found) != 1:
        what = f"one of {', '.join(found)}" if found else "none is registered"
        raise InvalidInput(f"name the task manager to end: {what}", field="task_manager")
    return found[0]
