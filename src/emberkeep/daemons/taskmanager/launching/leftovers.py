"""The processes that the previous task manager process left running: taken over if they are wanted, else ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from collections.abc import Set as AbstractSet

import structlog

from emberkeep.adapters.processes.supervisor import KILLED_SECONDS, Leftover, ProcessSupervisor
from emberkeep.adapters.processes.table import variable_of
from emberkeep.base.errors import Fatal
from emberkeep.daemons.records.late_variables import VARIABLES_FILE, read_late_variables
from emberkeep.daemons.taskmanager.launching.starts import ProcessStarts
from emberkeep.daemons.taskmanager.process_places import ProcessPlaces, process_name
from emberkeep.spark.jvm.state_gateway_conf import GATEWAY_VARIABLE, TRUST_VARIABLE
from emberkeep.taskmanager.ports import ExecutorKey, ProcessKey

log = structlog.get_logger(__name__)

GATEWAY_VARIABLES = (GATEWAY_VARIABLE, TRUST_VARIABLE)  # of an executor that uses a state gateway
HANGING = "see whether a file system that they use does not answer"


class LeftoverProcesses:
    """Finds what an earlier task manager process has started here, and ends what nobody wants.

    Its ends go on after ``adopt`` if they take long, until ``leave``.
    """

    def __init__(self, supervisor: ProcessSupervisor, places: ProcessPlaces, starts: ProcessStarts) -> None:
        self._supervisor = supervisor
        self._places = places
        self._starts = starts
        self._endings: set[asyncio.Task[None]] = set()

    async def adopt(
        self, wanted: AbstractSet[ProcessKey], take_over: Callable[[ProcessKey, Leftover], None]
    ) -> dict[ProcessKey, int]:
        """Call ``take_over`` for each wanted process that runs, and end all others. Return the pids of the former."""
        keys = {process_name(key): key for key in wanted}
        alive: dict[ProcessKey, int] = {}
        unwanted: list[Leftover] = []
        for leftover in await self._supervisor.leftovers():
            key = keys.get(leftover.name)
            if key is None or key in alive or leftover.leader is None or not leftover.is_led:
                log.warning("ending a process that belongs to no recorded slot or driver", process=leftover.name)
                unwanted.append(leftover)
            elif await asyncio.to_thread(self._has_lost_its_gateway, key, leftover.leader.pid):
                log.warning(
                    "ending an executor whose state gateway has ended or moved: its slot gets another executor",
                    process=leftover.name,
                )
                unwanted.append(leftover)
            else:
                take_over(key, leftover)
                alive[key] = leftover.leader.pid
        await self._end(unwanted)
        return alive

    async def _end(self, leftovers: list[Leftover]) -> None:
        """Kill these processes, and wait until they have ended, but not for ever.

        One that waits for a mount that hangs may never end. It runs no code any longer, and the supervisor watches it.
        """
        endings = {asyncio.create_task(self._supervisor.end_leftover(each, 0.0)): each.name for each in leftovers}
        if not endings:
            return
        self._endings.update(endings)
        for ending in endings:
            ending.add_done_callback(self._ended)
        _, late = await asyncio.wait(endings, timeout=KILLED_SECONDS)
        if late:
            log.error(
                "killed processes of the previous task manager process do not end; going on without waiting for them",
                processes=sorted(endings[each] for each in late),
                hint=HANGING,
            )

    def _ended(self, ending: asyncio.Task[None]) -> None:
        self._endings.discard(ending)
        if not ending.cancelled() and (error := ending.exception()) is not None:
            log.warning("a leftover process was killed, but its end was not seen", reason=str(error))

    def _has_lost_its_gateway(self, key: ProcessKey, pid: int) -> bool:
        """True if an executor uses a gateway that this process does not serve, or serves at another address.

        A gateway that now encrypts, or no longer does, counts as another. The executor's tasks would fail
        forever. A driver has its own gateway.
        """
        if not isinstance(key, ExecutorKey):
            return False
        try:
            late = read_late_variables(self._places.directory(key) / VARIABLES_FILE)
        except Fatal as error:  # the job can write there, so this must not keep the task manager from starting
            log.error("the record of an executor's variables is damaged", process=process_name(key), reason=str(error))
            return True
        used = {name: variable_of(pid, name) if late is None else late.get(name) for name in GATEWAY_VARIABLES}
        if used[GATEWAY_VARIABLE] is None:
            return False
        served = self._starts.added_environment(key, None)
        return any(value != served.get(name) for name, value in used.items())

    def leave(self) -> None:
        """Wait for no end any longer."""
        for ending in self._endings:
            ending.cancel()
