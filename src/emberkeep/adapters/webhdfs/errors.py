"""Errors as Hadoop's WebHDFS client expects them: a ``RemoteException`` with the Java class that the client raises.

The client repeats a request after RetriableException, according to its retry policy. It raises every other class to
Spark at once.
"""

from __future__ import annotations

from aiohttp import web

from emberkeep.adapters.webhdfs.answers import json_response
from emberkeep.adapters.webhdfs.refusals import REFUSED
from emberkeep.base.errors import Absent, Conflict, EmberkeepError, InvalidInput, RetryLater, UnknownOutcome
from emberkeep.local_state.errors import Exists, Fenced, IsADirectory, NotADirectory, NotEmpty

_LONGEST_MESSAGE = 2000  # characters


class NotAllowed(EmberkeepError):
    """The request carries no credential, or an invalid one."""


# The first match is used: subclasses come before their base classes.
_CLASSES: tuple[tuple[type[EmberkeepError], int, str], ...] = (
    (NotAllowed, 403, "org.apache.hadoop.security.AccessControlException"),
    (Fenced, 403, "org.apache.hadoop.security.AccessControlException"),
    (Exists, 403, "org.apache.hadoop.fs.FileAlreadyExistsException"),
    (NotADirectory, 403, "org.apache.hadoop.fs.ParentNotDirectoryException"),
    (IsADirectory, 404, "java.io.FileNotFoundException"),  # as HDFS does: the path is not a file
    (NotEmpty, 403, "org.apache.hadoop.fs.PathIsNotEmptyDirectoryException"),
    (Absent, 404, "java.io.FileNotFoundException"),
    (InvalidInput, 400, "java.lang.IllegalArgumentException"),
    (RetryLater, 503, "org.apache.hadoop.ipc.RetriableException"),
    (UnknownOutcome, 503, "org.apache.hadoop.ipc.RetriableException"),
    (Conflict, 403, "java.io.IOException"),
    (EmberkeepError, 500, "java.io.IOException"),
)


def error_response(error: EmberkeepError) -> web.Response:
    """Return the reply for an error that occurred before any reply was begun."""
    status, java_class = next((status, name) for kind, status, name in _CLASSES if isinstance(error, kind))
    remote = {
        "exception": java_class.rpartition(".")[2],
        "javaClassName": java_class,
        "message": str(error)[:_LONGEST_MESSAGE],
    }
    answer = json_response({"RemoteException": remote}, status=status)
    if isinstance(error, NotAllowed | InvalidInput):
        answer[REFUSED] = error.message
    return answer
