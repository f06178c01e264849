"""Steps around the start of a query by the script: let it wait, restore its checkpoint, or make it start ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from emberkeep.spark.files.hadoop import HadoopFiles
from emberkeep.spark.queries.await_hook import AwaitGate
from emberkeep.spark.queries.script_queries import ScriptQuery
from emberkeep.spark.queries.state_schemas import refer_to_own_schemas
from emberkeep.spark.stopping.batch_boundary import starting_ended
from emberkeep.spark.stopping.procedures import QueryProcedures
from emberkeep.spark.stopping.restore import Restore


class OrderedStarts:
    """Implements QueryStarts. Restores one query at a time, whichever threads start them."""

    def __init__(
        self, gate: AwaitGate, restore: Restore, procedures: QueryProcedures, may_commit: Callable[[], None]
    ) -> None:
        self._gate = gate
        self._restore = restore
        self._procedures = procedures
        self._may_commit = may_commit
        self._lock = threading.RLock()  # a signal handler of the script may interrupt its holder

    def admitted(self) -> AbstractContextManager[None]:
        return self._gate.starting(waits=not self._procedures.takes_starts)

    def restore(self, query: ScriptQuery) -> None:
        with self._lock:
            self._restore.prepare(query)
            if query.reached is not None:
                refer_to_own_schemas(HadoopFiles(query.session), query.reached.rstrip("/"), self._may_commit)

    @contextmanager
    def starting(self, query: ScriptQuery) -> Iterator[None]:
        if self._procedures.before_start(query):
            yield
        else:
            query.away = True
            with starting_ended(query.session, self._procedures.starts_again):
                yield

    def started(self, query: ScriptQuery) -> None:
        self._procedures.restarts.started(query)
