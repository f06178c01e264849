"""Calls of user functions in the driver, with a bound: one that hangs holds up neither a stop nor other functions."""

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

_PATIENCE_SECONDS = 3.0  # less than a cancellation has, for all functions together
_MOST_THREADS = 256  # each function has at most one call that hangs


class _Call(NamedTuple):
    method: str
    result: Future[Any]


class FunctionCalls:
    """Used from any thread; calls are made on threads of its own. ``seconds``: that each of them may take."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._threads = ThreadPoolExecutor(_MOST_THREADS, f"{OWN_THREAD_PREFIX}-functions")
        self._lock = threading.Lock()
        self._newest: dict[str, _Call] = {}  # by function

    def call(self, name: str, method: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """What ``method`` of the function ``name`` returns. Raises UserFunctionFailed: it raises, does not return in
        time, or has not from the call before; there are no two at once."""
        where = f"{method} of {name} in the driver"
        with self._lock:
            before = self._newest.get(name)
            if before is not None and not before.result.done():
                raise UserFunctionFailed(
                    f"{where}: it has not returned from {before.method} yet", hint="ask again when it has"
                )
            result = self._threads.submit(function, *arguments)
            self._newest[name] = _Call(method, result)
        wait([result], self._seconds)
        if not result.done():
            log.error("a user function does not return", function=name, method=method, seconds=self._seconds)
            raise UserFunctionFailed(
                f"{where}: it has not returned in {self._seconds:g} s",
                hint="what does it wait for? execution.stop.function-timeout says how long it may take",
            )
        error = result.exception()
        if error is not None:
            log.error("a user function failed", function=name, method=method, exc_info=error)
            raise UserFunctionFailed(
                f"{where}: {type(error).__name__}: {error}", hint="the driver's log has the traceback"
            ) from error
        return result.result()

    def close_all(self, functions: Iterable[tuple[str, Callable[[], None]]]) -> None:
        """Names and what closes them: one after the other, but a close that takes long, or another call that does, is
        waited for by the others for a moment only. Returns when all are done, or their time is over; failures are
        logged."""
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
            log.error("a user function does not close", function=closing[result], seconds=self._seconds)
        for result in done:
            error = result.exception()
            if error is not None:
                log.error(
                    "a user function could not be closed", function=closing[result], reason=str(error), exc_info=error
                )
