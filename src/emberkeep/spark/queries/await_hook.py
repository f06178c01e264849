"""Hide from the script that a procedure has ended its streaming queries, until that procedure has ended.

While the queries are stopped, the script sees them as running: its awaits do not return, ``isActive`` is true, and the
start of another query waits. If the queries are started again, awaits continue with the new runs. If the job's end is
recorded, awaits return as they do for ended queries, and the script continues after them. If it then starts a query,
the script exits successfully, because the job has ended.
"""

from __future__ import annotations

import enum
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from emberkeep.spark.errors import SparkInternalsMissing
from emberkeep.spark.notices import Notices
from emberkeep.spark.queries.script_queries import ScriptQueries, ScriptQuery


class _State(enum.Enum):
    OPEN = "OPEN"
    HELD = "HELD"
    ENDED = "ENDED"


class AwaitGate:
    """Gate that holds back the script's calls that await or start queries: open, held or ended. Thread-safe.

    ``held``: start in the state held, because an earlier attempt has begun to end the job.
    """

    def __init__(self, notices: Notices, *, held: bool = False) -> None:
        self._notices = notices
        self._changed = threading.Condition()
        self._state = _State.HELD if held else _State.OPEN
        self._turns = 0
        self._asked = False  # the script has awaited a query, or asked for active ones, since its last start
        self._awaits = 0  # awaits of the script that have not returned yet
        self._starting = 0  # starts that have passed the gate and have not returned yet
        self._start_waits = 0  # starts that wait for the gate

    @property
    def is_held(self) -> bool:
        with self._changed:
            return self._state is _State.HELD

    @property
    def is_closed(self) -> bool:
        """True if a stop holds back the script's calls that await queries, or has ended them."""
        with self._changed:
            return self._state is not _State.OPEN

    @property
    def is_open(self) -> bool:
        with self._changed:
            return self._state is _State.OPEN

    @property
    def has_ended(self) -> bool:
        with self._changed:
            return self._state is _State.ENDED

    @property
    def turns(self) -> int:
        """Number of state changes so far."""
        with self._changed:
            return self._turns

    @property
    def was_awaited(self) -> bool:
        """True if the script counts as having started all queries: it awaits one, or has asked for active ones.

        What it did before its last start does not count: it may start one query after the other, and look in between.
        """
        with self._changed:
            return self._is_awaited()

    @property
    def is_starting(self) -> bool:
        """True while a start of the script has passed the gate and has not returned yet."""
        with self._changed:
            return self._starting > 0

    @property
    def start_waits(self) -> bool:
        """True if the script starts a query, which waits until the gate is released."""
        with self._changed:
            return self._start_waits > 0

    def hold(self, seconds: float | None = None) -> bool:
        """Hold the gate. Return True once no query is being started; False if one still is after ``seconds``."""
        with self._changed:
            if self._state is _State.OPEN:
                self._state = _State.HELD
                self._turns += 1
            return self._changed.wait_for(lambda: not self._starting, seconds)

    def open(self) -> None:
        """Open the gate, because the queries run again."""
        self._become(_State.OPEN)

    def end(self) -> None:
        """End the gate permanently, because the job's end is recorded."""
        self._become(_State.ENDED)

    def asked(self) -> None:
        """Note that the script asks which queries are active."""
        with self._changed:
            self._asked = True
            self._changed.notify_all()

    @contextmanager
    def awaiting(self) -> Iterator[None]:
        """Enclose an await of the script."""
        with self._changed:
            self._asked = True
            self._awaits += 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._awaits -= 1

    def wait(self, deadline: float | None = None) -> bool:
        """Wait until the gate is not held; return False if ``deadline`` (``time.monotonic()``) passes first."""
        with self._changed:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            return self._changed.wait_for(lambda: self._state is not _State.HELD, left)

    def wait_until_awaited(self, seconds: float) -> bool:
        """Wait until the script has awaited a query and starts none; return False if ``seconds`` pass first."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_awaited() and not self._starting, seconds)

    @contextmanager
    def starting(self, *, waits: bool = True) -> Iterator[None]:
        """Enclose the script's start of a query: wait while the gate is held, unless ``waits`` is False.

        Raises SystemExit if the start waits and the job has ended.
        """
        with self._changed:
            if waits:
                self._wait_to_start()
            self._starting += 1
        try:
            yield
        finally:
            with self._changed:
                self._starting -= 1
                self._asked = False
                self._changed.notify_all()

    def _is_awaited(self) -> bool:
        return self._asked or self._awaits > 0

    def _wait_to_start(self) -> None:
        self._start_waits += 1
        try:
            self._changed.wait_for(lambda: self._state is not _State.HELD)
        finally:
            self._start_waits -= 1
        if self._state is _State.ENDED:
            self._notices.say("the job was stopped: the script starts no further query and ends here")
            raise SystemExit(0)

    def _become(self, state: _State) -> None:
        with self._changed:
            if self._state is not _State.ENDED:
                self._state = state
                self._turns += 1
            self._changed.notify_all()


def install_await_hook(gate: AwaitGate, queries: ScriptQueries) -> None:
    """Patch StreamingQuery and StreamingQueryManager. Raises SparkInternalsMissing."""
    from pyspark.sql.streaming.query import StreamingQuery, StreamingQueryManager

    query, manager = StreamingQuery, StreamingQueryManager
    places = (
        (query, ("awaitTermination", "processAllAvailable", "isActive", "stop")),
        (manager, ("awaitAnyTermination",)),
    )
    for kind, names in places:
        for name in names:
            if not hasattr(kind, name):
                raise SparkInternalsMissing(
                    f"this PySpark has no {kind.__name__}.{name}", hint="Emberkeep works with PySpark 4.3"
                )
    hook = _Hook(gate, queries, query.isActive.fget)  # type: ignore[attr-defined]
    patched: Any = query
    patched.awaitTermination = hook.around_await(query.awaitTermination)
    patched.processAllAvailable = hook.around_process_all(query.processAllAvailable)
    patched.stop = hook.around_stop(query.stop)
    patched.isActive = property(hook.is_active, doc=query.isActive.__doc__)
    patched = manager
    patched.awaitAnyTermination = hook.around_await_any(manager.awaitAnyTermination)
    patched.get = hook.around_get(manager.get)
    patched.active = property(hook.around_active(manager.active.fget), doc=manager.active.__doc__)  # type: ignore[attr-defined]


class _Hook:
    def __init__(self, gate: AwaitGate, queries: ScriptQueries, is_active: Any) -> None:
        self._gate = gate
        self._queries = queries
        self._really_active = is_active
        self._pid = os.getpid()

    def is_active(self, query: Any) -> bool:
        known = self._known(query)
        if known is not None:
            self._gate.asked()
            if known.away and self._gate.is_held:
                return True
        return bool(self._really_active(query))

    def around_stop(self, original: Any) -> Any:
        @functools.wraps(original)
        def stop(query: Any) -> None:
            known = self._known(query)
            if known is not None and known.away:
                known.is_stopped = True  # it must not be started again
            original(query)

        return stop

    def around_await(self, original: Any) -> Any:
        @functools.wraps(original)
        def await_termination(query: Any, timeout: Any = None) -> Any:
            known = self._known(query)
            if known is None or not _is_usable(timeout):
                return original(query, timeout)
            deadline = _deadline(timeout)
            with self._gate.awaiting():
                while True:
                    ended = self._unless_held(lambda: original(query, _left(deadline)), lambda: [known], deadline)
                    if ended is False or not self._gate.wait(deadline):
                        return False
                    if not self._really_active(query):
                        return ended

        return await_termination

    def around_process_all(self, original: Any) -> Any:
        @functools.wraps(original)
        def process_all_available(query: Any) -> None:
            known = self._known(query)
            if known is None:
                original(query)
                return
            while True:
                turns = self._gate.turns
                self._unless_held(lambda: original(query), lambda: [known], None)
                self._gate.wait()
                if turns == self._gate.turns or not self._really_active(query):
                    return

        return process_all_available

    def around_await_any(self, original: Any) -> Any:
        @functools.wraps(original)
        def await_any_termination(manager: Any, timeout: Any = None) -> Any:
            if os.getpid() != self._pid or not _is_usable(timeout):
                return original(manager, timeout)
            deadline = _deadline(timeout)
            with self._gate.awaiting():
                while True:
                    turns = self._gate.turns
                    ended = self._unless_held(lambda: original(manager, _left(deadline)), self._queries.all, deadline)
                    if ended is False or not self._gate.wait(deadline):
                        return False
                    if turns == self._gate.turns or not self._any_active():
                        return ended  # a query ended on its own

        return await_any_termination

    def around_active(self, original: Any) -> Any:
        def active(manager: Any) -> list[Any]:
            if os.getpid() != self._pid:
                return list(original(manager))
            self._gate.asked()
            if self._gate.is_held:
                return [query.handle for query in self._queries.all() if query.away]
            # Return the script's own handles, because the gate holds only awaits on those.
            return [self._queries.handle_of(found) for found in original(manager)]

        return active

    def around_get(self, original: Any) -> Any:
        @functools.wraps(original)
        def get(manager: Any, identity: str) -> Any:
            if os.getpid() != self._pid:
                return original(manager, identity)
            if self._gate.is_held:
                for query in self._queries.all():
                    if query.away and str(query.handle.id) == identity:
                        return query.handle
            found = original(manager, identity)
            return None if found is None else self._queries.handle_of(found)

        return get

    def _unless_held(self, wait: Any, queries: Callable[[], Sequence[ScriptQuery]], deadline: float | None) -> Any:
        """Call ``wait`` and return its result.

        If it raises, raise its error only once the gate is released or ``deadline`` (``time.monotonic()``) has passed.
        If none of ``queries`` has failed then, a procedure has interrupted a batch, and run it again: return as if
        their run had ended without an error. The wait may also begin after a procedure has ended the job.
        """
        turns = self._gate.turns
        try:
            return wait()
        except Exception:
            is_released = self._gate.wait(deadline)
            was_held = turns != self._gate.turns or self._gate.has_ended
            if is_released and was_held and not any(map(_has_failed, queries())):
                return None if deadline is None else True
            raise

    def _any_active(self) -> bool:
        return any(self._really_active(query.handle) for query in self._queries.all())

    def _known(self, query: Any) -> ScriptQuery | None:
        return self._queries.of_handle(query) if os.getpid() == self._pid else None


def _has_failed(query: ScriptQuery) -> bool:
    """True if a query has ended with an error of its own. One that is away, or was started again, has not."""
    return not query.away and query.handle.exception() is not None


def _is_usable(timeout: Any) -> bool:
    """True if PySpark accepts this timeout; for any other, the original method raises the error."""
    return timeout is None or (isinstance(timeout, int | float) and timeout > 0)


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def _left(deadline: float | None) -> float | None:
    """Return the seconds until the deadline, at least 0.001 because PySpark refuses 0; None without a deadline."""
    return None if deadline is None else max(0.001, deadline - time.monotonic())
