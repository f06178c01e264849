"""Calls to user functions in the driver, with a time limit: a hanging call blocks no stop and no other function."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import structlog

from emberkeep.lifecycle.errors import UserFunctionFailed
from emberkeep.spark.script.runner import OWN_THREAD_PREFIX

log = structlog.get_logger(__name__)

_PATIENCE_SECONDS = 3.0  # for all functions together; less than a cancellation's time limit
_MOST_THREADS = 256  # each function has at most one hanging call


class _Call(NamedTuple):
    method: str
    result: Future[Any]


class FunctionCalls:
    """Runs calls on its own threads; any thread may use it. ``seconds``: time limit of each call."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._threads = ThreadPoolExecutor(_MOST_THREADS, f"{OWN_THREAD_PREFIX}-functions")
        self._lock = threading.RLock()  # a signal handler of the script may interrupt its holder
        self._newest: dict[str, _Call] = {}  # the latest call, by name of the function

    def call(self, name: str, method: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call ``method`` of the function ``name`` and return its result.

        Raises UserFunctionFailed if the method raises or does not return in time, or if the previous call of this
        function has not returned: no function has two calls at once.
        """
        where = f"{method} of {name} in the driver"
        with self._lock:
            before = self._newest.get(name)
            if before is not None and not before.result.done():
                raise UserFunctionFailed(
                    f"{where}: the previous call, {before.method}, has not returned yet",
                    hint="try again when it has returned",
                )
            result = self._threads.submit(function, *arguments)
            self._newest[name] = _Call(method, result)
        wait([result], self._seconds)
        if not result.done():
            log.error("a user function did not return in time", function=name, method=method, seconds=self._seconds)
            raise UserFunctionFailed(
                f"{where}: did not return within {self._seconds:g} s",
                hint="check what the method waits for, or raise execution.stop.function-timeout",
            )
        error = result.exception()
        if error is not None:
            log.error("a user function failed", function=name, method=method, exc_info=error)
            raise UserFunctionFailed(
                f"{where}: {type(error).__name__}: {error}", hint="the driver's log has the traceback"
            ) from error
        return result.result()

    def close_all(self, functions: Iterable[tuple[str, Callable[[], None]]]) -> None:
        """Close functions one after the other; log failures. ``functions``: pairs of a name and a close method.

        Each close waits for the previous one, and for a call of the same function in progress, but all these waits
        together take at most 3 s. After that, closes overlap. Return when all have ended or the time limit has passed.
        """
        patience = time.monotonic() + _PATIENCE_SECONDS
        closing: dict[Future[None], str] = {}
        for name, close in functions:
            before = self._newest.get(name)
            if before is not None:
                wait([before.result], max(0.0, patience - time.monotonic()))
            result = self._threads.submit(close)
            closing[result] = name
            wait([result], max(0.0, patience - time.monotonic()))
        done, hanging = wait(closing, self._seconds)
        for result in hanging:
            log.error("a user function did not close in time", function=closing[result], seconds=self._seconds)
        for result in done:
            error = result.exception()
            if error is not None:
                log.error("closing a user function failed", function=closing[result], reason=str(error), exc_info=error)
