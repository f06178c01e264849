"""End a streaming query exactly between two micro-batches.

``StreamingQuery.stop`` interrupts the running batch. A query also ends on its own if its state field, which it reads
before each batch, is TERMINATED: the running batch still commits its offsets and its state, and is the last one. Spark
4.3 reads the field once more after a batch is planned and before it writes, and then interrupts itself. So the field is
set when no batch is planned, see ``plan_gate``. If a batch is interrupted nevertheless, it must be run again under the
same number, and the query's exception is not a failure of the script.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from emberkeep.base.errors import EmberkeepError
from emberkeep.lifecycle.errors import NeverPossible, ProcedureRefused, TooLate
from emberkeep.spark.executors.scheduler_control import call
from emberkeep.spark.files.hadoop import HadoopFiles
from emberkeep.spark.queries.listening import listener_of_starts
from emberkeep.spark.queries.script_queries import ScriptQuery, check_not_failed
from emberkeep.spark.stopping.drain import log_state
from emberkeep.spark.stopping.limit import Limit
from emberkeep.spark.stopping.plan_gate import PlanGate
from emberkeep.spark.stopping.running_batch import RunningBatch

_EXECUTION = "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution"
_REAL_TIME = "org.apache.spark.sql.execution.streaming.RealTimeTrigger"
_PAUSE = 0.1
_INTERRUPTIONS = ("InterruptedException", "InterruptedIOException", "ClosedByInterruptException")
_CAUSES = 20  # maximum number of links examined in an exception's chain of causes
_IDLE_LOOKS = 5  # a query that is seen idle this many times in a row is interrupted while it sleeps

Note = Callable[[str], None]


def end_between_batches(queries: Sequence[ScriptQuery], plans: PlanGate, note: Note, limit: Limit) -> None:
    """Let each query commit its running batch and end; return when all have ended.

    Raises ProcedureRefused, with nothing changed, if this Spark or a query's kind does not support it; TooLate if
    batches still run when the limit is reached: their queries continue, the others have ended. Raises Fatal if a query
    fails in the meantime; SparkUnavailable.
    """
    waits = [_Wait(query, plans, limit, *_ending(query)) for query in queries if runs(query)]
    try:
        _end(waits, note, limit)
    finally:
        for wait in waits:
            wait.let_plan()
    for query in queries:
        if not was_interrupted(query):
            check_not_failed(query, query.handle)


def _end(waits: Sequence[_Wait], note: Note, limit: Limit) -> None:
    """End the queries. Raises TooLate if batches still run when the limit is reached; SparkUnavailable."""
    waiting = list(waits)
    for wait in waiting:
        wait.end()
    while waiting:
        note("finishing " + ", ".join(str(wait.batch) for wait in waiting))
        _wait_for_ends(waiting)
        waiting = [wait for wait in waiting if not wait.is_over()]
        if waiting and limit.is_over:
            late, waiting = _let_run_on(waiting), []
            if late:
                raise too_late(", ".join(str(wait.batch) for wait in late) + " did not end in time")


def check_has_boundaries(query: ScriptQuery) -> None:
    """Raise ProcedureRefused if the query cannot be ended between two micro-batches."""
    _ending(query)


def was_interrupted(query: ScriptQuery) -> bool:
    """True if the query has ended because its batch was interrupted, according to the causes of its exception.

    Either Spark's own code or the script's may have raised that exception. Raises SparkUnavailable.
    """
    failure = call("exception of a query", query.handle._jsq.exception)
    found = failure.get() if failure.isDefined() else None
    for _ in range(_CAUSES):
        if found is None:
            return False
        if any(name in str(found.toString()) for name in _INTERRUPTIONS):
            return True
        found = found.getCause()
    return False


def runs(query: ScriptQuery) -> bool:
    """True if the query may still commit a batch.

    ``isActive`` is not used: it turns false when the query is stopped, while its last batch still runs. Raises
    SparkUnavailable.
    """
    return bool(call("does the query run", lambda: _thread(query).isAlive()))


def too_late(what: str) -> TooLate:
    return TooLate(
        f"{what}: the job continues",
        hint="raise --timeout or execution.stop.batch-timeout; 'emberkeep cancel' does not wait for batches",
    )


def start_inside(error: TooLate) -> TooLate:
    """Return the error with its possible reason: a batch starts a query, and the start waits for the end of the stop.

    Another thread of the script may as well start the query, and the batch may only be slow.
    """
    return TooLate(
        f"{error.message}; meanwhile the script starts another query, which waits for the end of this request",
        hint=f"{error.hint}; if a foreachBatch function starts the query, its batch may be the one that cannot end: "
        "start the query outside of the function",
    )


def _wait_for_ends(waiting: Sequence[_Wait]) -> None:
    """Return as soon as all queries have ended, or after a pause."""
    until = time.monotonic() + _PAUSE
    for wait in waiting:
        wait.join(until - time.monotonic())


def _let_run_on(waiting: list[_Wait]) -> list[_Wait]:
    """Let the queries whose batches still run continue, and return them; the other queries end."""
    late: list[_Wait] = []
    while waiting:
        late += [wait for wait in waiting if wait.take_back()]
        waiting = [wait for wait in waiting if wait not in late]
        if waiting:
            time.sleep(_PAUSE)  # without a pause, a query that is about to begin a batch would count as idle
            waiting = [wait for wait in waiting if not wait.is_over()]
    return late


@contextmanager
def starting_ended(session: Any, is_spared: Callable[[str], bool] = lambda _: False) -> Iterator[None]:
    """Make queries that start within this context end before their first batch, except those whose id is spared.

    The script gets its StreamingQuery, but no batch runs. A query of any kind ends: Spark reads the state once before
    it runs anything, and only later does it matter whether the query has batches.
    """

    def end(event: Any) -> None:
        if is_spared(str(event.id)):
            return
        state, terminated = _state_of(session._jsparkSession.streams().get(str(event.id)).streamingQuery())
        state.set(terminated)

    listener = listener_of_starts(end)
    session.streams.addListener(listener)
    try:
        yield
    finally:
        session.streams.removeListener(listener)


class _Wait:
    """The wait until one query has ended between two batches.

    ``state``: reference to the JVM field that the query reads before each batch. ``terminated``: the value of that
    field at which the query ends.
    """

    def __init__(self, query: ScriptQuery, plans: PlanGate, limit: Limit, state: Any, terminated: Any) -> None:
        self.batch = RunningBatch(query)
        self._java = query.handle._jsq
        self._id = str(query.handle.id)
        self._plans = plans
        self._limit = limit
        self._query = query
        self._state = state
        self._terminated = terminated
        self._active = state.get()
        self._idle = 0

    def end(self) -> None:
        """Let the query end once it has no planned batch left."""
        if self._plans.end(self._id, self._terminate, self._limit) is None and self._has_no_batch():
            self._terminate()

    def let_plan(self) -> None:
        self._plans.let_continue(self._id)

    def _terminate(self) -> None:
        call("ending a query", self._state.set, self._terminated)

    def _has_no_batch(self) -> bool:
        """True if the logs have no batch that is planned and not committed, or cannot be read."""
        if self._query.reached is None:
            return True
        try:
            return log_state(HadoopFiles(self._query.session), self._query.reached.rstrip("/")).is_between_batches
        except EmberkeepError:
            return True  # if there is one after all, it is interrupted and run again

    def join(self, seconds: float) -> None:
        """Wait until the query has ended, at most ``seconds``."""
        milliseconds = max(1, int(seconds * 1000))  # Java would wait for ever with 0
        call("waiting for a query", lambda: _thread(self._query).join(milliseconds))

    def is_over(self) -> bool:
        if not runs(self._query):
            return True
        # The query may sleep until its next trigger, hours from now. No batch runs then, so interrupting it is safe.
        self._idle = 0 if self._works() else self._idle + 1
        if self._idle >= _IDLE_LOOKS:
            self._idle = 0
            call("waking a query", self._java.stop)
        return False

    def take_back(self) -> bool:
        """True if the query continues: it was still in a batch when the state was reset, and reads the state after it.

        Return False if no batch runs; in that case make the query end again.
        """
        if not self._works():
            return False
        self.let_plan()
        call("letting a query continue", self._state.compareAndSet, self._terminated, self._active)
        time.sleep(_PAUSE)  # a query that read the state before the reset ends, or interrupts itself, in this time
        if runs(self._query) and self._works() and not self._is_interrupted():
            return True
        self.end()
        return False

    def _is_interrupted(self) -> bool:
        return bool(call("is the query interrupted", lambda: _thread(self._query).isInterrupted()))

    def _works(self) -> bool:
        return bool(call("status of a query", lambda: self._java.status().isTriggerActive()))


def _thread(query: ScriptQuery) -> Any:
    return query.handle._jsq.streamingQuery().queryExecutionThread()


def _ending(query: ScriptQuery) -> tuple[Any, Any]:
    """Return the reference to the state of the query's StreamExecution, and the state TERMINATED.

    The query ends when TERMINATED is set in the reference. Raises ProcedureRefused.
    """
    from py4j.protocol import Py4JError

    try:
        return _ending_of(query.handle._jsq.streamingQuery())
    except (Py4JError, TypeError, AttributeError) as error:
        raise ProcedureRefused(
            f"{query} cannot be ended between two batches: {error}", hint="Emberkeep works with PySpark 4.3"
        ) from error


def _ending_of(execution: Any) -> tuple[Any, Any]:
    # Check the trigger first: a stateless real-time query also runs as asynchronous progress tracking, which the user
    # did not choose, so the other message would mislead.
    if str(execution.trigger().getClass().getName()) == _REAL_TIME:
        raise NeverPossible(
            "the query runs in real-time mode: it records the offsets of a batch only when the batch has ended",
            hint="cancel the job and start it with trigger(processingTime=…) on the same checkpointLocation: it "
            "continues after its newest committed batch and supports savepoints and stops",
        )
    kind = str(execution.getClass().getName())
    if kind != _EXECUTION:
        raise NeverPossible(
            f"the query runs as {kind.rpartition('.')[2]}, not in micro-batches",
            hint="use a trigger other than continuous and no asynchronous progress tracking, or cancel the job",
        )
    return _state_of(execution)


def _state_of(execution: Any) -> tuple[Any, Any]:
    """Return the reference to the state of any StreamExecution, and the state TERMINATED."""
    state = execution.state()
    present = state.get().getClass()
    name = f"{present.getName().rpartition('.')[0]}.TERMINATED$"
    return state, present.getClassLoader().loadClass(name).getField("MODULE$").get(None)
