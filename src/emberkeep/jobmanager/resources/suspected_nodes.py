"""Blocks the nodes that the fault watch suspects. Part of the ResourceManager."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from emberkeep.base.actors import Actor, ActorPart, told
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.ids import JobId
from emberkeep.blocklist.model import BlockedNode, Place
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.jobmanager.nodes.fault_watch import FaultWatch
from emberkeep.jobmanager.resources.registrations import Registrations
from emberkeep.jobmanager.steady_clock import SteadyClock

log = structlog.get_logger(__name__)


class SuspectedNodes(ActorPart):
    """Asks the blocklist's owner to block suspected nodes, one batch of entries at a time."""

    def __init__(self, owner: Actor, clock: SteadyClock) -> None:
        super().__init__(owner)
        self._clock = clock
        self._faults: FaultWatch | None = None  # None: bad nodes are not detected
        self._block_node: Callable[[BlockedNode], Awaitable[object]] | None = None
        self._blocking = False

    def detect(self, faults: FaultWatch, block: Callable[[BlockedNode], Awaitable[object]]) -> None:
        """Block the nodes that ``faults`` suspects. Call before the actor runs. ``block`` may raise EmberkeepError."""
        self._faults, self._block_node = faults, block

    @told
    def unblocked(self, place: Place) -> None:
        """Note that an operator has unblocked ``place``: detection does not suspect the node for a while."""
        self.judge(lambda faults, now: faults.unblocked(place, now))

    @told
    def succeeded(self, job_id: JobId) -> None:
        """Note that a job has succeeded."""
        self.judge(lambda faults, _: faults.succeeded(job_id))

    def judge(self, say: Callable[[FaultWatch, float], None]) -> None:
        """If there is a fault watch, call ``say`` with it and the time in seconds. Called in a turn of the actor."""
        if self._faults is not None:
            say(self._faults, self._clock.now())

    def block(self, registrations: Registrations, places: BlockedPlaces) -> None:
        """Ask to block the suspected nodes that have a registered task manager and are not in ``places`` yet.

        Called in a turn of the actor.
        """
        if self._faults is None or self._block_node is None or self._blocking:
            return
        entries = self._faults.entries(registrations.nodes(), places, self._clock.now(), self._clock.now_ms())
        if entries:
            self._blocking = True
            self._owner.start_effect("block-suspects", self._block_all(self._block_node, entries), deadline=None)

    async def _block_all(self, block: Callable[[BlockedNode], Awaitable[object]], entries: list[BlockedNode]) -> None:
        for entry in entries:
            try:
                await block(entry)
            except EmberkeepError as error:
                log.warning("cannot block a suspected node", node=entry.id, reason=str(error))
            else:
                log.warning("blocked a suspected node temporarily", node=entry.id, reason=entry.cause)
        self._blocking = False
