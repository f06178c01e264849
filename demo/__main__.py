"""Run the demonstration: a job, five faults, a savepoint, a drain.

The exit code is 0 if the output equals the batch answer.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from demo.commands import Cluster, CommandFailed
from demo.ending import Ending
from demo.errors import DemoFailed
from demo.faults import (
    EXECUTORS,
    AgentKilled,
    Fault,
    LeaderKilled,
    NodeEvacuated,
    NodeKilled,
    NotKept,
    evacuate_node,
    kill_agent,
    kill_executor,
    kill_leader,
    kill_node,
    registered,
)
from demo.feeder import ROOT, feeding
from demo.progress import describe
from demo.screen import Screen
from demo.takeover import new_leader
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.ids import JobId
from emberkeep.client.rest_client import RestClient
from emberkeep.protocol.rest_jobs import JobExtension
from emberkeep.protocol.rest_task_managers import TaskManagerSummary
from examples.flights import verify

NODES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
JOB_MANAGERS = 2
FILES = 200
FEED_SECONDS = 60.0
LIMIT_SECONDS = 600.0
FIRST_FAULT_BATCH = 1
BATCHES_BETWEEN = 1
FAULTS = 5  # an executor, the leading JobManager, a task manager's agent, a node; a node that is evacuated
LONGEST_PAUSE = 20.0  # seconds from a recovery to the next fault, also without another batch
FIRST_FILES_PER_BATCH = 6  # batches for all faults
NEXT_FILES_PER_BATCH = 80  # and then the rest at once
_POLL = 0.5

# Spark's JVMs live for a minute or two: optimizing code for a longer life would take more time than it saves.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

DEFINITIONS = (
    "rest.port=0",
    # Loopback is fast, so detect a dead node within seconds.
    "heartbeat.interval=1s",
    "heartbeat.timeout=5s",
    "state.backend.local-recovery=true",
    # Six warm-ups would take longer than the demonstration.
    "taskmanager.standby.drivers=0",
    "taskmanager.standby.executors=0",
)


class Story:
    """One job's run: inject one fault after another, and wait for the recovery from each."""

    def __init__(self, cluster: Cluster, client: RestClient, job_id: JobId, screen: Screen) -> None:
        self._cluster = cluster
        self._client = client
        self._job_id = job_id
        self._screen = screen
        self._open: Fault | None = None
        self._injected_at = 0.0
        self._recovered_at = math.inf
        self.faults: list[Fault] = []
        self.recoveries: list[float] = []

    async def run(self) -> None:
        """Watch the job until it has recovered from all faults. Raises DemoFailed, NotKept."""
        next_batch = FIRST_FAULT_BATCH
        while self._screen.seconds < LIMIT_SECONDS:
            job = await self._client.job(self._job_id)
            self._screen.progress(describe(job))
            if job.state.is_globally_terminal:
                raise DemoFailed(f"the job ended {job.state.value}: {job.emberkeep.root_cause}")
            batch = max((query.batch_id for query in job.emberkeep.queries), default=-1)
            if self._open is not None:
                outcome = self._open.outcome(job)
                if outcome is not None:
                    self._recovered_at = self._screen.seconds
                    self.recoveries.append(self._recovered_at - self._injected_at)
                    self._screen.event(f"recovered in {self.recoveries[-1]:.1f} s: {outcome}", "green")
                    if isinstance(self._open, NodeEvacuated):
                        await asyncio.to_thread(self._cluster.unblock, self._open.node)
                        self._screen.event(f"{self._open.node} is unblocked: it is given work again")
                    self._open, next_batch = None, batch + BATCHES_BETWEEN
            elif len(self.recoveries) == FAULTS:
                self._screen.event(
                    f"recovered from all {FAULTS} faults in attempt {job.emberkeep.attempt} of the driver"
                )
                return
            elif batch >= next_batch or self._screen.seconds - self._recovered_at > LONGEST_PAUSE:
                await self._inject(job.emberkeep)
            await asyncio.sleep(_POLL)
        raise DemoFailed(f"the job did not recover from all faults within {LIMIT_SECONDS:.0f} s")

    async def _inject(self, job: JobExtension) -> None:
        if len(self.faults) >= FAULTS or len(registered(job)) < EXECUTORS:
            return
        fault = await self._next_fault(job)
        if fault is None:
            return
        self._injected_at = self._screen.seconds
        self._screen.event(fault.text, "bold red")
        self.faults.append(fault)
        self._open = fault
        if isinstance(fault, LeaderKilled):
            leader = await new_leader(self._cluster, fault.leader)
            seconds = self._screen.seconds - self._injected_at
            name, url = self._cluster.job_manager(leader).name, self._cluster.record().url_of(leader)
            self._screen.event(f"{name} is the leader after {seconds:.1f} s, its web page: {url}", "green")
        if isinstance(fault, AgentKilled | NodeKilled):
            await asyncio.to_thread(up, self._cluster)
            self._screen.event(f"started {fault.task_manager} again with `emberkeep cluster up`")

    async def _next_fault(self, job: JobExtension) -> Fault | None:
        match len(self.faults):
            case 0:
                return kill_executor(job)
            case 1:
                leader = (await self._client.overview()).emberkeep.job_manager
                return kill_leader(job, self._cluster, leader)
            case 2:
                return kill_agent(job, self._cluster)
            case 3:
                return kill_node(job, self._cluster)
            case _:
                return await asyncio.to_thread(evacuate_node, job, self._cluster)


