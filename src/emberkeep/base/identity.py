"""Who calls a cluster, and what its role permits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What an identity may do. Each role may do what those before it may do."""

    METRICS = "metrics"  # read /metrics
    VIEWER = "viewer"  # see jobs, logs, nodes and settings
    SUBMITTER = "submitter"  # submit jobs; stop, cancel and save its own ones
    OPERATOR = "operator"  # act on all jobs, nodes, BLOBs and savepoints
    ADMIN = "admin"  # make tokens, take over storage, end the cluster

    def includes(self, needed: Role) -> bool:
        """Return True if this role may do what ``needed`` may do."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True)
class AttemptScope:
    """One attempt of a job: all that its driver's credentials are good for."""

    job_id: str
    attempt: int

    def __str__(self) -> str:
        return f"attempt {self.attempt} of job {self.job_id}"


@dataclass(frozen=True)
class Identity:
    """The caller of a request.

    ``name``: the name of its token. ``namespace``: the one whose jobs it sees and may act on, or "" for all jobs.
    ``expires_ms``: when a token from an OpenID Connect issuer expires, in Unix milliseconds; 0 for other tokens, whose
    expiry the cluster knows. ``attempt``: the attempt whose driver calls; None for all other callers.
    """

    name: str
    role: Role
    namespace: str = ""
    expires_ms: int = 0
    attempt: AttemptScope | None = None

    @property
    def is_cluster(self) -> bool:
        """True for holders of the cluster's own token."""
        return self.name == CLUSTER_NAME


CLUSTER_NAME = "cluster"
# Whoever holds the cluster's own token: its daemons, and people on its machines.
CLUSTER = Identity(CLUSTER_NAME, Role.ADMIN)
