"""Resources, slots and requirements as plain data.

A *slot* is a share of a task manager in which exactly one Spark executor runs. Each allocation takes one slot index and
the resources that its profile asks for. A task manager has a fixed number of slots and fixed total resources;
allocations exceed neither. A *driver place* is the same for a job's driver, which takes memory but no cores.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final

from emberkeep.base.compatible import Compatible
from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import AllocationId, InstanceId, JobId, TaskManagerId
from emberkeep.slots.custom.addresses import ResourceAddresses
from emberkeep.slots.custom.amounts import Amounts, amounts, by_name, fit, minus, plus, said

REQUIREMENTS: Final = 16  # sizes of slots that one attempt may require at a time


class ResourceProfile(Compatible, frozen=True, kw_only=True):
    """An amount of resources. ``memory_mb`` is in MiB and includes heap and overhead. ``custom``: GPUs and others."""

    cores: int
    memory_mb: int
    custom: Amounts = ()

    def fits_in(self, other: ResourceProfile) -> bool:
        return self.cores <= other.cores and self.memory_mb <= other.memory_mb and fit(self.custom, other.custom)

    def plus(self, other: ResourceProfile) -> ResourceProfile:
        return ResourceProfile(
            cores=self.cores + other.cores,
            memory_mb=self.memory_mb + other.memory_mb,
            custom=plus(self.custom, other.custom),
        )

    def minus(self, other: ResourceProfile) -> ResourceProfile:
        return ResourceProfile(
            cores=self.cores - other.cores,
            memory_mb=self.memory_mb - other.memory_mb,
            custom=minus(self.custom, other.custom),
        )

    def __str__(self) -> str:
        cores = f"{self.cores} core{'' if self.cores == 1 else 's'}"
        memory = f"{self.memory_mb} MiB"
        return f"{cores}, {memory} and {said(self.custom)}" if self.custom else f"{cores} and {memory}"


class RuntimeVersions(Compatible, frozen=True, kw_only=True):
    """The versions that a driver and its executors must share: Python as "3.11", Spark as "4.3.0"."""

    python: str
    spark: str


class TaskManagerInfo(Compatible, frozen=True, kw_only=True):
    """A task manager's description of itself, sent when it registers."""

    id: TaskManagerId
    instance: InstanceId  # new at each start of the process
    address: str  # host:port of its RPC endpoint
    host: str  # the address that its drivers and executors bind to
    node_id: str  # the machine that it runs on
    pid: int
    slots: int
    driver_places: int
    total: ResourceProfile
    runtime: RuntimeVersions
    java_major: int
    started_ms: int
    predecessor: InstanceId | None = None  # the previous instance, whose slots and processes this one has taken over
    checkpoints: str = ""  # directory where its state gateway finds jobs' checkpoints; "" without a gateway
    release: str = ""  # the version of Emberkeep; "" of a release that does not report it
    addresses: tuple[ResourceAddresses, ...] = ()  # of its custom resources, whose amounts are in ``total``
    unconfirmed: tuple[InstanceId, ...] = ()  # instances since ``predecessor`` that may have registered, newest last
    cgroups: str = ""  # what control groups bound on its node, or why nothing; "" of a release that does not report it

    @property
    def predecessors(self) -> tuple[InstanceId, ...]:
        """The earlier instances that another process may still take for the running one."""
        return self.unconfirmed if self.predecessor is None else (self.predecessor, *self.unconfirmed)


class Allocation(Compatible, frozen=True, kw_only=True):
    """One slot that one attempt of one job holds."""

    id: AllocationId
    slot_index: int
    job_id: JobId
    attempt: int
    profile: ResourceProfile
    job_master: str  # address of the JobMaster that gets the offer of this slot
    addresses: tuple[ResourceAddresses, ...] = ()  # of the custom resources in ``profile``, which only this slot has


class SlotRequirement(Compatible, frozen=True, kw_only=True):
    """The ``count`` slots of one size that one attempt of a job needs in total, including those that it holds."""

    count: int
    profile: ResourceProfile
    runtime: RuntimeVersions


def check_requirements(requirements: Sequence[SlotRequirement]) -> None:
    """Check what another process says that it needs. Raises InvalidInput for sizes that cannot be counted with.

    A negative amount would free resources of others, and none can be divided by 0.
    """
    if len(requirements) > REQUIREMENTS:
        raise InvalidInput(f"{len(requirements)} sizes of slots are more than {REQUIREMENTS}", field="requirements")
    for each in requirements:
        profile = each.profile
        is_canonical = profile.custom == amounts(by_name(profile.custom))
        least = min(each.count, profile.cores, profile.memory_mb, *(one.amount for one in profile.custom))
        if least < 0 or not is_canonical:
            raise InvalidInput(f"{each.count} slots of {profile} cannot be required", field="requirements")


def slots_are(count: int) -> str:
    """Return "1 slot is", "2 slots are"."""
    return "1 slot is" if count == 1 else f"{count} slots are"


class Reclaim(Compatible, frozen=True, kw_only=True):
    """For now, a job may have at most ``ceiling`` slots, because others need the rest. ``reason``: who, and why.

    ``whole``: the job is put back to waiting, so it keeps no slot, whatever its minimum is.
    """

    ceiling: int
    reason: str
    whole: bool = False


class ProcessStart(enum.Enum):
    """How a task manager got the process of a driver or an executor."""

    COLD = "cold"  # it started a new process
    HOT = "hot"  # it took a standby process
