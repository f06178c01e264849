"""Translates kazoo's errors into the outcomes that a caller can act upon (see ``base.errors``)."""

from __future__ import annotations

from kazoo import exceptions as kz

from emberkeep.base.errors import Absent, Conflict, EmberkeepError, Fatal, RetryLater, UnknownOutcome


class TransactionRefused(EmberkeepError):
    """A transaction did not happen because its operation number ``index`` was impossible; ``cause`` says why."""

    def __init__(self, index: int, cause: EmberkeepError) -> None:
        super().__init__(cause.message, hint=cause.hint)
        self.index = index
        self.cause = cause


class Denied(Fatal):
    """ZooKeeper denies this process the operation."""


_ABSENT = (kz.NoNodeError,)
_CONFLICT = (kz.BadVersionError, kz.NodeExistsError, kz.NotEmptyError)
# The server refused the operation, so it did not happen.
_NOT_DONE = (kz.SessionExpiredError, kz.SessionMovedError, kz.ThrottledOpError, kz.NotReadOnlyCallError)
# The operation was on its way when the connection broke or the server stopped answering.
_NO_ANSWER = (kz.ConnectionLoss, kz.OperationTimeoutError, kz.RequestTimeoutError)
_DENIED = (kz.NoAuthError, kz.AuthFailedError, kz.InvalidACLError, kz.SessionClosedRequireSaslError)
_WAIT = "this continues by itself when ZooKeeper is available again"


def not_connected(hosts: str) -> RetryLater:
    return RetryLater(f"ZooKeeper at {hosts} cannot be reached", hint=_WAIT)


def no_answer(what: str, *, writes: bool) -> EmberkeepError:
    """Return the error for an unanswered operation: UnknownOutcome if it writes, since it may have happened."""
    if writes:
        return UnknownOutcome(f"ZooKeeper did not answer: this may or may not have happened: {what}", hint=_WAIT)
    return RetryLater(f"ZooKeeper did not answer: {what}", hint=_WAIT)


def attempt_changed(job_id: str) -> RetryLater:
    """Return the error for a transaction whose attempt node another request has changed since it was read."""
    return RetryLater(f"the attempt of job {job_id} is being changed by another request", hint="try again")


def translate(error: kz.KazooException, what: str, *, writes: bool) -> EmberkeepError:
    """Return kazoo's error as one of ours. ``what``: the operation, with its path; ``writes``: it changes something."""
    if isinstance(error, _ABSENT):
        return Absent(f"{what}: the node does not exist")
    if isinstance(error, _CONFLICT):
        return Conflict(f"{what}: {type(error).__name__}")
    if isinstance(error, _NOT_DONE):
        return RetryLater(f"{what}: ZooKeeper refused the request ({type(error).__name__})", hint=_WAIT)
    if isinstance(error, _NO_ANSWER):
        return no_answer(what, writes=writes)
    if isinstance(error, _DENIED):
        return Denied(
            f"{what}: ZooKeeper denied access ({type(error).__name__})",
            hint="all processes of a cluster need the same high-availability.zookeeper.client.authorization",
        )
    return Fatal(f"{what}: {type(error).__name__}: {error}", hint="see the log of the ZooKeeper server")
