"""Applies planned faults to a real cluster, and undoes those that last."""

from __future__ import annotations

import asyncio
import hashlib
import random
import signal
import time

import msgspec

from campaign.processes.calls import BREAKABLE, NotDone, Unknown
from campaign.processes.clients import Client, ClientsWorld
from campaign.processes.cluster import Member, RealCluster, send, stand_still
from campaign.processes.gateways.strikes import GatewayStrikes
from campaign.processes.hosts import Hosts
from campaign.processes.network_strikes import NetworkStrikes
from campaign.processes.plan import NETWORK_KINDS, TRANSFER_KINDS, PlannedFault
from campaign.processes.transfers.hits import NO_HIT, Hit, hit_at
from campaign.processes.transfers.running import RunningTransfers
from campaign.processes.transfers.strikes import TransferStrikes
from emberkeep.base.errors import EmberkeepError
from emberkeep.client.clusters.zookeeper_ensemble import leads

_ASK_SECONDS = 1.0
_MOST_FROZEN = 3  # processes of a kind at once: a cluster of which nothing runs shows little
_AGAIN = 3  # times that a start is tried


class Strike(msgspec.Struct, frozen=True, kw_only=True):
    """A fault that was applied. ``at`` and ``until``: its beginning and its end, by the history's clock.

    ``transfers``: where it has hit BLOB transfers that were running, see ``transfers.hits``; only known on hosts.
    """

    kind: str
    target: str
    at: float
    until: float
    transfers: tuple[str, ...] = ()


