"""Savepoints that identities with a namespace may read and start from: those of the jobs that they see."""

from __future__ import annotations

from emberkeep.base.errors import Forbidden
from emberkeep.lifecycle.locations import is_same_place
from emberkeep.rest.serving.routing import CheckedRequest


async def check_savepoint_access(call: CheckedRequest, path: str) -> None:
    """Raise Forbidden if the caller has a namespace and sees no job to which the savepoint at ``path`` belongs."""
    identity = call.identity
    if not identity.namespace:
        return
    made = (savepoint.path for job in await call.jobs() for savepoint in job.pointers.savepoints)
    if not any(is_same_place(each, path) for each in made):
        raise Forbidden(
            f"{path[:200]} is not a savepoint of a job in the namespace {identity.namespace!r} of {identity.name!r}",
            hint="`emberkeep savepoint list` shows those that it may use",
        )
