"""Savepoints that identities with a namespace may read and start from: those of the jobs that they see."""

from __future__ import annotations

from collections.abc import Iterable

from emberkeep.base.errors import Forbidden
from emberkeep.jobs.checkpoints import SavepointPointer
from emberkeep.lifecycle.locations import is_same_place
from emberkeep.lifecycle.manifest import Manifest
from emberkeep.rest.serving.routing import CheckedRequest


async def check_savepoint_access(call: CheckedRequest, path: str) -> None:
    """Raise Forbidden if the caller has a namespace and sees no job to which the savepoint at ``path`` belongs."""
    if call.identity.namespace and not any(await _recorded_at(call, path)):
        raise _no_savepoint(call, path)


async def check_manifest_access(call: CheckedRequest, path: str, found: Manifest) -> None:
    """Raise Forbidden if the caller has a namespace, and what is at ``path`` was made for no job that it sees.

    Drivers say where they have made savepoints, and a driver may be anybody's code. An earlier release has recorded no
    request of a savepoint.
    """
    if not call.identity.namespace:
        return
    if not any(each.trigger_id in ("", found.trigger_id) for each in await _recorded_at(call, path)):
        raise _no_savepoint(call, path)


async def _recorded_at(call: CheckedRequest, path: str) -> Iterable[SavepointPointer]:
    """Return the savepoints at ``path`` of the jobs that the caller sees, as they are recorded."""
    made = (savepoint for job in await call.jobs() for savepoint in job.pointers.savepoints)
    return (each for each in made if is_same_place(each.path, path))


def _no_savepoint(call: CheckedRequest, path: str) -> Forbidden:
    identity = call.identity
    return Forbidden(
        f"{path[:200]} is not a savepoint of a job in the namespace {identity.namespace!r} of {identity.name!r}",
        hint="`emberkeep savepoint list` shows those that it may use",
    )
