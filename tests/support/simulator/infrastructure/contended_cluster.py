"""A cluster whose JobManagers contend: a new one may lead before the old one knows that it is no longer the leader."""

from __future__ import annotations

import asyncio

from emberkeep.base.errors import Conflict
from emberkeep.jobmanager.service import JobManagerService
from tests.support.simulator.cluster import ClusterPlan, SimCluster
from tests.support.simulator.machines import Process
from tests.support.simulator.network import Listener
from tests.support.simulator.virtual_loop import VirtualLoop, seeded_random

MEAN_PAUSE = 9.0  # seconds between two elections
LEAST_PAUSE = 3.0
LONGEST_IGNORANCE = 25.0  # seconds until the deposed leader learns of the election
LONGEST_SUSPENSION = 25.0  # seconds; well beyond the heartbeat timeout and the lease of drivers
LONGEST_LATENESS = 2.0  # seconds until all others have found the new leader; well below the lease of drivers


class ContendedCluster(SimCluster):
    """A cluster in which a new JobManager may become the leader while the old one is alive."""

    def __init__(self, loop: VirtualLoop, plan: ClusterPlan) -> None:
        super().__init__(loop, plan)
        self._rng = seeded_random(plan.seed, "election")
        self._deposed: set[Process] = set()

    async def contend(self) -> None:
        """Hold elections until cancelled."""
        while True:
            await asyncio.sleep(LEAST_PAUSE + self._rng.expovariate(1.0 / MEAN_PAUSE))
            self.suspend_for_a_moment() if self._rng.random() < 0.2 else self.grant_to_another()

    def heal(self) -> None:
        """End all deposed leaders and give the newest one access to the store."""
        for process in list(self._deposed):
            self._revoke(process)
        self.store.severed.clear()
        if self.jm_service is not None:
            self.jm_service.resume()

    def suspend_for_a_moment(self) -> None:
        """Suspend the leader's session: for some time it cannot confirm that it is the leader."""
        service = self.jm_service
        if service is not None:
            self.history.add("election", "the leader's session is suspended")
            self.history.count("election: suspended")
            service.pause()
            process = self.jm_process
            assert process is not None, "its service runs"
            self.store.sever(process)
            self.loop.call_later(self._rng.uniform(0.5, LONGEST_SUSPENSION), self._reconnect, process, service)

    def _reconnect(self, process: Process, service: JobManagerService) -> None:
        self.store.severed.pop(process, None)
        service.resume()

    def grant_to_another(self) -> None:
        before = self.jm_process
        assert before is not None, "there is a leader from the start"
        frozen = self._rng.random() < 0.3
        self.history.add("election", f"another JobManager is granted what pid {before.pid} has")
        self.history.count("election: granted to another")
        self._deposed.add(before)
        old = self.network.hand_over(self.jm_address)
        self.store.disk.crash()
        self.store.leader = None
        self.jm_process = None
        self.start_job_manager()
        ignorant = self._rng.uniform(0.0, LONGEST_IGNORANCE)
        if frozen:
            before.party.scope.freeze()
            self.loop.call_later(ignorant * 0.7, before.party.scope.thaw)
        elif old is not None:
            new = self.network.hand_over(self.jm_address, to=old)
            self.loop.call_later(self._rng.uniform(0.0, LONGEST_LATENESS), self._found, self.jm_lives, new)
        self.loop.call_later(ignorant, self._revoke, before)

    def _found(self, lives: int, handler: Listener | None) -> None:
        """Let all others find a new leader, unless a newer one has followed: nobody would find that one any more."""
        if self.jm_lives == lives:
            self.network.hand_over(self.jm_address, handler)

    def _revoke(self, process: Process) -> None:
        """End a deposed leader that learns at last that it is no longer the leader."""
        self._deposed.discard(process)
        if process.alive:
            self.history.count("election: revoked")
            self.machines.kill(process)

    def _main_ended(self, process: Process, done: asyncio.Task[None]) -> None:
        error = None if done.cancelled() else done.exception()
        if process in self._deposed and isinstance(error, Conflict) and process.alive:
            self.history.count("election: deposed leader refused by the store")
            self.machines.exit(process, 0)
        else:
            super()._main_ended(process, done)
