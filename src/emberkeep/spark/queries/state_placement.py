"""Tell Spark which nodes hold the state of a streaming query, before its first batch and when executors change.

Spark sends a task to the executor that last used the task's state store. It learns this from reports that executors
send to its StateStoreCoordinator. A query that starts again has no reports, so this module makes them, from the state
files on the nodes' disks. If this fails, the query still runs: its tasks read their state from the durable store.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import structlog

from emberkeep.base.configuration.hosts import in_brackets
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.ids import ExecutorId, JobId
from emberkeep.local_state.gateway_paths import resolve
from emberkeep.local_state.model import StatePath
from emberkeep.local_state.placement import (
    Awaited,
    ExecutorPlace,
    HeldPartition,
    Partition,
    Patience,
    Survey,
    awaited,
    held_partitions,
    place,
)
from emberkeep.spark.executors.scheduler_control import executor_ids
from emberkeep.spark.queries.listening import listener_of_starts

log = structlog.get_logger(__name__)

_EXECUTORS_WAIT = 30.0  # seconds; a start may wait at least this long for executors on the nodes with the query's state
_OTHERS_SHARE = 5  # a start waits 1/5 of spark.locality.wait.node for missing slots, which may never become available
_PAUSE = 0.25

Surveyor = Callable[[], Survey]  # blocks for one RPC; raises EmberkeepError


class StatePlacement:
    """Reports to Spark where state is. One per process.

    ``gateway``: see ``gateway_address``.
    ``own_root``: location of the job's own checkpoints. ``survey``: returns which state the job's nodes hold.
    """

    def __init__(self, gateway: str, job_id: JobId, own_root: str, survey: Surveyor) -> None:
        self._gateway = gateway
        self._job_id = job_id
        self._own_root = own_root
        self._survey = survey
        self._lock = threading.Lock()
        self._running: dict[str, _Query] = {}  # by run id

    @contextmanager
    def watching(self, session: Any) -> Iterator[None]:
        """Place the state of queries that start within this context, before the script's ``start`` returns.

        Listening ends with the context, because otherwise each batch of each query would call back into Python.
        """
        listener = listener_of_starts(lambda event: self.started(session, str(event.id), str(event.runId)))
        with _harmless("cannot listen to the starts of streaming queries"):
            session.streams.addListener(listener)
        try:
            yield
        finally:
            with _harmless("cannot remove the listener of query starts"):
                session.streams.removeListener(listener)

    def started(self, session: Any, query_id: str, run_id: str) -> None:
        """Place a new query's state. Called on the query's thread, so its first batch waits until this returns."""
        with _harmless("cannot place a query's state"):
            query = _Query(session, query_id, run_id)
            if not query.root.startswith(f"{self._gateway}/"):
                return
            with self._lock:
                if run_id in self._running:  # another thread is starting a query, and its listener was called first
                    return
                self._running[run_id] = query
            if query.has_state():
                began = time.monotonic()
                survey, held = self._await_executors(query)
                placed = self._place(query, survey, held)
                took = round(time.monotonic() - began, 3)
                log.info("state placed", location=query.root, partitions=len(held), placed=placed, seconds=took)

    def executors_changed(self) -> None:
        """Place the state of running queries again after executors have come or gone. Blocks for an RPC."""
        with _harmless("cannot place the state of running queries again"):
            running = self._still_running()
            if not running:
                return
            survey = self._survey()
            for query in running:
                held = held_partitions(survey, self._checkpoint(query))
                # While a replacement executor is expected, let Spark's locality wait hold the tasks for its node.
                if awaited(survey, held.values(), query.executors()) is Awaited.NONE:
                    placed = self._place(query, survey, held)
                    log.info("state placed again", location=query.root, partitions=len(held), placed=placed)

    def _still_running(self) -> list[_Query]:
        with self._lock:
            seen = dict(self._running)
        active = {run_id: query for run_id, query in seen.items() if query.is_active()}
        with self._lock:
            self._running = {
                run_id: one for run_id, one in self._running.items() if run_id in active or run_id not in seen
            }
        return list(active.values())

    def _await_executors(self, query: _Query) -> tuple[Survey, dict[Partition, HeldPartition]]:
        tasks_wait = query.tasks_wait()
        patience = Patience(time.monotonic(), near=max(_EXECUTORS_WAIT, tasks_wait), others=tasks_wait / _OTHERS_SHARE)
        while True:
            survey = self._survey()
            held = held_partitions(survey, self._checkpoint(query))
            if not patience.lasts(awaited(survey, held.values(), query.executors()), time.monotonic()):
                return survey, held
            time.sleep(_PAUSE)

    def _checkpoint(self, query: _Query) -> StatePath:
        return resolve(self._job_id, query.root.removeprefix(self._gateway), self._own_root)

    @staticmethod
    def _place(query: _Query, survey: Survey, held: dict[Partition, HeldPartition]) -> int:
        """Report the executors of partitions to Spark; return the number of partitions that were reported."""
        registered = query.executors()
        usable = [one for one in survey.executors if one.executor_id in registered]
        settled = {partition: where for partition, one in held.items() if (where := query.location(partition, one))}
        placed = place(held, usable, settled)
        for partition, executor in placed.items():
            query.report(partition, held[partition], executor)
        return len(placed)


class _Query:
    """A running query in the JVM. Every method may raise what Py4J raises."""

    def __init__(self, session: Any, query_id: str, run_id: str) -> None:
        self._session = session
        jvm = session._jvm
        manager = session._jsparkSession.streams()
        self._query = manager.get(query_id)
        self.root = str(self._query.streamingQuery().resolvedCheckpointRoot())
        self._coordinator = manager.stateStoreCoordinator()
        self._classes = jvm.org.apache.spark.sql.execution.streaming.state
        self._run_id = jvm.java.util.UUID.fromString(run_id)
        self._nothing = getattr(getattr(jvm.scala.collection.immutable, "Nil$"), "MODULE$")

    def is_active(self) -> bool:
        return bool(self._query.isActive())

    def has_state(self) -> bool:
        path = self._session._jvm.org.apache.hadoop.fs.Path(f"{self.root}/state")
        configuration = self._session._jsparkSession.sessionState().newHadoopConf()
        return bool(path.getFileSystem(configuration).exists(path))

    def tasks_wait(self) -> float:
        """Return how many seconds a task waits for its preferred node (``spark.locality.wait.node``)."""
        return float(self._session._jsc.sc().conf().getTimeAsMs("spark.locality.wait.node", "0")) / 1000

    def executors(self) -> frozenset[ExecutorId]:
        """Return the executors registered with Spark."""
        return frozenset(ExecutorId(each) for each in executor_ids(self._session.sparkContext))

    def location(self, partition: Partition, held: HeldPartition) -> ExecutorId | None:
        """Return the executor to which Spark assigns the partition, or None if it knows of none."""
        found = self._coordinator.getLocation(self._store(partition, min(held.stores)))
        # The location is the text executor_<host>_<executor id>.
        return ExecutorId(str(found.get()).rpartition("_")[2]) if found.isDefined() else None

    def report(self, partition: Partition, held: HeldPartition, executor: ExecutorPlace) -> None:
        for name in sorted(held.stores):
            store = self._store(partition, name)
            self._coordinator.reportActiveInstance(
                store, in_brackets(executor.host), executor.executor_id, self._nothing
            )

    def _store(self, partition: Partition, name: str) -> Any:
        store = self._classes.StateStoreId(f"{self.root}/state", partition.operator, partition.number, name)
        return self._classes.StateStoreProviderId(store, self._run_id)


@contextmanager
def _harmless(what: str) -> Iterator[None]:
    """Log errors and continue, because without placement a query only reads more from the durable store."""
    from py4j.protocol import Py4JError

    try:
        yield
    except (EmberkeepError, Py4JError, OSError, AttributeError, TypeError) as error:
        log.warning(what, reason=str(error)[:500])