async def play(directory: Path, screen: Screen) -> None:
    """Run everything up to the comparison. Raises DemoFailed, NotKept, CommandFailed, EmberkeepError."""
    flights, output = directory / "flights", directory / "delays"
    cluster = Cluster(directory / "cluster")
    with feeding(flights, FILES, FEED_SECONDS):
        screen.event(f"feeding 336,776 flights of 2013 as {FILES} files over {FEED_SECONDS:.0f} s")
        try:
            screen.event(
                f"starting a cluster: ZooKeeper, {JOB_MANAGERS} JobManagers, task managers on {', '.join(NODES)}"
            )
            await asyncio.to_thread(up, cluster)
            screen.event(f"cluster is up, its web page: {cluster.record().url} (login: `emberkeep cluster status`)")
            job_id = await asyncio.to_thread(submit, cluster, flights, output)
            screen.event(f"submitted examples/flights/pipeline.py, unchanged PySpark, as job {job_id}")
            async with cluster.client() as client:
                await Story(cluster, client, job_id, screen).run()
                screen.event(state_read(await client.task_managers()))
                ending = Ending(cluster, client, directory / "savepoints", screen)
                savepoint = await ending.suspend(job_id)
                job_id = await asyncio.to_thread(submit, cluster, flights, output, savepoint)
                screen.event(f"submitted the same script from that savepoint, as job {job_id}")
                await ending.drain(job_id)
        finally:
            await asyncio.to_thread(cluster.down)
            screen.event("cluster is down")
    screen.event("computing the batch answer over the same files with pandas")
    answer = verify.batch_answer(verify.read_input(flights), drained=True)
    comparison = verify.compare(answer.windows, verify.read_output(output))
    screen.event(verify.report(answer, comparison))
    if comparison.mismatches or not len(answer.windows):
        raise DemoFailed("the output differs from the batch answer")


def state_read(task_managers: Sequence[TaskManagerSummary]) -> str:
    """Say where replaced executors read their state."""
    gateways = [each.emberkeep.state_gateway for each in task_managers if each.emberkeep.state_gateway is not None]
    local, remote = (sum(getattr(gateway, name) for gateway in gateways) for name in ("hits", "misses"))
    local_bytes = sum(gateway.local_read_bytes for gateway in gateways)
    remote_bytes = sum(gateway.remote_read_bytes for gateway in gateways)
    return (
        f"state read by executors: {local} files ({local_bytes / 1e6:.1f} MB) from the node's own disk, "
        f"{remote} ({remote_bytes / 1e6:.1f} MB) from the shared storage"
    )


def up(cluster: Cluster) -> None:
    """Start the daemons that are not running. Raises CommandFailed.

    Each node has one slot: with two, both executors could end up beside the driver, and no other node to evacuate would
    be left.
    """
    cluster.up(NODES, 1, JOB_MANAGERS, DEFINITIONS)


def submit(cluster: Cluster, flights: Path, output: Path, savepoint: str | None = None) -> JobId:
    """Submit the pipeline with two small executors, new or from a savepoint. Raises CommandFailed."""
    spark = [
        *([] if savepoint is None else ["--from-savepoint", savepoint]),
        "--driver-memory",
        "512m",
        "--num-executors",
        str(EXECUTORS),
        "--executor-cores",
        "1",
        "--executor-memory",
        "512m",
        *(
            part
            for which in ("driver", "executor")
            for part in ("--conf", f"spark.{which}.defaultJavaOptions={JAVA_OPTIONS}")
        ),
    ]
    pipeline = str(ROOT / "examples/flights/pipeline.py")
    files = str(FIRST_FILES_PER_BATCH if savepoint is None else NEXT_FILES_PER_BATCH)
    arguments = ["--input", str(flights), "--output", str(output), "--files-per-batch", files, "--trigger", "1 second"]
    return cluster.submit(*spark, "--name", "flights", pipeline, *arguments, "--until-stopped")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--directory", type=Path, default=ROOT / "demo-run", help="scratch directory; emptied first")
    parser.add_argument("--keep", action="store_true", help="keep the directory after a success, too")
    options = parser.parse_args()
    directory: Path = options.directory.absolute()
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    with Screen() as screen:
        try:
            asyncio.run(play(directory, screen))
        except (DemoFailed, NotKept, CommandFailed, EmberkeepError) as error:
            screen.event(f"FAILED: {error}", "bold red")
            screen.event(f"logs are below {directory / 'cluster'}")
            return 1
        screen.event("EQUAL: no row was lost, none was counted twice", "bold green")
    if not options.keep:
        shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
