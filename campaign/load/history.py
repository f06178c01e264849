"""Plays one history under load: clients at full speed, a fuzzer, large uploads, and leaders that are lost."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import random
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec

from campaign.load.clients import BusyClient, LargeFile, Moved, Uploader
from campaign.load.fuzzer import Fuzzer
from campaign.load.record import LoadRecord
from campaign.processes.calls import Answered, Calls, NotDone, Unknown
from campaign.processes.clients import Client, ClientsWorld, SubmittedJob
from campaign.processes.cluster import RealCluster
from campaign.processes.history import SETTLE_SECONDS, Ending, recorded, settle_members
from campaign.processes.jobs import PAUSE, prepared_job
from campaign.processes.plan import HistoryPlan
from campaign.processes.recording import JOBS, Recorder
from campaign.processes.strikes import Striker
from emberkeep.base.configuration.options.task_managers import TASK_MANAGER_NODE

UPLOADERS = 2
_SETTINGS = {"jobstore.max-capacity": "100000"}  # no job that has ended may be forgotten before it is judged
_SHARE_THAT_RUNS = 0.03  # of the jobs; the others wait until they are cancelled
_RUNNING_PER_SECOND = 0.1  # a driver's start takes two seconds of processor time
_PARKED_MEMORY = "100g"  # of a driver; only one task manager has so much, and its node is blocked
_PARKING_MEMORY = "200g"  # of that task manager; no driver ever takes any of it
_PLACES = 40  # nodes and task managers that are blocked; none of them exists
_LOOKS = 0.5  # seconds between two looks at whether all processes live
_PIECE = 1 << 20


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """How much a history asks for. ``blob_bytes``: size of a large file."""

    clients: int = 50
    blob_bytes: int = 64 << 20


def load_cluster(directory: Path) -> RealCluster:
    """Return a cluster for one history, with a task manager that only parked jobs wait for."""
    cluster = RealCluster(directory, zookeepers=1, settings=_SETTINGS)
    cluster.task_managers[-1].settings["taskmanager.memory.process.size"] = _PARKING_MEMORY
    return cluster


async def play_load(cluster: RealCluster, plan: HistoryPlan, load: Load, place: Path) -> LoadRecord:
    """Play a history on a ``load_cluster``. ``place``: an empty directory, for what its jobs do."""
    await settle_members(cluster)
    recorder, replies, moved = Recorder(), list[Answered](), Moved()
    async with Calls(cluster.token, replies.append) as calls:
        await _park(calls, cluster)
        jobs = _Jobs(place, plan)
        places = [(kind, f"away-{number}") for kind in ("nodes", "taskmanagers") for number in range(_PLACES // 2)]
        world = ClientsWorld(calls, cluster.urls, places, recorder, jobs.make)
        clients = [BusyClient(f"client-{n}", world, _chance(plan, f"client-{n}")) for n in range(load.clients)]
        uploaders = [
            Uploader(f"uploader-{n}", world, _chance(plan, f"uploader-{n}"), jobs.large(n, load.blob_bytes), moved)
            for n in range(UPLOADERS)
        ]
        paths = await _paths(calls, cluster)
        operations = [(method.upper(), path) for path, methods in paths.items() for method in methods]
        example = msgspec.json.encode(jobs.example())
        fuzzer = Fuzzer(cluster.urls, cluster.token, operations, example, _chance(plan, "fuzzer"), replies.append)
        striker = Striker(cluster, world, [*clients])
        began = time.monotonic()
        until = began + plan.seconds
        watch = _Watch(cluster)
        async with watch.running():
            async with asyncio.TaskGroup() as group:
                group.create_task(striker.play(plan.faults, began))
                group.create_task(fuzzer.run(until))
                for client in (*clients, *uploaders):
                    group.create_task(client.run(until))
            loaded = len(replies)
            ending = Ending(world)
            ends = await ending.run()
            world.jobs += [job for each in uploaders for job in each.jobs]
            await _list_all(world)
        problems = [*recorder.unexpected, *striker.problems, *ending.problems, *watch.problems]
        problems += [problem for each in clients for problem in each.problems]
        problems += [problem for each in uploaders for problem in each.problems]
    history = recorded(plan, recorder, striker, world, ends, problems)
    return LoadRecord(
        history=history,
        replies=tuple(replies[:loaded]),
        paths=paths,
        fuzzed=dict(fuzzer.counts),
        uploaded=moved.uploaded,
        removed=moved.removed,
        waits=tuple(wait for each in clients for wait in each.waits),
    )


def _chance(plan: HistoryPlan, name: str) -> random.Random:
    return random.Random(f"{plan.seed}/load/{name}")


async def _paths(calls: Calls, cluster: RealCluster) -> dict[str, dict[str, Any]]:
    """Return what the REST API can do, as it says itself: the statuses that each resource may reply with."""
    reply = await calls.call("GET", cluster.urls[0], "/openapi.json")
    return {
        path: {
            method: {"responses": dict.fromkeys(operation["responses"])}
            for method, operation in operations.items()
            if "responses" in operation  # the others say something about all of them
        }
        for path, operations in reply.body["paths"].items()
    }


async def _park(calls: Calls, cluster: RealCluster) -> None:
    """Block the node on which parked jobs would run. Raises TimeoutError."""
    node = cluster.task_managers[-1].settings[TASK_MANAGER_NODE.key]
    body = {"action": "MARK_BLOCKED", "cause": "jobs are parked", "allowMerge": True}
    async with asyncio.timeout(SETTLE_SECONDS):
        while True:
            with contextlib.suppress(NotDone, Unknown):
                if (await calls.call("PUT", cluster.urls[0], f"/blocklist/nodes/{node}", body)).status in (201, 202):
                    return
            await asyncio.sleep(_LOOKS)


async def _list_all(world: ClientsWorld) -> None:
    """Record what the cluster shows of each job in the end. Raises TimeoutError."""
    last = Client("after the end", world, random.Random(0))
    async with asyncio.timeout(SETTLE_SECONDS):
        while not any(each.client == last.name for each in reversed(world.recorder.histories[JOBS])):
            await last.list_jobs(parked=True)


class _Watch:
    """Notices when a process ends that nothing has struck. ``problems``: those that have."""

    def __init__(self, cluster: RealCluster) -> None:
        self.problems: list[str] = []
        self._cluster = cluster

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch while the block runs."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            self._look()

    async def _run(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(_LOOKS)

    def _look(self) -> None:
        for member in self._cluster.members:
            if member.busy or member.daemon is None:
                continue
            code = member.daemon.process.poll()
            if code is not None:
                problem = f"{member.name} (process {member.pid}) has ended by itself with {code}"
                if problem not in self.problems:
                    self.problems.append(problem)


class _Jobs:
    """Makes the jobs of a history: most are parked, some run."""

    def __init__(self, place: Path, plan: HistoryPlan) -> None:
        self._place = place
        self._seed = plan.seed
        self._chance = _chance(plan, "jobs")
        self._left = max(2, round(_RUNNING_PER_SECOND * plan.seconds))
        self._numbers: Iterator[int] = itertools.count(1)
        place.mkdir(parents=True)
        payload = place / "payload.py"
        payload.write_text(f"# {plan.seed}\n", encoding="ascii")
        self._parked = prepared_job((str(place),), payload, memory=_PARKED_MEMORY)

    def example(self) -> Any:
        """Return a submission that would be right."""
        return self._parked.submission

    def make(self) -> SubmittedJob:
        """Return a job that is not submitted yet."""
        number = next(self._numbers)
        key = f"{self._seed}/{number}"
        if self._left == 0 or self._chance.random() > _SHARE_THAT_RUNS:
            return SubmittedJob(key, self._parked, self._place / "parked", 0, is_parked=True)
        self._left -= 1
        place = self._place / f"job-{number}"
        place.mkdir()
        payload = place / "payload.py"
        payload.write_text(f"# {self._chance.randbytes(500).hex()}\n", encoding="ascii")
        entries = self._chance.randint(30, 150)
        digest = hashlib.sha256(payload.read_bytes()).hexdigest()
        arguments = (str(place), str(entries), str(PAUSE), payload.name, digest)
        return SubmittedJob(key, prepared_job(arguments, payload), place, entries)

    def large(self, uploader: int, size: int) -> LargeFiles:
        return LargeFiles(self._place, f"{self._seed}/large-{uploader}", size)


class LargeFiles:
    """Makes the files of one uploader, each with other content."""

    def __init__(self, place: Path, name: str, size: int) -> None:
        self._place = place
        self._name = name
        self._size = size
        self._chance = random.Random(name)
        self._numbers: Iterator[int] = itertools.count(1)

    def __call__(self) -> LargeFile:
        number, digest = next(self._numbers), hashlib.sha256()
        path = self._place / f"{self._name.replace('/', '-')}-{number}.py"
        with path.open("wb") as file:
            for begin in range(0, self._size, _PIECE):
                piece = self._chance.randbytes(min(_PIECE, self._size - begin))
                digest.update(piece)
                file.write(piece)
        prepared = prepared_job((str(self._place),), path, memory=_PARKED_MEMORY)
        job = SubmittedJob(f"{self._name}/{number}", prepared, self._place / "parked", 0, is_parked=True)
        return LargeFile(job, path, digest.hexdigest(), self._size)
