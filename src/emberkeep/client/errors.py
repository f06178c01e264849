"""Client-side errors, as opposed to errors that the cluster reports."""

from __future__ import annotations

from emberkeep.base.errors import Fatal, RetryLater


class Unreachable(RetryLater):
    """There is no reply from a JobManager: nothing listens there, or the connection broke or stayed silent."""


class Unanswered(RetryLater):
    """The outcome is unknown: the JobManager, or a proxy in front of it, could not report it."""


class NoCluster(Fatal):
    """No cluster is configured, and none runs on this machine."""

    def __init__(self) -> None:
        super().__init__(
            "no cluster found", hint="start one with `emberkeep cluster up`, or name one with --url or EMBERKEEP_URL"
        )


class NotAuthorised(Fatal):
    """The JobManager refused the token, or the client sent none."""
