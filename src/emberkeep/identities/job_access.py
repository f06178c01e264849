"""Decide which jobs an identity sees, and on which of them it may act. Pure.

A job has the namespace of the identity that submitted it, and that identity as its owner.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from emberkeep.base.errors import Forbidden
from emberkeep.base.identity import Identity, Role
from emberkeep.identities.model import parse_namespace


class OwnedJob(Protocol):
    """A job, as far as access to it is concerned.

    ``owner``: the name of the identity that submitted it; "" for the cluster's own token. ``namespace``: "" for none.
    ``has_known_owner``: False while neither can be read.
    """

    @property
    def owner(self) -> str: ...

    @property
    def namespace(self) -> str: ...

    @property
    def has_known_owner(self) -> bool: ...


JobT = TypeVar("JobT", bound=OwnedJob)


def sees(identity: Identity, job: OwnedJob) -> bool:
    """Return True if the job is shown to the identity. An identity with a namespace sees only the jobs in it."""
    if not identity.namespace:
        return True
    return job.has_known_owner and job.namespace == identity.namespace


def may_act(identity: Identity, job: OwnedJob) -> bool:
    """True if the identity may change the job: an operator may change any job it can see, a submitter only its own."""
    if not sees(identity, job) or not identity.role.includes(Role.SUBMITTER):
        return False
    if identity.role.includes(Role.OPERATOR):
        return True
    return job.has_known_owner and job.owner == identity.name


def visible(identity: Identity, jobs: Iterable[JobT]) -> list[JobT]:
    """Return the jobs that the identity sees, in their order."""
    return [job for job in jobs if sees(identity, job)]


def namespace_of_new_job(identity: Identity, chosen: str) -> str:
    """Return the namespace of a job that the identity submits; ``chosen``: "" for the identity's own.

    Raises InvalidInput, Forbidden (the identity has another namespace).
    """
    if identity.namespace and chosen not in ("", identity.namespace):
        raise Forbidden(
            f"{identity.name!r} has the namespace {identity.namespace!r} and cannot submit to {chosen[:80]!r}",
            hint="an administrator can give a token of that namespace: `emberkeep token create`",
        )
    return parse_namespace(chosen) or identity.namespace


def owner_name(identity: Identity) -> str:
    """Return the owner of jobs that the identity submits: its name; "" for the cluster's own token."""
    return "" if identity.is_cluster else identity.name
