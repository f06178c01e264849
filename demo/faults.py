"""Faults, and the signs of recovery from each. Processes get SIGKILL: none of them can clean up.

The last fault is an evacuation: what runs on the node leaves it in order.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Protocol

from demo.commands import Cluster
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.messages.task_manager_reports import ProcessState
from emberkeep.protocol.rest_jobs import ExecutorInfo, JobDetailsInfo, JobExtension

EXECUTORS = 2


class NotKept(Exception):
    """A process or an attempt that should have continued has ended."""


class Fault(Protocol):
    """A fault that was injected. ``text`` describes it."""

    @property
    def text(self) -> str: ...

    def outcome(self, job: JobDetailsInfo) -> str | None:
        """Describe the recovery; return None until the job has recovered. Raises NotKept."""


@dataclass(frozen=True)
class ExecutorsKilled:
    """Implements Fault. ``executors``: ids of the executors to be replaced."""

    text: str
    executors: frozenset[str]

    def outcome(self, job: JobDetailsInfo) -> str | None:
        found = registered(job.emberkeep)
        if len(found) < EXECUTORS or self.executors & {executor.id for executor in found}:
            return None
        return "executors " + ", ".join(f"{executor.id} on {executor.host}" for executor in found)


@dataclass(frozen=True)
class ProcessesKept:
    """Implements Fault: ``attempt`` of the job and ``pids`` of its processes, the driver's first, must not change."""

    text: str
    attempt: int
    pids: tuple[int, ...]

    def outcome(self, job: JobDetailsInfo) -> str | None:
        now = processes(job.emberkeep)
        if job.emberkeep.attempt != self.attempt:
            raise NotKept(f"the driver (pid {self.pids[0]}) was replaced by another")
        if job.state is not JobStatus.RUNNING or len(now) < len(self.pids):
            return None
        if now != self.pids:
            raise NotKept(f"a process was replaced: pids {self.pids} are now {now}")
        executors = " and ".join(map(str, self.pids[1:]))
        return f"driver (pid {self.pids[0]}) and executors (pids {executors}) are the same as before"


@dataclass(frozen=True)
class LeaderKilled(ProcessesKept):
    """``leader``: address of the killed JobManager."""

    leader: str


@dataclass(frozen=True)
class AgentKilled(ProcessesKept):
    """Only the task manager process was killed, none of its children. ``task_manager``: its id."""

    task_manager: str


@dataclass(frozen=True)
class NodeKilled(ExecutorsKilled):
    """``task_manager``: id of the one that was killed with its executors."""

    task_manager: str


@dataclass(frozen=True)
class NodeEvacuated:
    """Implements Fault. ``executors`` leave ``node`` by themselves; the driver and the others continue."""

    text: str
    node: str
    executors: frozenset[str]
    attempt: int

    def outcome(self, job: JobDetailsInfo) -> str | None:
        if job.emberkeep.attempt != self.attempt:
            raise NotKept("the driver was restarted although it was on another node")
        there = {executor.id for executor in job.emberkeep.executors}
        found = registered(job.emberkeep)
        if self.executors & there or len(found) < EXECUTORS:
            return None
        now = ", ".join(f"{executor.id} on {executor.host}" for executor in found)
        return f"{self.node} is empty; executors {now}"


def registered(job: JobExtension) -> list[ExecutorInfo]:
    """List the executors in which tasks can run."""
    return [e for e in job.executors if e.registered and e.state is ProcessState.RUNNING and e.pid]


def processes(job: JobExtension) -> tuple[int, ...]:
    """Return the pids of the driver and the executors, as far as they are known."""
    executors = sorted(registered(job), key=lambda executor: int(executor.id))
    return (
        () if job.driver is None or not job.driver.pid else (job.driver.pid, *(executor.pid for executor in executors))
    )


def kill_executor(job: JobExtension) -> ExecutorsKilled:
    """Kill the executor with the lowest id."""
    victim = min(registered(job), key=lambda executor: int(executor.id))
    os.kill(victim.pid, signal.SIGKILL)
    return ExecutorsKilled(f"killed executor {victim.id} on {victim.host} (pid {victim.pid})", frozenset({victim.id}))


def kill_leader(job: JobExtension, cluster: Cluster, leader: str) -> LeaderKilled:
    """Kill the JobManager at the address ``leader``."""
    victim = cluster.job_manager(leader)
    os.kill(victim.identity.pid, signal.SIGKILL)
    text = f"killed the leading JobManager, {victim.name} (pid {victim.identity.pid})"
    return LeaderKilled(text, job.attempt, processes(job), leader)


def kill_agent(job: JobExtension, cluster: Cluster) -> AgentKilled | None:
    """Kill the task manager process that started the driver. Return None while it is unknown."""
    driver = job.driver
    victim = next((d for d in cluster.record().task_managers if driver and d.name == driver.taskmanager_id), None)
    if victim is None:
        return None
    os.kill(victim.identity.pid, signal.SIGKILL)
    text = (
        f"killed the process of task manager {victim.name} (pid {victim.identity.pid}), not the driver that it started"
    )
    return AgentKilled(text, job.attempt, processes(job), victim.name)


def kill_node(job: JobExtension, cluster: Cluster) -> NodeKilled | None:
    """Kill a task manager without a driver, and its executors. Return None while there is none."""
    driver = job.driver.taskmanager_id if job.driver is not None else ""
    for daemon in cluster.record().task_managers:
        victims = [executor for executor in registered(job) if executor.taskmanager_id == daemon.name]
        if daemon.name != driver and victims:
            for pid in (daemon.identity.pid, *(executor.pid for executor in victims)):
                os.kill(pid, signal.SIGKILL)
            ids = ", ".join(executor.id for executor in victims)
            text = f"killed task manager {daemon.name} with its executors ({ids})"
            return NodeKilled(text, frozenset(e.id for e in victims), daemon.name)
    return None


def evacuate_node(job: JobExtension, cluster: Cluster) -> NodeEvacuated | None:
    """Evacuate a node with executors but no driver. Return None while there is none. Raises CommandFailed."""
    driver = job.driver.taskmanager_id if job.driver is not None else ""
    for executor in registered(job):
        if executor.taskmanager_id != driver:
            node = executor.host
            leaving = frozenset(other.id for other in registered(job) if other.host == node)
            cluster.evacuate(node)
            text = f"evacuated node {node}: executors {', '.join(sorted(leaving))} hand over their blocks and leave"
            return NodeEvacuated(text, node, leaving, job.attempt)
    return None
