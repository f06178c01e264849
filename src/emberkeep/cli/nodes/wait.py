"""Wait until nothing is left to do on a node."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from emberkeep.base.ids import TaskManagerId
from emberkeep.cli.messages import say
from emberkeep.cli.nodes.status import drivers_there, evacuation_text, slots_in_use
from emberkeep.cli.views.patience import Patience
from emberkeep.cli.wording import counted
from emberkeep.client.rest_client import RestClient
from emberkeep.protocol.rest_task_managers import TaskManagerSummary

UNHEARD_SECONDS = 15.0  # in which task managers register with a JobManager that has just taken over
_POLL = 0.5  # seconds


@dataclass(frozen=True)
class PlaceLook:
    """A JobManager's view of a place (a node or a task manager).

    ``at``: when it was read, in monotonic seconds. ``led``: for how many seconds this JobManager has been the leader.
    ``there``: the task managers at the place, with the times of their newest heartbeats. ``left``: the number of
    slots in use and of drivers that have to move.
    """

    at: float
    epoch: int
    led: float
    there: Mapping[TaskManagerId, int]
    left: int


class Quiet:
    """Decides, from successive looks at a place, when nothing is left there.

    A JobManager knows only what task managers report. So a missing task manager may still register: with a JobManager
    that has just taken over, or after its own restart. Therefore wait UNHEARD_SECONDS for it. A request for a slot or a
    driver may be sent before the block and arrive after it. Therefore the place counts as empty only after it has
    stayed empty until each of its task managers has sent another heartbeat.
    """

    def __init__(self, now: float) -> None:
        self._epoch: int | None = None
        self._unheard_until = now
        self._missed_since = {"": now}  # when each was last seen; "": the start, until one is seen
        self._heartbeats: dict[TaskManagerId, int] = {}  # newest heartbeats at the first look with nothing left

    def is_certain(self, look: PlaceLook) -> bool:
        """True if nothing is left at the place. Pass each look once, in order."""
        if look.epoch != self._epoch:
            self._epoch = look.epoch
            self._unheard_until = look.at + max(0.0, UNHEARD_SECONDS - look.led)
        if look.there:
            self._missed_since.pop("", None)
            self._missed_since.update(dict.fromkeys(look.there, look.at))
        if look.left:
            self._heartbeats = {}
            return False
        for task_manager, heartbeat in look.there.items():
            self._heartbeats.setdefault(task_manager, heartbeat)
        missing = [since for name, since in self._missed_since.items() if name not in look.there]
        if look.at < self._unheard_until or any(look.at - since < UNHEARD_SECONDS for since in missing):
            return False
        return all(heartbeat != self._heartbeats[name] for name, heartbeat in look.there.items())


async def there_now(client: RestClient, name: str, *, task_manager: bool) -> list[TaskManagerSummary]:
    """Return the registered task managers of the node ``name``, or the task manager ``name``."""
    return [
        other
        for other in await client.task_managers()
        if name == (other.id if task_manager else other.emberkeep.node_id)
    ]


async def wait_until_free(client: RestClient, name: str, *, task_manager: bool, patience: float | None = None) -> bool:
    """Return True once no slot at the place is in use and no driver has to move; False after ``patience`` seconds.

    Print what is left whenever that changes, and once for each waiting job what it waits for. Raises RetryLater if no
    JobManager answers for 5 minutes, or when ``patience`` is over.
    """
    began = time.monotonic()
    quiet, shown, answer = Quiet(began), "", Patience() if patience is None else Patience(began + patience)
    waiting: dict[str, str] = {}
    while True:
        there = await answer.of(lambda: there_now(client, name, task_manager=task_manager))
        # asked last, so this leader is no older than the one that listed them
        leader = await answer.of(client.leadership)
        look = PlaceLook(
            at=time.monotonic(),
            epoch=leader.epoch,
            led=(leader.now_ms - leader.started_ms) / 1000,
            there={other.id: other.time_since_last_heartbeat for other in there},
            left=slots_in_use(there) + _moving(there),
        )
        if quiet.is_certain(look):
            staying = await answer.of(lambda: _staying_text(client, there))  # noqa: B023 - it is used at once
            say(f"no slot of {name} is in use{staying}")
            await answer.of(lambda: _say_waiting(client, waiting))
            return True
        text = _left_text(there) if look.left else "no known work is left; waiting for task managers to confirm it"
        if look.left and text != shown:
            shown = text
            say(f"{name}: {text}")
        await answer.of(lambda: _say_waiting(client, waiting))
        if patience is not None and look.at - began >= patience:
            say(f"{name} is not free after {patience:g} s: {text}")
            return False
        await asyncio.sleep(_POLL)


async def _staying_text(client: RestClient, there: Sequence[TaskManagerSummary]) -> str:
    """Return the drivers that stay as "; 1 driver still there, until its job ends: report.py"; "" if none."""
    drivers = _staying(there)
    if not drivers:
        return ""
    ids = {driver.jid for task_manager in there for driver in task_manager.emberkeep.drivers}
    names = [job.name for job in await client.jobs() if job.jid in ids and not job.state.is_globally_terminal]
    until_when = "its job ends" if drivers == 1 else "their jobs end"
    return f"; {counted(drivers, 'driver')} still there, until {until_when}: {', '.join(names)}".removesuffix(": ")


async def _say_waiting(client: RestClient, known: dict[str, str]) -> None:
    """Print what each waiting job waits for, once for each job; ``known`` collects these jobs."""
    for job in await client.jobs():
        text = job.emberkeep.waiting
        if text and job.jid not in known:
            say(f"job {job.name} waits: {text}")
            known[job.jid] = text


def _moving(there: Iterable[TaskManagerSummary]) -> int:
    evacuations = (task_manager.emberkeep.evacuation for task_manager in there)
    return sum(evacuation.drivers_moving for evacuation in evacuations if evacuation is not None)


def _staying(there: Iterable[TaskManagerSummary]) -> int:
    """Return how many drivers stay until their jobs end.

    Count occupied driver places only if nothing is evacuated: the place of a driver that has left an evacuated task
    manager stays occupied until the driver's end is recorded.
    """
    there = tuple(there)
    evacuations = [task_manager.emberkeep.evacuation for task_manager in there]
    if any(evacuation is not None for evacuation in evacuations):
        return sum(evacuation.drivers_staying for evacuation in evacuations if evacuation is not None)
    return drivers_there(there)


def _left_text(there: Sequence[TaskManagerSummary]) -> str:
    """Return "2 slots in use; 2 executors leaving with 31 shuffle blocks and 0 cached blocks; 1 driver moving"."""
    texts = [f"{counted(slots_in_use(there), 'slot')} in use"]
    evacuation = evacuation_text(there)
    return "; ".join([*texts, *([evacuation] if evacuation else [])])
