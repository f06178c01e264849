"""Asking and telling Spark's scheduler about executors."""

from __future__ import annotations

from typing import Any

from emberkeep.spark.errors import SparkInternalsMissing, SparkUnavailable


def call(what: str, function: Any, *arguments: Any) -> Any:
    """Call into the JVM; every way in which it may be gone becomes SparkUnavailable."""
    from py4j.protocol import Py4JError

    try:
        return function(*arguments)
    except (Py4JError, OSError, AttributeError, TypeError) as error:
        raise SparkUnavailable(f"Spark did not answer ({what}): {error}") from error


def probe(context: Any) -> None:
    """Check that the internals used here exist. Raises SparkInternalsMissing."""
    from py4j.protocol import Py4JError

    try:
        context._jsc.sc().schedulerBackend().driverEndpoint()
        _loss(context, "probe", caused_by_app=False)
    except (Py4JError, TypeError) as error:
        raise SparkInternalsMissing(
            f"this Spark's scheduler cannot be told of lost executors: {error}",
            hint="Emberkeep works with PySpark 4.3",
        ) from error


def executor_ids(context: Any) -> frozenset[str]:
    """The executors registered with the driver. Raises SparkUnavailable."""

    def ask() -> frozenset[str]:
        ids = context._jsc.sc().schedulerBackend().getExecutorIds()
        return frozenset(str(ids.apply(index)) for index in range(ids.size()))

    return frozenset(call("executor ids", ask))


def remove_executor(context: Any, executor_id: str, reason: str, *, caused_by_app: bool) -> None:
    """Let Spark drop an executor and tell it to end; an unknown id is ignored. Raises SparkUnavailable.

    With ``caused_by_app`` false its running tasks are retried without counting against ``spark.task.maxFailures``.
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
    """Construct a Java object whose class name py4j cannot spell as attributes (``$``)."""
    view: Any = context._jvm
    for part in class_name.split("."):
        view = getattr(view, part)
    return view(*arguments)
