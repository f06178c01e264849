"""Makes Spark want another number of executors, as its dynamic allocation would."""

from __future__ import annotations

from typing import Any

from emberkeep.spark.executors.scheduler_control import call


def resize(context: Any, count: int, *, decommissions: bool) -> None:
    """Make Spark want ``count`` executors, and dismiss the newest ones beyond that. Raises SparkUnavailable.

    The oldest executors stay, because the state stores of streaming queries are loaded there. ``decommissions``: those
    that are dismissed end their tasks and hand over their blocks; otherwise Spark runs their tasks again elsewhere.
    """
    call("another number of executors", _resize, context, count, decommissions)


def _resize(context: Any, count: int, decommissions: bool) -> None:
    jvm, spark = context._jvm, context._jsc.sc()
    backend = spark.schedulerBackend()
    spark.requestTotalExecutors(count, 0, jvm.scala.collection.immutable.HashMap())
    active = backend.getExecutorIds()
    ids = sorted((str(active.apply(index)) for index in range(active.size())), key=_age)
    surplus = ids[count:]
    if not surplus:
        return
    if decommissions:
        info = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo(
            "autoscaling needs fewer executors", jvm.scala.Option.empty()
        )
        leaving = context._gateway.new_array(jvm.scala.Tuple2, len(surplus))
        for index, executor in enumerate(surplus):
            leaving[index] = jvm.scala.Tuple2(executor, info)
        backend.decommissionExecutors(leaving, False, False)
    else:
        killed = jvm.scala.jdk.javaapi.CollectionConverters.asScala(jvm.java.util.ArrayList(surplus)).toSeq()
        backend.killExecutors(killed, False, False, True)


def _age(executor_id: str) -> tuple[int, str]:
    return (int(executor_id) if executor_id.isdecimal() else 0, executor_id)
