"""kazoo's errors as those that a caller can act upon."""

from __future__ import annotations

from kazoo import exceptions as kz

from emberkeep.base.errors import Absent, Conflict, EmberkeepError, Fatal, RetryLater, UnknownOutcome


class TransactionRefused(EmberkeepError):
    """A transaction did not happen because its operation number ``index`` was not possible, for ``cause``."""

    def __init__(self, index: int, cause: EmberkeepError) -> None:
        super().__init__(cause.message, hint=cause.hint)
        self.index = index
        self.cause = cause


class Denied(Fatal):
    """ZooKeeper does not let this process do that."""


_ABSENT = (kz.NoNodeError,)
_CONFLICT = (kz.BadVersionError, kz.NodeExistsError, kz.NotEmptyError)
# The server has refused it, so it did not happen.
_NOT_DONE = (kz.SessionExpiredError, kz.SessionMovedError, kz.ThrottledOpError, kz.NotReadOnlyCallError)
# It was on its way when the connection broke or the server fell silent.
_NO_ANSWER = (kz.ConnectionLoss, kz.OperationTimeoutError, kz.RequestTimeoutError)
_DENIED = (kz.NoAuthError, kz.AuthFailedError, kz.InvalidACLError, kz.SessionClosedRequireSaslError)
_WAIT = "it goes on by itself when ZooKeeper is back"


def not_connected(hosts: str) -> RetryLater:
    return RetryLater(f"ZooKeeper at {hosts} cannot be reached", hint=_WAIT)


def no_answer(what: str, *, writes: bool) -> EmberkeepError:
    """The error for an operation that may have happened, if it is one that changes something."""
    if writes:
        return UnknownOutcome(f"ZooKeeper did not answer: it is not known whether {what} has happened", hint=_WAIT)
    return RetryLater(f"ZooKeeper did not answer: {what}", hint=_WAIT)


def translate(error: kz.KazooException, what: str, *, writes: bool) -> EmberkeepError:
    """``what``: the operation, with its path."""
    if isinstance(error, _ABSENT):
        return Absent(f"{what}: there is no such node")
    if isinstance(error, _CONFLICT):
        return Conflict(f"{what}: {type(error).__name__}")
    if isinstance(error, _NOT_DONE):
        return RetryLater(f"{what}: ZooKeeper has refused it ({type(error).__name__})", hint=_WAIT)
    if isinstance(error, _NO_ANSWER):
        return no_answer(what, writes=writes)
    if isinstance(error, _DENIED):
        return Denied(
            f"{what}: ZooKeeper denies it ({type(error).__name__})",
            hint="all processes of a cluster need the same high-availability.zookeeper.client.authorization",
        )
    return Fatal(f"{what}: {type(error).__name__}: {error}", hint="see the log of the ZooKeeper server")
