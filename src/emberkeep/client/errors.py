"""Errors of the client that its callers tell apart from those of the cluster."""

from __future__ import annotations

from emberkeep.base.errors import Fatal, RetryLater


class Unreachable(RetryLater):
    """No answer from a JobManager: nothing listens there, or the connection broke or stayed silent."""


class Unanswered(RetryLater):
    """Whether it was done is not known: the JobManager could not tell, or somebody in between."""


class NoCluster(Fatal):
    """No cluster is configured and none runs here."""

    def __init__(self) -> None:
        super().__init__(
            "no cluster found", hint="start one with `emberkeep cluster up`, or name one with --url or EMBERKEEP_URL"
        )


class NotAuthorised(Fatal):
    """The JobManager refused the token, or none was sent."""
