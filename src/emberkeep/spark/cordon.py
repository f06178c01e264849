"""Executors that take no new task, but go on with those that run and keep their blocks.

Spark's scheduler offers nothing to executors that it takes to be decommissioned. It is told so of them, while they are
not told themselves: that is the call by which Spark takes note of an executor that decommissions itself. There is no
call that takes it back. So an executor is removed from the scheduler's two tables of such executors, each under the
lock that Spark itself holds when it uses that table. Its block manager stays out of the choice of replicas for good.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from emberkeep.spark.errors import SparkInternalsMissing
from emberkeep.spark.scheduler_control import call

_TABLE = "executorsPendingDecommission"
_LOCKED_MAP = "java.util.Collections$SynchronizedMap"


def probe(context: Any) -> None:
    """Check that the internals used here exist. Raises SparkInternalsMissing."""
    from py4j.protocol import Py4JError

    try:
        for owner in _owners(context):
            _locked(context, owner).size()
        _info(context, "probe")
    except (Py4JError, TypeError, AttributeError, LookupError) as error:
        raise SparkInternalsMissing(
            f"this Spark's scheduler cannot be kept from giving tasks to an executor: {error}",
            hint="Emberkeep works with PySpark 4.3",
        ) from error


class Cordon:
    """Which executors of the present application take no new task. One thread uses it."""

    def __init__(self) -> None:
        self._application = ""
        self._cordoned: frozenset[str] = frozenset()

    def change(self, context: Any, executor_ids: Collection[str]) -> frozenset[str]:
        """Let exactly these executors take no new task.

        Returns those that are cordoned now; unknown ones, and those that end, are not among them. Raises
        SparkUnavailable.
        """
        application = call("the application's id", getattr, context, "applicationId")
        if self._application != application:
            self._application, self._cordoned = application, frozenset()
        if frozenset(executor_ids) != self._cordoned:
            self._cordoned = frozenset(call("executors that take no new task", self._apply, context, executor_ids))
        return self._cordoned

    def _apply(self, context: Any, executor_ids: Collection[str]) -> frozenset[str]:
        new, back = sorted(set(executor_ids) - self._cordoned), sorted(self._cordoned - set(executor_ids))
        done = _close(context, new) if new else frozenset()
        if back:
            _open(context, back)
        return done | (self._cordoned & set(executor_ids))


def _close(context: Any, executor_ids: list[str]) -> frozenset[str]:
    pairs = context._gateway.new_array(context._jvm.scala.Tuple2, len(executor_ids))
    for index, executor_id in enumerate(executor_ids):
        pairs[index] = context._jvm.scala.Tuple2(executor_id, _info(context, "its node is blocked"))
    # Neither is another executor asked for, nor this one told: as if it had said so itself.
    done = _backend(context).decommissionExecutors(pairs, False, True)
    return frozenset(str(done.apply(index)) for index in range(done.size()))


def _open(context: Any, executor_ids: list[str]) -> None:
    for owner in _owners(context):
        table = _locked(context, owner)
        for executor_id in executor_ids:
            table.remove(executor_id)
    _backend(context).reviveOffers()


def _info(context: Any, message: str) -> Any:
    return context._jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo(message, context._jvm.scala.Option.empty())


def _backend(context: Any) -> Any:
    return context._jsc.sc().schedulerBackend()


def _owners(context: Any) -> tuple[Any, Any]:
    """Who keeps a table of decommissioned executors, and is its lock."""
    return _backend(context), context._jsc.sc().taskScheduler()


def _locked(context: Any, owner: Any) -> Any:
    """The owner's table as a Java map, each of whose methods holds the owner's lock."""
    jvm = context._jvm
    table = jvm.scala.jdk.javaapi.CollectionConverters.asJava(_field(owner, _TABLE))
    arguments = context._gateway.new_array(jvm.java.lang.Object, 2)
    arguments[0], arguments[1] = table, owner
    constructors = jvm.java.lang.Class.forName(_LOCKED_MAP).getDeclaredConstructors()
    constructor = next(one for one in constructors if one.getParameterCount() == 2)
    constructor.setAccessible(True)
    return constructor.newInstance(arguments)


def _field(owner: Any, name: str) -> Any:
    """A field of the object's class or of one that it extends. Raises LookupError."""
    kind = owner.getClass()
    while kind is not None:
        for field in kind.getDeclaredFields():
            if field.getName().rpartition("$")[2] == name:
                field.setAccessible(True)
                return field.get(owner)
        kind = kind.getSuperclass()
    raise LookupError(f"{owner.getClass().getName()} has no field {name}")
