"""Nodes as ``emberkeep node`` shows them, and waiting until one has nothing to do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence

from emberkeep.cli.messages import say
from emberkeep.cli.wording import counted, until
from emberkeep.client.rest_client import RestClient
from emberkeep.protocol.rest import TaskManagerSummary
from emberkeep.protocol.rest_blocklist import BlockedTaskManagerInfo, BlocklistInfo

NODE_COLUMNS = ("NODE", "TASK MANAGERS", "SLOTS", "IN USE", "DRIVERS", "BLOCKED", "CAUSE", "LEAVING")
_POLL = 0.5  # seconds
_GONE_SECONDS = 15.0  # for which a JobManager that has just taken over may not have heard a task manager yet

Nodes = tuple[BlocklistInfo, list[TaskManagerSummary]]


async def read_nodes(client: RestClient) -> Nodes:
    return await client.blocklist(), await client.task_managers()


def node_rows(blocklist: BlocklistInfo, task_managers: Iterable[TaskManagerSummary]) -> list[tuple[str, ...]]:
    """One line per node, followed by one per task manager there that is blocked itself; then what is blocked and not
    registered."""
    standing: dict[str, list[TaskManagerSummary]] = {node: [] for node in blocklist.blocked_nodes}
    for task_manager in task_managers:
        standing.setdefault(task_manager.emberkeep.node_id, []).append(task_manager)
    rows = []
    alone = dict(blocklist.blocked_task_managers)
    for node, there in sorted(standing.items()):
        rows.append(_row(node, there, blocklist.blocked_nodes.get(node)))
        for task_manager in there:
            entry = alone.pop(task_manager.id, None)
            if entry is not None:
                rows.append(_row(f"  {task_manager.id}", [task_manager], entry))
    return [*rows, *(_row(f"  {name}", [], entry) for name, entry in sorted(alone.items()))]


def _row(name: str, there: Sequence[TaskManagerSummary], entry: BlockedTaskManagerInfo | None) -> tuple[str, ...]:
    return (
        name,
        str(len(there)),
        str(sum(task_manager.slots_number for task_manager in there)),
        str(_in_use(there)),
        str(_drivers(there)),
        "no" if entry is None else f"{entry.action.value} {until(entry.end_timestamp)}",
        "" if entry is None else entry.cause,
        evacuation_text(there),
    )


def _in_use(there: Iterable[TaskManagerSummary]) -> int:
    return sum(task_manager.slots_number - task_manager.free_slots for task_manager in there)


def _drivers(there: Iterable[TaskManagerSummary]) -> int:
    places = (task_manager.emberkeep for task_manager in there)
    return sum(own.driver_places_total - own.driver_places_available for own in places)


async def wait_until_free(client: RestClient, name: str, *, task_manager: bool) -> None:
    """Return when no slot is in use there, and no driver is left that is to move; tells what is left, and which jobs
    wait for something, whenever that changes."""
    shown: str | None = None
    waiting: dict[str, str] = {}
    seen_at: float | None = None  # when somebody was there last
    while True:
        there = [
            other
            for other in await client.task_managers()
            if name == (other.id if task_manager else other.emberkeep.node_id)
        ]
        now = time.monotonic()
        seen_at = now if there else seen_at
        if seen_at is not None and not there and now - seen_at < _GONE_SECONDS:
            await asyncio.sleep(_POLL)
            continue
        left, text = _in_use(there) + _moving(there), _left_text(there)
        if left == 0:
            say(f"no slot of {name} is in use{await _staying_text(client, there)}")
            await _say_waiting(client, waiting)
            return
        if text != shown:
            shown = text
            say(f"{name}: {text}")
        await _say_waiting(client, waiting)
        await asyncio.sleep(_POLL)


async def _staying_text(client: RestClient, there: Sequence[TaskManagerSummary]) -> str:
    """ "; 1 driver still there, until its job ends: report.py"."""
    drivers = _staying(there)
    if not drivers:
        return ""
    ids = {driver.jid for task_manager in there for driver in task_manager.emberkeep.drivers}
    names = [job.name for job in await client.jobs() if job.jid in ids and not job.state.is_globally_terminal]
    until_when = "its job ends" if drivers == 1 else "their jobs end"
    return f"; {counted(drivers, 'driver')} still there, until {until_when}: {', '.join(names)}".removesuffix(": ")


async def _say_waiting(client: RestClient, known: dict[str, str]) -> None:
    """Say which jobs wait for something, each once."""
    for job in await client.jobs():
        text = job.emberkeep.waiting
        if text and job.jid not in known:
            say(f"job {job.name} waits: {text}")
            known[job.jid] = text


def _moving(there: Iterable[TaskManagerSummary]) -> int:
    evacuations = (task_manager.emberkeep.evacuation for task_manager in there)
    return sum(evacuation.drivers_moving for evacuation in evacuations if evacuation is not None)


def _staying(there: Iterable[TaskManagerSummary]) -> int:
    """Drivers that stay until their jobs end. The place of one that has left an evacuated task manager is taken until
    its end is recorded, so places say this only where nothing is evacuated."""
    there = tuple(there)
    evacuations = [task_manager.emberkeep.evacuation for task_manager in there]
    if any(evacuation is not None for evacuation in evacuations):
        return sum(evacuation.drivers_staying for evacuation in evacuations if evacuation is not None)
    return _drivers(there)


def _left_text(there: Sequence[TaskManagerSummary]) -> str:
    """ "2 slots in use; 2 executors leave, 31 shuffle blocks and 0 cached blocks left; 1 driver moves"."""
    texts = [f"{counted(_in_use(there), 'slot')} in use"]
    evacuation = evacuation_text(there)
    return "; ".join([*texts, *([evacuation] if evacuation else [])])


def evacuation_text(there: Iterable[TaskManagerSummary]) -> str:
    """How far the evacuation of these task managers is, in words; "" where nothing leaves."""
    found = [
        task_manager.emberkeep.evacuation for task_manager in there if task_manager.emberkeep.evacuation is not None
    ]
    texts = []
    executors = sum(evacuation.executors for evacuation in found)
    if executors:
        shuffle = counted(sum(evacuation.shuffle_blocks for evacuation in found), "shuffle block")
        cached = counted(sum(evacuation.cached_blocks for evacuation in found), "cached block")
        bound = "at least " if any(evacuation.at_least for evacuation in found) else ""
        texts.append(f"{counted(executors, 'executor')} leaving with {bound}{shuffle} and {cached}")
    alone = sum(evacuation.executors_waiting for evacuation in found)
    if alone:
        texts.append(f"{alone} of them without another executor to hand over to")
    moving = sum(evacuation.drivers_moving for evacuation in found)
    if moving:
        texts.append(f"{counted(moving, 'driver')} moving")
    staying = sum(evacuation.drivers_staying for evacuation in found)
    if staying:
        texts.append(f"{counted(staying, 'driver')} staying until the job ends")
    return "; ".join(texts)
