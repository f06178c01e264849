"""Queries that a stop has ended, and that start again because the job continues after all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from emberkeep.spark.executors.scheduler_control import call
from emberkeep.spark.queries.await_hook import AwaitGate
from emberkeep.spark.queries.script_queries import ScriptQueries, ScriptQuery
from emberkeep.spark.stopping.batch_boundary import was_interrupted


class QueryRestarts:
    """Starts the ended queries of a driver again. ``settle``: brings a checkpoint to a start between batches."""

    def __init__(self, queries: ScriptQueries, gate: AwaitGate, settle: Callable[[ScriptQuery], None]) -> None:
        self._queries = queries
        self._gate = gate
        self._settle = settle
        self._starting_away = threading.RLock()  # a signal handler of the script may interrupt its holder
        self._at_hand: list[ScriptQuery] = []  # what the holder is starting
        self._with_ended: list[Any] = []  # sessions in which a query has ended that no stop of the job has ended

    def start_queries(self) -> None:
        """Start the ended queries again, and let the script's awaits continue with them. Raises what a start raises."""
        self._with_ended.clear()
        self._start_away()
        self._gate.open()
        self._start_away()  # in the meantime, the script may have started a query, which then started ended
        self._with_ended.clear()

    def started(self, query: ScriptQuery) -> None:
        """Finish the script's start of a query. If it started ended, and the job continues after all, run it now."""
        if query.away and self._gate.is_open:
            self._start_away()

    def _start_away(self) -> None:
        with self._starting_away:
            away = [query for query in self._queries.all() if query.away and query not in self._at_hand]
            for query in away:
                self._at_hand.append(query)
                try:
                    self._start_again(query)
                finally:
                    self._at_hand.remove(query)
                query.away = False
            # Of those just started as well: one may have failed, or been stopped, while others were started.
            self._with_ended += [query.session for query in away if not _is_active(query)]
            sessions = {id(query.session): query.session for query in away}
            for session in sessions.values():
                # Spark would forget this end as well, and `awaitAnyTermination` would never return or raise for it.
                if not any(_is_same(session, other) for other in self._with_ended):
                    call("termination of queries", session.streams.resetTerminated)

    def _start_again(self, query: ScriptQuery) -> None:
        # An active query was allowed to continue. One that has failed since, or was stopped by the script, is left
        # as it is for the script to see.
        if _is_active(query):
            return
        if _is_stopped(query) or not (query.handle.exception() is None or was_interrupted(query)):
            return
        if query.reached is not None:
            self._settle(query)
        query.handle._jsq = self._queries.start_again(query)._jsq
        if _is_stopped(query):  # in the meantime
            call("stop of a query", query.handle._jsq.stop)


def _is_same(session: Any, other: Any) -> bool:
    """True if two objects of PySpark stand for one session in the JVM."""
    return session is other or bool(call("a session", session._jsparkSession.equals, other._jsparkSession))


def _is_active(query: ScriptQuery) -> bool:
    return bool(call("is the query active", query.handle._jsq.isActive))


def _is_stopped(query: ScriptQuery) -> bool:
    """True if the script has stopped the query. A thread of the script may do so at any time."""
    return query.is_stopped
