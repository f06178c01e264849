"""A local cluster for tests: started and ended by the command, watched through its REST API."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import JobId
from emberkeep.base.tls.contexts import client_context
from emberkeep.client.clusters.cluster_file import ClusterRecord, DaemonRecord, read_cluster
from emberkeep.client.clusters.discovery import local_endpoint
from emberkeep.client.rest_client import RestClient
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.rest_jobs import ExecutorInfo, JobDetailsInfo
from emberkeep.slots.model import ProcessStart
from tests.integration.commands import SMALL, Ended, Shell
from tests.integration.conditions import DEADLINE, until

T = TypeVar("T")

QUICK = (
    *("-D", "rest.port=0", "-D", "heartbeat.interval=500ms", "-D", "heartbeat.timeout=4s"),
    *("-D", "job.driver.lease-timeout=6s", "-D", "executor.backoff.initial=100ms"),
)


class Cluster:
    """``up`` first; ``close`` ends it and fails when anything of it is left.

    ``start``: how processes of jobs start here.
    """

    start = ProcessStart.COLD

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self._up: tuple[str, ...] = ()

    # --- the cluster ------------------------------------------------------------------------------------------------

    def up(self, *words: str) -> Ended:
        self._up = words or self._up
        return self.shell.done("cluster", "up", *self._up)

    def close(self) -> None:
        try:
            self.shell.done("cluster", "down")
            self.shell.traces.check_nothing_left()
        finally:
            self.shell.traces.kill()

    @property
    def record(self) -> ClusterRecord:
        record = read_cluster(self.shell.state / "cluster.json")
        assert record is not None
        return record

    @property
    def address(self) -> str:
        """Of the first JobManager, "host:port"."""
        return urlsplit(self.record.url).netloc

    def daemon(self, name: str) -> DaemonRecord:
        """By name: "jobmanager" or a task manager's id."""
        return next(daemon for daemon in self.record.daemons if daemon.name == name)

    def leader(self) -> tuple[str, DaemonRecord]:
        """Address and record of the JobManager that leads, once one does."""

        def look() -> tuple[str, DaemonRecord] | None:
            try:
                address = self.ask(lambda client: client.overview()).emberkeep.job_manager
            except RetryLater:
                return None
            record = self.record
            urls = (record.url, *record.standby_urls)
            addresses = {urlsplit(url).netloc: daemon for url, daemon in zip(urls, record.job_managers, strict=True)}
            return (address, addresses[address]) if addresses[address].is_running else None

        return until(look, "a JobManager leads")

    def kill(self, name: str) -> None:
        """SIGKILL to a daemon."""
        daemon = self.daemon(name)
        assert daemon.is_running
        os.kill(daemon.identity.pid, signal.SIGKILL)
        until(lambda: not daemon.is_running, f"{name} ends")

    def lose_node(self, name: str) -> None:
        """SIGKILL to a task manager and to all that it has started, as if its machine were gone."""
        directory = self.daemon(name).directory
        self.kill(name)
        marker = f"SPARK_LOCAL_DIRS={directory}/"
        while True:
            left = [
                seen.identity.pid
                for seen in self.shell.traces.processes()
                if any(variable.startswith(marker) for variable in environment_of(seen.identity.pid))
            ]
            if not left:
                return
            for pid in left:
                kill_process(pid)

    def ask(self, question: Callable[[RestClient], Awaitable[T]]) -> T:
        async def call() -> T:
            async with RestClient(local_endpoint(self.record, self.shell.state), patience=30.0) as client:
                return await question(client)

        # In a thread of its own: a test that drives a browser has a loop in this one.
        with ThreadPoolExecutor(1) as aside:
            return aside.submit(asyncio.run, call()).result()

    def metrics(self) -> str:
        """What Prometheus reads."""
        return self.shown("/metrics")

    def shown(self, path: str) -> str:
        """The text of a page or a resource."""
        endpoint = local_endpoint(self.record, self.shell.state)
        request = Request(f"{endpoint.url}{path}", headers={"Authorization": f"Bearer {endpoint.token}"})
        with urlopen(request, timeout=DEADLINE, context=client_context(endpoint.ca)) as answer:
            return str(answer.read().decode())

    def wait_for_standbys(self) -> None:
        """Return once the next processes of jobs start as ``start`` says."""

    def wait_until_idle(self) -> None:
        """All slots and driver places are free again."""

        def is_idle() -> bool:
            overview = self.ask(lambda client: client.overview())
            free = overview.slots_available, overview.emberkeep.driver_places_available
            return free == (overview.slots_total, overview.emberkeep.driver_places_total)

        until(is_idle, lambda: f"free slots and driver places: {self.ask(lambda client: client.task_managers())}")

    # --- jobs -------------------------------------------------------------------------------------------------------

    def submit(self, script: Path | str, *options: str, arguments: tuple[str, ...] = (), executors: int = 1) -> JobId:
        """Submit a job whose processes start as ``start`` says."""
        return self.submit_at_once(script, *options, arguments=arguments, executors=executors)

    def submit_at_once(
        self, script: Path | str, *options: str, arguments: tuple[str, ...] = (), executors: int = 1
    ) -> JobId:
        """Submit a job whose processes start as they can."""
        words = ("submit", "-q", *SMALL, "--num-executors", str(executors), *options, str(script), *arguments)
        return JobId(self.shell.done(*words).out.strip())

    def job(self, job_id: JobId) -> JobDetailsInfo:
        return self.ask(lambda client: client.job(job_id))

    def wait_for(
        self, job_id: JobId, condition: Callable[[JobDetailsInfo], object], what: str, seconds: float = DEADLINE
    ) -> JobDetailsInfo:
        """The job when it fulfils the condition. Fails when it ends without, or does not in time."""

        def look() -> JobDetailsInfo | None:
            try:
                job = self.job(job_id)
            except RetryLater:
                return None
            if condition(job):
                return job
            assert not job.state.is_globally_terminal, f"{what}: {self.story(job_id)}"
            return None

        return until(look, lambda: f"{what}: {self.story(job_id)}", seconds)

    def wait_for_executors(self, job_id: JobId, count: int = 1) -> list[ExecutorInfo]:
        """Those that Spark can use, once there are so many."""

        def usable(job: JobDetailsInfo) -> list[ExecutorInfo]:
            return [executor for executor in job.emberkeep.executors if executor.registered and executor.pid]

        job = self.wait_for(job_id, lambda job: len(usable(job)) >= count, f"{count} executors")
        return usable(job)

    def wait_for_driver(self, job_id: JobId, attempt: int = 1) -> int:
        """The pid of the driver of that attempt, once its script runs."""
        job = self.wait_for(
            job_id,
            lambda job: job.emberkeep.attempt == attempt and job.state is JobStatus.RUNNING and job.emberkeep.driver,
            f"attempt {attempt} runs",
        )
        assert job.emberkeep.driver is not None
        return job.emberkeep.driver.pid

    def wait_for_end(self, job_id: JobId, status: JobStatus = JobStatus.FINISHED) -> JobDetailsInfo:
        job = self.wait_for(job_id, lambda job: job.state.is_globally_terminal, "the job ends")
        assert job.state is status, self.story(job_id)
        return job

    def cancel(self, job_id: JobId) -> None:
        self.shell.done("cancel", job_id)

    def cancel_all(self) -> None:
        """What a test that has failed has left running."""
        for job in self.ask(lambda client: client.jobs()):
            if not job.state.is_globally_terminal:
                self.ask(lambda client, job_id=job.jid: client.cancel(job_id, grace=0.0))  # type: ignore[misc]

    def output(self, job_id: JobId, kind: str = "driver-stdout", attempt: int | None = None) -> str:
        """What the driver wrote, in that attempt or in all."""

        async def read(client: RestClient) -> str:
            found = [log for log in (await client.logs.of_job(job_id)).logs if log.kind == kind]
            chosen = [log for log in found if attempt in (None, log.attempt)]
            texts = [(await client.logs.read(job_id, log.id, 0)).data for log in chosen]
            return b"".join(texts).decode()

        return self.ask(read)

    def story(self, job_id: JobId) -> str:
        """All that helps to see why a job did something else."""
        streams = (self.output(job_id, kind)[-3000:] for kind in ("driver-stdout", "driver-stderr"))
        return "\n".join((self.shell.run("info", job_id).out, *streams))


@contextlib.contextmanager
def one_slot_cluster(shell: Shell) -> Iterator[Cluster]:
    """A cluster with one slot; jobs that a failed test has left are cancelled."""
    cluster = Cluster(shell)
    cluster.up("-D", "taskmanager.numberOfTaskSlots=1", *QUICK)
    yield cluster
    cluster.cancel_all()
    cluster.close()


@contextlib.contextmanager
def roomy_cluster(directory: Path, class_archive: Path, slots: int, *words: str) -> Iterator[Cluster]:
    """A cluster of one task manager with memory for this many executors. ``words``: further ones for `cluster up`."""
    cluster = Cluster(Shell(directory, class_archive.parent))
    try:
        cluster.up("--slots", str(slots), "--memory", "8g", *QUICK, *words)
        yield cluster
    finally:
        cluster.close()


def environment_of(pid: int) -> list[str]:
    """Variables of a live process; none when it has ended."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def kill_process(pid: int) -> None:
    """SIGKILL, if it still lives."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
