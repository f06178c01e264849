"""The leader of a JobManager process: its actors, from the recovery of the jobs until one of them ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from emberkeep.base.errors import RetryLater
from emberkeep.jobmanager.blobs.server import BlobServer
from emberkeep.jobmanager.jobs.dispatcher import Dispatcher
from emberkeep.jobmanager.nodes.blocklist_handler import BlocklistHandler
from emberkeep.jobmanager.resources.resource_manager import ResourceManager
from emberkeep.jobmanager.resources.task_manager_supplier import TaskManagerSupplier
from emberkeep.jobmanager.term import Term


@dataclass(frozen=True)
class Leader:
    """The actors of one term. ``supplier``: None if operators start the task managers."""

    term: Term
    dispatcher: Dispatcher
    resources: ResourceManager
    blocklist: BlocklistHandler
    blobs: BlobServer
    supplier: TaskManagerSupplier | None

    async def run(self, recovery: Coroutine[Any, Any, None], seat: LeaderSeat) -> None:
        """Await ``recovery``, then hold ``seat`` until cancelled. Raises the error of the actor that ends first."""
        running = [
            asyncio.create_task(self.dispatcher.run(), name="dispatcher"),
            asyncio.create_task(self.resources.run(), name="resource-manager"),
            asyncio.create_task(self.blocklist.run(), name="blocklist"),
            asyncio.create_task(self.blobs.run(), name="blob-server"),
            asyncio.create_task(self.term.authority.run(), name="authority"),
            asyncio.create_task(self.term.authority.remind(), name="authority-reminder"),
        ]
        recovering = asyncio.create_task(recovery, name="recovery")
        try:
            # Serve task managers only once all jobs are known: anything that belongs to an unknown job counts as over.
            await asyncio.wait({recovering, *running}, return_when=asyncio.FIRST_COMPLETED)
            if recovering.done():
                recovering.result()
                seat.take(self)
                if self.supplier is not None:
                    running.append(asyncio.create_task(self.supplier.run(), name="task-manager-supplier"))
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in running:
                if task.done():
                    task.result()
        finally:
            seat.leave()
            for task in (recovering, *running):
                task.cancel()
            await asyncio.gather(recovering, *running, return_exceptions=True)

    def check_invariants(self) -> None:
        """Raise AssertionError if the state of an actor contradicts itself. For tests and the simulator."""
        self.dispatcher.check_invariants()
        self.resources.check_invariants()
        self.blocklist.check_invariants()


class LeaderSeat:
    """Holds the leader that answers requests in this process.

    Empty until the jobs are recovered, and again once this process stops leading.
    """

    def __init__(self) -> None:
        self._leader: Leader | None = None
        self._epoch = 0
        self._started_ms = 0
        self._taken = asyncio.Event()

    @property
    def epoch(self) -> int:
        """Epoch of the leader, or of the last one; 0 if this process has not led yet."""
        return self._epoch

    @property
    def started_ms(self) -> int:
        """When the current or last term as leader began, in Unix milliseconds; 0 if this process has not led yet."""
        return self._started_ms

    def take(self, leader: Leader) -> None:
        """Let ``leader`` answer requests from now on."""
        self._leader, self._epoch, self._started_ms = leader, leader.term.epoch, leader.term.started_ms
        self._taken.set()

    def leave(self) -> None:
        """Refuse all requests. Repeating it has no effect."""
        self._taken.clear()
        self._leader = None

    async def taken(self) -> None:
        """Return once a leader answers requests."""
        await self._taken.wait()

    @property
    def is_taken(self) -> bool:
        return self._leader is not None

    @property
    def leader(self) -> Leader:
        """The leader. Raises RetryLater while this process does not lead."""
        if self._leader is None:
            raise RetryLater(
                "this JobManager is not the leader", hint="it is starting or stopping: try again in a second"
            )
        return self._leader