class Striker:
    """``applied``: what was done. ``problems``: members that could not be started again.

    ``hosts``: of the members, if their network can fail.
    """

    def __init__(
        self, cluster: RealCluster, world: ClientsWorld, clients: list[Client], hosts: Hosts | None = None
    ) -> None:
        self.applied: list[Strike] = []
        self.problems: list[str] = []
        self._cluster = cluster
        self._world = world
        self._clients = clients
        self._busy: set[int] = set()  # pids of drivers that a fault holds
        self._running: list[asyncio.Task[None]] = []
        self._leader_url = ""
        self._hosts = hosts
        addresses = {} if hosts is None else {each.name: hosts.address(each.name) for each in cluster.members}
        self._transfers = RunningTransfers(cluster, addresses)
        self._network = None if hosts is None else NetworkStrikes(hosts, self._choose, self._transfers)
        self._aimed = None if hosts is None else TransferStrikes(cluster, hosts, self._transfers, self._start)
        self._gateways = GatewayStrikes(cluster, world, self._start, self._transfers)

    async def play(self, faults: tuple[PlannedFault, ...], began: float) -> None:
        """Apply each fault at its time, and undo it when it is over. Then undo everything."""
        asking = asyncio.create_task(self._watch_leader())
        try:
            for fault in faults:
                await asyncio.sleep(max(0.0, began + fault.at - time.monotonic()))
                self._running.append(asyncio.create_task(self._strike(fault)))
            await asyncio.gather(*self._running)
        finally:
            asking.cancel()
            for task in self._running:
                task.cancel()
            self._cluster.thaw_all()
            if self._hosts is not None:
                await self._hosts.heal()
        await asyncio.gather(*(self._start(member) for member in self._cluster.members))

    async def _strike(self, fault: PlannedFault) -> None:
        chance = random.Random(f"{fault.number}/{fault.kind}")
        verb, _, what = fault.kind.partition(" ")
        at = time.monotonic()
        if verb == "abandon":
            self._strike_client(fault, chance)
            return
        if fault.kind in NETWORK_KINDS:
            hit = NO_HIT if self._network is None else await self._network.strike(fault, chance)
        elif fault.kind in TRANSFER_KINDS:
            hit = NO_HIT if self._aimed is None else await self._aimed.strike(fault, chance)
        elif what == "gateway-driver":
            hit = await self._gateways.kill_driver(chance)
        elif what.startswith("gateway"):
            hit = await self._gateways.strike(fault, chance)
        elif what == "driver":
            hit = Hit(await self._strike_driver(verb, fault, chance), at)
        elif verb == "break":
            hit = Hit(await self._strike_request(what, chance), at)
        else:
            hit = await self._strike_member(verb, what, fault, chance)
        if hit.target:
            until = time.monotonic()
            self.applied.append(
                Strike(kind=fault.kind, target=hit.target, at=hit.at, until=until, transfers=hit.transfers)
            )

    # --- processes ----------------------------------------------------------------------------------------------------

    async def _strike_member(self, verb: str, what: str, fault: PlannedFault, chance: random.Random) -> Hit:
        at = time.monotonic()
        members = await self._choose(what, chance)
        names = [member.name for member in members]
        transfers = hit_at(names, self._transfers.now())
        for member in members:
            member.busy = True
        try:
            if verb == "kill":
                for member in members:
                    self._cluster.kill(member)
                await asyncio.sleep(fault.seconds)
                # Together: a server of an ensemble is not ready before most of them run.
                await asyncio.gather(*(self._start(member) for member in members))
            else:
                pids = [member.pid for member in members]
                if what == "node":
                    pids += await asyncio.to_thread(self._cluster.processes, *members)
                await stand_still(pids, fault.seconds, stutters=verb == "stutter")
        finally:
            for member in members:
                member.busy = False
        return Hit(", ".join(names), at, transfers)

    async def _choose(self, what: str, chance: random.Random) -> list[Member]:
        """Return whom a fault strikes: one member, or most of the ZooKeeper servers; [] if there is none now."""
        cluster = self._cluster
        servers = [each for each in cluster.zookeepers if not each.busy and cluster.is_running(each)]
        if what == "zookeeper-quorum":
            most = len(cluster.zookeepers) // 2 + 1
            return chance.sample(servers, most) if len(servers) >= most else []
        leading = [each for each in cluster.job_managers if self._leader_url.endswith(f":{each.settings['rest.port']}")]
        groups = {
            "leader": leading,
            "standby": [each for each in cluster.job_managers if each not in leading],
            "zookeeper": cluster.zookeepers,
        }
        if what == "zookeeper-leader":
            groups[what] = [each for each in servers if each.server is not None and await leads(each.server)]
        kind = groups.get(what, cluster.task_managers)
        if sum(each.busy for each in kind) >= _MOST_FROZEN:
            return []
        free = [each for each in kind if not each.busy and cluster.is_running(each)]
        return [chance.choice(free)] if free else []

    async def _start(self, member: Member) -> None:
        problem = ""
        for _ in range(_AGAIN):
            try:
                await self._cluster.start(member)
            except EmberkeepError as error:
                problem = str(error)
            else:
                return
        self.problems.append(f"{member.name} does not start: {problem}")

    async def _strike_driver(self, verb: str, fault: PlannedFault, chance: random.Random) -> str:
        pids = [pid for pid in await asyncio.to_thread(self._cluster.drivers) if pid not in self._busy]
        if not pids:
            return ""
        pid = chance.choice(pids)
        if verb == "kill":
            return str(pid) if send(pid, signal.SIGKILL) else ""
        self._busy.add(pid)
        try:
            was_there = await stand_still([pid], fault.seconds, stutters=verb == "stutter")
        finally:
            self._busy.discard(pid)
        return str(pid) if was_there else ""

    # --- requests -----------------------------------------------------------------------------------------------------

    def _strike_client(self, fault: PlannedFault, chance: random.Random) -> None:
        """Let a client abandon its next request. Only if that has no reply until then, the fault is applied."""
        client = chance.choice(self._clients)

        def abandoned() -> None:
            at = time.monotonic()
            self.applied.append(Strike(kind=fault.kind, target=client.name, at=at, until=at))

        client.hurry = abandoned

    async def _strike_request(self, what: str, chance: random.Random) -> str:
        base = chance.choice(self._world.urls)
        if what == "upload":
            return await self._break_upload(base, f"{chance.getrandbits(128):032x}", chance)
        large = [
            (job, artefact.sha256)
            for job in self._world.jobs
            for artefact in job.prepared.submission.artefacts
            if job.candidates and artefact.size >= BREAKABLE
        ]
        if not large:
            return ""
        job, sha256 = chance.choice(large)
        job_id = chance.choice(job.candidates)
        return job_id if await self._world.calls.break_download(base, f"/jobs/{job_id}/blobs/p-{sha256}") else ""

    async def _break_upload(self, base: str, job_id: str, chance: random.Random) -> str:
        content = chance.randbytes(200_000)
        calls, sha256 = self._world.calls, hashlib.sha256(content).hexdigest()
        try:
            await calls.call(
                "POST", base, f"/jobs/{job_id}/blobs", {"blobs": [{"sha256": sha256, "size": len(content)}]}
            )
            await calls.upload(base, f"/jobs/{job_id}/blobs/p-{sha256}", content, whole=False)
        except NotDone:
            return ""
        except Unknown:
            return job_id
        return ""

    async def _watch_leader(self) -> None:
        """Know which JobManager leads, as it says itself."""
        while True:
            for url in self._world.urls:
                try:
                    reply = await self._world.calls.call("GET", url, "/leader", seconds=_ASK_SECONDS)
                except (NotDone, Unknown):
                    continue
                if reply.status == 200:
                    self._leader_url = url
            await asyncio.sleep(0.2)
