"""Undo what a warm-up leaves in a JVM, so that the job that gets the JVM finds it as if it had just started.

Each entry names a static field or cache of Spark 4.3 or Hadoop that a stopped SparkContext does not reset. Counters,
such as the ids of accumulators, stay: if they began again, the cleaner of the warm-up's accumulators would remove those
of the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emberkeep.spark.standby.reflection import Reflection

_STATE = "org.apache.spark.sql.execution.streaming.state"
_OBJECT = "o"  # py4j names the objects o0, o1, …
_IDLE_WORKER_MONITOR = "Idle Worker Monitor"


def reset(reflection: Reflection, properties: Mapping[str, str]) -> None:
    """Reset the JVM after its SparkContext has stopped. ``properties``: its system properties before the warm-up.

    Raises SparkInternalsMissing.
    """
    _reset_spark(reflection)
    _reset_hadoop(reflection)
    _interrupt(reflection, _IDLE_WORKER_MONITOR)
    set_properties(reflection, properties)
    reflection.jvm.java.lang.System.gc()


def properties_of(reflection: Reflection) -> dict[str, str]:
    """Return the JVM's system properties."""
    properties = reflection.jvm.java.lang.System.getProperties()
    return {str(name): str(properties.getProperty(name)) for name in properties.stringPropertyNames()}


def set_properties(reflection: Reflection, wanted: Mapping[str, str]) -> None:
    """Make ``wanted`` the JVM's system properties."""
    system = reflection.jvm.java.lang.System
    present = properties_of(reflection)
    for name in present.keys() - wanted.keys():
        system.clearProperty(name)
    for name, value in wanted.items():
        if present.get(name) != value:
            system.setProperty(name, value)


def forget_objects(gateway: Any) -> None:
    """Remove the objects that py4j has kept until now in the JVM for its clients. They must not be used any more."""
    bindings = gateway.java_gateway_server.getGateway().getBindings()
    first_kept = int(bindings._target_id.removeprefix(_OBJECT))
    for name in list(bindings.keySet()):
        number = name.removeprefix(_OBJECT)
        if number.isdecimal() and int(number) < first_kept:
            bindings.remove(name)


def _reset_spark(reflection: Reflection) -> None:
    reflection.call(f"{_STATE}.StateStore$", "stop", (), instance=reflection.singleton(f"{_STATE}.StateStore$"))
    # Otherwise executors and drivers would never look the coordinator of the next SparkContext up.
    reflection.set(f"{_STATE}.StateStore$", "_coordRef", None)
    reflection.set(f"{_STATE}.StateStoreProvider$", "stateStoreCoordinatorRef", None)
    utils = "org.apache.spark.util.Utils$"
    reflection.set(utils, "customHostname", reflection.jvm.scala.Option.empty())
    reflection.set(utils, "localRootDirs", None)
    reflection.set(utils, "cachedLocalDir", "")
    reflection.set("org.apache.spark.executor.Executor$", "executorSourceLocalModeOnly", None)
    reflection.get("org.apache.spark.executor.IsolatedSessionState$", "sessions").clear()
    cache = "org.apache.spark.sql.execution.datasources.FileStatusCache$"
    reflection.call(cache, "resetForTesting", (), instance=reflection.singleton(cache))
    reflection.jvm.org.apache.spark.sql.SparkSession.clearActiveSession()
    reflection.jvm.org.apache.spark.sql.SparkSession.clearDefaultSession()


def _reset_hadoop(reflection: Reflection) -> None:
    hadoop = reflection.jvm.org.apache.hadoop
    hadoop.fs.FileSystem.closeAll()
    hadoop.fs.FileSystem.clearStatistics()
    reset_login(reflection)


def reset_login(reflection: Reflection) -> None:
    """Make Hadoop and Spark log in again when they next need a user, with the settings of that time.

    SecurityManager prefers a secret that it has left with the login user to the one in the environment.
    """
    user = "org.apache.hadoop.security.UserGroupInformation"
    reflection.call(user, "reset", ())
    name = "org.apache.spark.deploy.SparkHadoopUtil"
    reflection.set(f"{name}$", "instance", reflection.jvm.org.apache.spark.deploy.SparkHadoopUtil())


def _interrupt(reflection: Reflection, name: str) -> None:
    for thread in reflection.jvm.java.lang.Thread.getAllStackTraces().keySet():
        if str(thread.getName()).startswith(name):
            thread.interrupt()
