"""Cordon executors: they get no new task, but finish their running tasks and keep their blocks.

Spark's scheduler offers no task to executors that it considers decommissioned. To cordon, tell the scheduler that an
executor decommissions itself, without telling the executor: Spark has a call for that, but none to undo it. Therefore,
to uncordon, remove the executor from the scheduler's two tables of decommissioned executors, each under the lock that
Spark itself holds when it uses that table. Spark's choice of block replicas excludes the executor permanently.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Protocol

from emberkeep.spark.errors import SparkInternalsMissing
from emberkeep.spark.executors.locked_tables import locked_table
from emberkeep.spark.executors.scheduler_control import call

_TABLE = "executorsPendingDecommission"
_REASON = "its node is blocked, or its disk is full"  # for Spark's log and its UI


def probe(context: Any) -> None:
    """Check that the internals used here exist. Raises SparkInternalsMissing."""
    from py4j.protocol import Py4JError

    try:
        for owner in _owners(context):
            _locked(context, owner).size()
        _info(context, "probe")
    except (Py4JError, TypeError, AttributeError, LookupError) as error:
        raise SparkInternalsMissing(
            f"cannot stop this Spark's scheduler from giving tasks to an executor: {error}",
            hint="Emberkeep works with PySpark 4.3",
        ) from error


class DecommissionTables:
    """Spark's tables of decommissioned executors, in the JVM."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def close(self, executor_ids: Collection[str]) -> frozenset[str]:
        """Mark executors as decommissioned; return the newly marked ones.

        Executors that are unknown, already marked or about to end are not among them.
        """
        context, closing = self._context, sorted(executor_ids)
        pairs = context._gateway.new_array(context._jvm.scala.Tuple2, len(closing))
        for index, executor_id in enumerate(closing):
            pairs[index] = context._jvm.scala.Tuple2(executor_id, _info(context, _REASON))
        # False: adjust no target number of executors. True: the executor itself initiated this, so do not notify it.
        done = _backend(context).decommissionExecutors(pairs, False, True)
        return frozenset(str(done.apply(index)) for index in range(done.size()))

    def open(self, executor_ids: Collection[str]) -> None:
        for owner in _owners(self._context):
            table = _locked(self._context, owner)
            for executor_id in sorted(executor_ids):
                table.remove(executor_id)
        _backend(self._context).reviveOffers()

    def closed(self, executor_ids: Collection[str]) -> frozenset[str]:
        """Return which of ``executor_ids`` are marked as decommissioned or are about to end."""
        table = _locked(self._context, _backend(self._context))
        return frozenset(executor_id for executor_id in executor_ids if table.containsKey(executor_id))


class Tables(Protocol):
    """Interface of DecommissionTables."""

    def close(self, executor_ids: Collection[str]) -> frozenset[str]: ...
    def open(self, executor_ids: Collection[str]) -> None: ...
    def closed(self, executor_ids: Collection[str]) -> frozenset[str]: ...


class Cordon:
    """The cordoned executors of the current application. Only one thread may use it."""

    def __init__(self, tables: Callable[[Any], Tables] = DecommissionTables) -> None:
        self._tables = tables
        self._application = ""
        self._cordoned: frozenset[str] = frozenset()
        self._doubtful: frozenset[str] = frozenset()  # a call to close them failed, with unknown effect

    @property
    def touched(self) -> frozenset[str]:
        """Return the executors that are in Spark's tables because of a cordon, or may be."""
        return self._cordoned | self._doubtful

    def change(self, context: Any, executor_ids: Collection[str]) -> frozenset[str]:
        """Cordon exactly these executors: keep new tasks from them, and from no others.

        Return the ones that are cordoned now. Unknown executors and those about to end are not among them. Raises
        SparkUnavailable; the next call then corrects a change that was made only in part.
        """
        application = call("the application's id", getattr, context, "applicationId")
        if self._application != application:
            self._application, self._cordoned, self._doubtful = application, frozenset(), frozenset()
        if frozenset(executor_ids) != self._cordoned or self._doubtful:
            call("executors that take no new task", self._apply, self._tables(context), frozenset(executor_ids))
        return self._cordoned

    def _apply(self, tables: Tables, wanted: frozenset[str]) -> None:
        new = wanted - self._cordoned
        if new:
            doubtful, self._doubtful = self._doubtful, self._doubtful | new
            done = tables.close(new)
            # `close` does not return executors that an earlier, failed call had closed: ask for those.
            if unsure := doubtful & new - done:
                done |= tables.closed(unsure)
            self._cordoned |= done
            self._doubtful = doubtful - new
        back = (self._cordoned | self._doubtful) - wanted
        if back:
            tables.open(back)
            self._cordoned -= back
            self._doubtful -= back


def _info(context: Any, message: str) -> Any:
    return context._jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo(message, context._jvm.scala.Option.empty())


def _backend(context: Any) -> Any:
    return context._jsc.sc().schedulerBackend()


def _owners(context: Any) -> tuple[Any, Any]:
    """Return the two objects that each own a table of decommissioned executors; each is also its table's lock."""
    return _backend(context), context._jsc.sc().taskScheduler()


def _locked(context: Any, owner: Any) -> Any:
    """Return the owner's table as a Java map whose methods each hold the owner's lock."""
    return locked_table(context, owner, _TABLE)
