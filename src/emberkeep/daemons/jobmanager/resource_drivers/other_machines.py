"""What the resource drivers have in common whose platform chooses the machine of a task manager."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from emberkeep.adapters.http.security import is_loopback
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.job_managers import JOB_MANAGER_ADDRESS, REST_ADDRESS, REST_BIND_ADDRESS
from emberkeep.base.configuration.options.resource_drivers import RESOURCE_MANAGER_TYPE
from emberkeep.base.configuration.options.security import TOKEN_FILE
from emberkeep.base.configuration.options.task_managers import (
    CORES,
    DRAIN_TIMEOUT,
    DRIVER_PLACES,
    MEMORY,
    SLOTS,
    TASK_MANAGER_ID,
)
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import TaskManagerId
from emberkeep.daemons.leader_following import is_highly_available
from emberkeep.slots.blocked import BlocklistView
from emberkeep.slots.custom.amounts import Amounts
from emberkeep.slots.model import ResourceProfile, RuntimeVersions
from emberkeep.slots.resource_driver import NoFreeNode, TaskManagerSpec
from emberkeep.spark.distribution import spark_version

AGENT_MB = 512  # of memory for the task manager's own process and for what supervises it
_MIB = 1024**2
_END_SECONDS = 60.0  # of the drain time, for the processes that have not left by then
_LEAST_DRAIN_SECONDS = 10.0
_NO_TASK_MANAGER = TaskManagerId("")


@dataclass(frozen=True)
class AgentCommand:
    """The command of each task manager.

    ``module``: what the platform runs, which supervises the task manager. ``settings``: the file with those of all
    task managers. ``drain_seconds``: from the order to leave to the kill.
    """

    module: str
    configuration: Configuration
    layout: StateLayout
    settings: Path
    job_manager: str
    spec: TaskManagerSpec
    drain_seconds: float

    def of(self, key: TaskManagerId, more: Mapping[str, str]) -> list[str]:
        """Return the command of one. ``more``: settings that only this platform has."""
        own = {
            TASK_MANAGER_ID.key: key,
            TOKEN_FILE.key: str(self.layout.token_file),
            MEMORY.key: f"{self.spec.total.memory_mb}m",
            CORES.key: str(self.spec.total.cores),
            DRAIN_TIMEOUT.key: f"{max(_LEAST_DRAIN_SECONDS, self.drain_seconds - _END_SECONDS):g}s",
            **more,
        }
        if not is_highly_available(self.configuration):
            own[JOB_MANAGER_ADDRESS.key] = self.job_manager
        command = [sys.executable, "-P", "-m", self.module, "--state-dir", str(self.layout.root)]
        command += ["--config", str(self.settings)]
        for option, value in own.items():
            command += ["-D", f"{option}={value}"]
        return command


def require_reachable(configuration: Configuration, job_manager: str, who: str, address: str) -> None:
    """Raise InvalidInput if only this machine reaches the JobManager.

    ``who`` must reach it: "pods". ``address``: of what it needs one, for the hint: "this machine that the nodes reach".
    """
    host = job_manager.rpartition(":")[0].strip("[]")
    if is_highly_available(configuration) or not is_loopback(host):
        return
    kind = configuration[RESOURCE_MANAGER_TYPE]
    raise InvalidInput(
        f"{RESOURCE_MANAGER_TYPE.key} is {kind}, but {who} cannot reach the JobManager at {host}",
        field=REST_ADDRESS.key,
        hint=f"set {REST_ADDRESS.key} and {REST_BIND_ADDRESS.key} to an address of {address}",
    )


def spec_of(configuration: Configuration, platform: str, custom: Amounts = ()) -> TaskManagerSpec:
    """Return the capacity of each task manager. Raises InvalidInput (its memory is not configured).

    ``platform``: reserves the memory, as in "Slurm". ``custom``: resources besides cores and memory, such as GPUs.
    """
    memory = configuration[MEMORY]
    if not memory:
        raise InvalidInput(
            f"{MEMORY.key} is not set, which {platform} needs to reserve it on a node",
            field=MEMORY.key,
            hint="for example 16g: the memory of the drivers and executors of one task manager",
        )
    slots = configuration[SLOTS]
    return TaskManagerSpec(
        slots=slots,
        driver_places=configuration[DRIVER_PLACES],
        total=ResourceProfile(cores=configuration[CORES] or max(1, slots), memory_mb=memory // _MIB, custom=custom),
        runtime=RuntimeVersions(python=f"{sys.version_info.major}.{sys.version_info.minor}", spark=spark_version()),
    )


def free_id(taken: AbstractSet[TaskManagerId], blocked: BlocklistView) -> TaskManagerId:
    """Return the first id that is neither ``taken`` nor blocked itself, which no node would help."""
    ids = (TaskManagerId(f"tm-{number}") for number in itertools.count())
    return next(key for key in ids if key not in taken and not blocked.is_blocked(key, ""))


def nodes_to_avoid(
    names: Iterable[str], blocked: BlocklistView, key: TaskManagerId | None, platform: str
) -> tuple[str, ...]:
    """Return those of the platform's nodes that a task manager must avoid. Raises NoFreeNode if these are all.

    ``key``: None for one that comes back. A blocked task manager comes back, too, and reports what is lost.
    """
    known = list(names)
    found = tuple(name for name in known if blocked.is_blocked(key or _NO_TASK_MANAGER, name))
    if known and len(found) == len(known):
        raise NoFreeNode(f"no node of {platform} is free: of {len(known)} nodes, {len(found)} are blocked")
    return found
