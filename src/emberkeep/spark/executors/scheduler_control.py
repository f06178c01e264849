"""Query Spark's scheduler about executors, and remove executors from it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from emberkeep.spark.errors import SparkInternalsMissing, SparkUnavailable

HEARTBEAT_RECEIVER = "org.apache.spark.HeartbeatReceiver"
HEARTBEAT_INTERVAL = "spark.executor.heartbeatInterval"
HEARTBEATS_MISSED = 3  # in heartbeat intervals; the first heartbeat comes after up to two intervals


def call(what: str, function: Any, *arguments: Any) -> Any:
    """Call into the JVM; turn every error that a missing or broken JVM can cause into SparkUnavailable.

    That includes an answer that is not what was expected, such as NaN where Spark has removed what it was counting:
    what reads Spark's state now and then must not end the job.
    """
    from py4j.protocol import Py4JError

    try:
        return function(*arguments)
    except (Py4JError, OSError, AttributeError, TypeError, ValueError, LookupError, ArithmeticError) as error:
        raise SparkUnavailable(f"Spark did not answer ({what}): {error}") from error


def probe(context: Any) -> None:
    """Check that the internals used here exist. Raises SparkInternalsMissing."""
    from py4j.protocol import Py4JError

    try:
        context._jsc.sc().schedulerBackend().driverEndpoint()
        _loss(context, "probe", caused_by_app=False)
        _last_heard(context)
    except (Py4JError, TypeError, AttributeError) as error:
        raise SparkInternalsMissing(
            f"cannot list or remove executors in this Spark's scheduler: {error}",
            hint="Emberkeep works with PySpark 4.3",
        ) from error


def executor_ids(context: Any) -> frozenset[str]:
    """Return the executors registered with the driver. Raises SparkUnavailable."""

    def ask() -> frozenset[str]:
        ids = context._jsc.sc().schedulerBackend().getExecutorIds()
        return frozenset(str(ids.apply(index)) for index in range(ids.size()))

    return frozenset(call("executor ids", ask))


def silent_executors(context: Any, executor_ids: Collection[str]) -> frozenset[str]:
    """Return the executors that have sent the driver no heartbeat for more than three heartbeat intervals.

    An executor that has not sent any heartbeat yet is not among them. Raises SparkUnavailable.
    """

    def ask() -> frozenset[str]:
        heard = _last_heard(context)
        now = int(context._jvm.System.currentTimeMillis())
        interval = int(context._jsc.sc().conf().getTimeAsMs(HEARTBEAT_INTERVAL, "10s"))
        times = ((executor_id, heard.get(executor_id)) for executor_id in executor_ids)
        return frozenset(
            executor_id
            for executor_id, time in times
            if time.isDefined() and now - int(time.get()) > HEARTBEATS_MISSED * interval
        )

    return frozenset(call("heartbeats of executors", ask)) if executor_ids else frozenset()


def _last_heard(context: Any) -> Any:
    """Return Spark's table of last heartbeats, a Scala map from executor id to ms since 1970.

    The table is a field of the heartbeat receiver, which can be reached only through Spark's listener bus.
    """
    listeners = context._jsc.sc().listenerBus().listeners()
    receiver = next((one for one in listeners if one.getClass().getName() == HEARTBEAT_RECEIVER), None)
    return getattr(receiver, f"{HEARTBEAT_RECEIVER.replace('.', '$')}$$executorLastSeen")()


def remove_executor(context: Any, executor_id: str, reason: str, *, caused_by_app: bool) -> None:
    """Make Spark drop an executor and tell it to end; an unknown id is ignored. Raises SparkUnavailable.

    If ``caused_by_app`` is false, its running tasks are retried without counting against ``spark.task.maxFailures``.
    """

    def send() -> None:
        messages = "org.apache.spark.scheduler.cluster.CoarseGrainedClusterMessages$RemoveExecutor"
        message = _new(context, messages, executor_id, _loss(context, reason, caused_by_app=caused_by_app))
        context._jsc.sc().schedulerBackend().driverEndpoint().send(message)

    call(f"removing executor {executor_id}", send)


def _loss(context: Any, reason: str, *, caused_by_app: bool) -> Any:
    nothing = context._jvm.scala.Option.empty()
    return _new(context, "org.apache.spark.scheduler.ExecutorProcessLost", reason, nothing, caused_by_app)


def _new(context: Any, class_name: str, *arguments: Any) -> Any:
    """Construct a Java object of a class whose name contains ``$``, which Python's attribute syntax cannot write."""
    view: Any = context._jvm
    for part in class_name.split("."):
        view = getattr(view, part)
    return view(*arguments)
