"""Read what Spark's dynamic allocation wants: how many executors, and which of them it removes.

Spark's ExecutorAllocationManager decides and tells its scheduler. On YARN or Kubernetes the scheduler passes that on to
the resource manager; here it is read from the scheduler. So are the calls with which a script itself requests or kills
executors. Executors that Spark decommissions end by themselves. Nobody ends those that Spark kills, see
``ExecutorDemand``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from emberkeep.spark.errors import SparkInternalsMissing, SparkUnavailable
from emberkeep.spark.executors.locked_tables import locked_table
from emberkeep.spark.executors.scheduler_control import call

DEFAULT_PROFILE = 0
IDLE_TIMEOUT = ("spark.dynamicAllocation.executorIdleTimeout", "60s")
_SWITCH = "spark.dynamicAllocation.enabled"
_MINIMUM = "spark.dynamicAllocation.minExecutors"
_MAXIMUM = "spark.dynamicAllocation.maxExecutors"
UNBOUNDED = 2**31 - 1  # Spark's default for the maximum


@dataclass(frozen=True)
class ExecutorDemand:
    """What Spark wants at one moment.

    - ``count``: number of executors, of the default resource profile.
    - ``others``: number of executors of other resource profiles.
    - ``decommissioned``: executors that hand over their blocks and end by themselves.
    - ``killed``: executors that Spark has removed without a fault of theirs; they must be ended.
    """

    app_id: str
    count: int
    others: int = 0
    decommissioned: frozenset[str] = frozenset()
    killed: frozenset[str] = frozenset()


@dataclass(frozen=True)
class DynamicAllocation:
    """The settings of an application's dynamic allocation.

    ``initial``: number of executors wanted when the application starts. ``maximum``: None for no limit.
    """

    initial: int
    minimum: int
    maximum: int | None
    idle_seconds: float


class DemandReader:
    """Reads the demand of one application. Only one thread may use it. ``dynamic_allocation`` has probed Spark."""

    def __init__(self, context: Any) -> None:
        """Find Spark's tables. Raises SparkUnavailable."""
        self._context = context
        call("dynamic allocation", self._find)

    def _find(self) -> None:
        context = self._context
        self._app_id = str(context.applicationId)
        self._backend = context._jsc.sc().schedulerBackend()
        self._decommissioned = locked_table(context, self._backend, "executorsPendingDecommission")
        self._removed = locked_table(context, self._backend, "executorsPendingToRemove")

    def is_of(self, context: Any) -> bool:
        """True if the reader reads the demand of ``context``."""
        return self._context is context

    def read(self, cordoned: Collection[str] = ()) -> ExecutorDemand:
        """Return what Spark wants now. ``cordoned``: Spark takes these for decommissioned. Raises SparkUnavailable."""
        demand: ExecutorDemand = call("executors that Spark wants", self._read, frozenset(cordoned))
        return demand

    def _read(self, cordoned: frozenset[str] = frozenset()) -> ExecutorDemand:
        counts = dict.fromkeys((True, False), 0)
        requested = self._backend.getRequestedTotalExecutors().toSeq()
        for index in range(requested.size()):
            pair = requested.apply(index)
            counts[int(pair._1().id()) == DEFAULT_PROFILE] += int(pair._2())
        removed = {str(key): self._removed.get(key) for key in _keys(self._removed)}
        return ExecutorDemand(
            app_id=self._app_id,
            count=counts[True],
            others=counts[False],
            decommissioned=frozenset(str(key) for key in _keys(self._decommissioned)) - cordoned,
            killed=frozenset(key for key, orderly in removed.items() if orderly is True),
        )


def dynamic_allocation(context: Any) -> DynamicAllocation | None:
    """Return the settings of the application's dynamic allocation; None if it is off. Raises SparkInternalsMissing."""
    from py4j.protocol import Py4JError

    try:
        spark = context._jsc.sc()
        conf = spark.conf()
        if not conf.getBoolean(_SWITCH, False) or not spark.executorAllocationManager().isDefined():
            return None
        maximum = int(conf.getInt(_MAXIMUM, UNBOUNDED))
        return DynamicAllocation(
            initial=DemandReader(context).read().count,
            minimum=int(conf.getInt(_MINIMUM, 0)),
            maximum=None if maximum == UNBOUNDED else maximum,
            idle_seconds=int(conf.getTimeAsMs(*IDLE_TIMEOUT)) / 1000,
        )
    except (Py4JError, TypeError, AttributeError, LookupError, SparkUnavailable) as error:
        raise SparkInternalsMissing(
            f"cannot read what this Spark's dynamic allocation wants: {error}",
            hint="Emberkeep works with PySpark 4.3; turn spark.dynamicAllocation.enabled off",
        ) from error


def _keys(table: Any) -> list[Any]:
    """Return a snapshot of the table's keys, taken under its lock."""
    return [] if table.isEmpty() else list(table.keySet().toArray())
