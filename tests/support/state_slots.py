"""A slot at a state gateway that runs without the rest of a task manager."""

from __future__ import annotations

from collections.abc import Iterable

from emberkeep.adapters.state.spool import FileSpool
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.base.processes.os_user import OsUser
from emberkeep.daemons.taskmanager.run_as import JobUsers
from emberkeep.daemons.taskmanager.state_gateways import StateGatewayLink, durable_states
from emberkeep.daemons.taskmanager.working_place import WorkingPlace
from emberkeep.local_state.model import DRIVER, Caller
from emberkeep.local_state.ports import DurableState
from emberkeep.slots.model import Allocation, ResourceProfile
from emberkeep.spark.jvm.state_gateway_conf import CREDENTIAL_VARIABLE
from emberkeep.taskmanager.state_gateway.fences import GatewayFences
from emberkeep.taskmanager.state_gateway.named_roots import NamedRoots
from emberkeep.taskmanager.state_gateway.roots import OpenState

SLOT = AllocationId("a" * 32)


def own_states(configuration: Configuration, layout: StateLayout, place: WorkingPlace) -> OpenState:
    """Return what opens the stores of jobs that run as this process's user."""
    return durable_states(configuration, layout, place.directory, JobUsers({}, ""))


def begin_slot(
    link: StateGatewayLink,
    job_id: JobId,
    own_state: DurableState,
    roots: Iterable[str] = (),
    user: OsUser | None = None,
) -> str:
    """Begin the job's first attempt and give it slot SLOT, for which copies are kept. Return its executor's credential.

    ``roots``: other roots than the job's own that its driver uses. ``user``: as whom the job runs; None: as the
    gateway's user.

    Call it again for each process of the gateway. It blocks, and must run on the event loop. ``own_state`` is the
    durable store of the job's own root. Raises Fenced (a later attempt has begun), RetryLater, Fatal.
    """
    driver, fences = (
        Caller(job_id=job_id, attempt=1, allocation_id=DRIVER),
        GatewayFences(lambda _: own_state, FileSpool),
    )
    fences.admit(driver)
    named = NamedRoots(lambda _: own_state, fences)
    for root in roots:
        named.admit(driver, root)
    allocation = Allocation(
        id=SLOT,
        slot_index=0,
        job_id=job_id,
        attempt=1,
        profile=ResourceProfile(cores=1, memory_mb=1),
        job_master="127.0.0.1:1",
    )
    link.upkeep.allocation_begun(allocation)
    return link.environ(
        Caller(job_id=job_id, attempt=1, allocation_id=SLOT, user_id=None if user is None else user.uid)
    )[CREDENTIAL_VARIABLE]
