"""Undo what a warm-up leaves in a JVM, so that the job that gets the JVM finds it as if it had just started.

Each entry names a static field or cache of Spark 4.3 or Hadoop that a stopped SparkContext does not reset. Counters,
such as the ids of accumulators, stay: if they began again, the cleaner of the warm-up's accumulators would remove those
of the job.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from emberkeep.spark.standby.reflection import Reflection

_HOOKS = "org.apache.spark.util.ShutdownHookManager$"
_STATE = "org.apache.spark.sql.execution.streaming.state"
_STATIC_SETTINGS = "org.apache.spark.sql.internal.StaticSQLConf"
_OBJECT = "o"  # py4j names the objects o0, o1, …
_IDLE_WORKER_MONITOR = "Idle Worker Monitor"
_SET_ONCE = "jetty.git.hash"  # a class of Jetty sets this property when it is loaded


@dataclass(frozen=True)
class Before:
    """What a JVM had before its warm-up: system properties, and directories that Spark removes when the JVM ends."""

    properties: Mapping[str, str]
    directories: Collection[str]


def remember(reflection: Reflection) -> Before:
    """Return what ``reset`` restores. Raises SparkInternalsMissing."""
    return Before(properties_of(reflection), _temporary_directories(reflection))


def reset(reflection: Reflection, before: Before) -> None:
    """Reset the JVM after its SparkContext has stopped. Raises SparkInternalsMissing."""
    _reset_spark(reflection)
    _reset_hadoop(reflection)
    _interrupt(reflection, _IDLE_WORKER_MONITOR)
    _forget_inherited(reflection)
    _remove_temporary_directories(reflection, before.directories)
    set_properties(reflection, before.properties)


def properties_of(reflection: Reflection) -> dict[str, str]:
    """Return the JVM's system properties."""
    properties = reflection.jvm.java.lang.System.getProperties()
    return {str(name): str(properties.getProperty(name)) for name in properties.stringPropertyNames()}


def set_properties(reflection: Reflection, wanted: Mapping[str, str]) -> None:
    """Make ``wanted`` the JVM's system properties. What is set once in a JVM stays."""
    system = reflection.jvm.java.lang.System
    present = properties_of(reflection)
    for name in present.keys() - wanted.keys() - {_SET_ONCE}:
        system.clearProperty(name)
    for name, value in wanted.items():
        if present.get(name) != value:
            system.setProperty(name, value)


def forget_objects(gateway: Any) -> None:
    """Remove the objects that py4j has kept until now in the JVM for its clients. They must not be used afterwards."""
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
    _forget_lazy(reflection, "org.apache.spark.sql.artifact.ArtifactManager$", "artifactRootDirectory")
    _forget_lazy(reflection, "org.apache.spark.api.python.PythonRDD$", "authHelper")
    accumulators = "org.apache.spark.util.AccumulatorContext$"
    reflection.call(accumulators, "clear", (), instance=reflection.singleton(accumulators))
    times = "org.apache.spark.sql.execution.WholeStageCodegenExec$"
    reflection.call(times, "resetCodeGenTime", (), instance=reflection.singleton(times))
    reflection.jvm.org.apache.spark.metrics.source.HiveCatalogMetrics.reset()
    _reset_histograms(reflection, "org.apache.spark.metrics.source.CodegenMetrics$")
    buffers = reflection.get("org.apache.spark.network.util.NettyUtils", "_sharedPooledByteBufAllocator")
    for index in range(len(buffers)):
        buffers[index] = None


def _forget_lazy(reflection: Reflection, owner: str, name: str) -> None:
    """Make a Scala object compute its only lazy value again when it next needs the value."""
    reflection.set(owner, "bitmap$0", False)
    reflection.set(owner, name, None)


def _reset_histograms(reflection: Reflection, source: str) -> None:
    """Reset the histograms of a source of metrics."""
    kind, java = "com.codahale.metrics.Histogram", reflection.jvm.java.lang
    handles = java.invoke.MethodHandles
    adder = reflection.load("java.util.concurrent.atomic.LongAdder")
    # py4j gives Python numbers instead of Java's counters, so these are reset without passing through Python.
    reset_count = handles.filterReturnValue(
        handles.publicLookup().unreflectGetter(reflection.field(kind, "count")),
        handles.publicLookup().unreflect(adder.getMethod("reset", reflection.array(java.Class, ()))),
    )
    for entry in reflection.get(source, "metricRegistry").getHistograms().entrySet():
        reservoir = reflection.jvm.com.codahale.metrics.ExponentiallyDecayingReservoir()
        reflection.set(kind, "reservoir", reservoir, entry.getValue())
        reflection.invoke(reset_count, entry.getValue())


def _temporary_directories(reflection: Reflection) -> set[str]:
    """Return the directories that Spark would remove when the JVM ends."""
    paths = reflection.get(_HOOKS, "shutdownDeletePaths")
    return {str(path) for path in reflection.jvm.scala.jdk.javaapi.CollectionConverters.asJava(paths)}


def _remove_temporary_directories(reflection: Reflection, kept: Collection[str]) -> None:
    hooks = reflection.singleton(_HOOKS)
    for path in _temporary_directories(reflection).difference(kept):
        directory = reflection.jvm.java.io.File(path)
        hooks.removeShutdownDeleteDir(directory)
        reflection.jvm.org.apache.spark.util.Utils.deleteRecursively(directory)


def _reset_hadoop(reflection: Reflection) -> None:
    hadoop = reflection.jvm.org.apache.hadoop
    hadoop.fs.FileSystem.closeAll()
    hadoop.fs.FileSystem.clearStatistics()
    reflection.get("org.apache.hadoop.fs.FileSystem", "statisticsTable").clear()
    statistics = "org.apache.hadoop.fs.GlobalStorageStatistics"
    reflection.get(statistics, "map", reflection.get(statistics, "INSTANCE")).clear()
    # Codecs keep the configuration of the job that used them first, and so does the handler of URLs, which Spark sets
    # once in a JVM.
    reflection.get("org.apache.parquet.hadoop.CodecFactory", "CODEC_BY_NAME").clear()
    reflection.set("org.apache.spark.sql.internal.SharedState$", "fsUrlStreamHandlerFactoryInitialized", False)
    reflection.set("java.net.URL", "factory", None)
    reflection.get("java.net.URL", "handlers").clear()
    reset_login(reflection)


def reset_warehouse(reflection: Reflection) -> None:
    """Compute the default warehouse directory again, because it depends on the working directory."""
    utils = reflection.jvm.org.apache.spark.util.Utils
    entry = reflection.call(
        f"{_STATIC_SETTINGS}$", "WAREHOUSE_PATH", (), instance=reflection.singleton(f"{_STATIC_SETTINGS}$")
    )
    default = utils.resolveURI("spark-warehouse").toString()
    reflection.set("org.apache.spark.internal.config.ConfigEntryWithDefaultString", "_defaultValue", default, entry)


def reset_login(reflection: Reflection) -> None:
    """Make Hadoop and Spark log in again when they next need a user, with the settings of that time.

    SecurityManager prefers a secret that it has left with the login user to the one in the environment.
    """
    user = "org.apache.hadoop.security.UserGroupInformation"
    reflection.call(user, "reset", ())
    name = "org.apache.spark.deploy.SparkHadoopUtil"
    reflection.set(f"{name}$", "instance", reflection.jvm.org.apache.spark.deploy.SparkHadoopUtil())


def _forget_inherited(reflection: Reflection) -> None:
    """Remove what threads have inherited: pool threads keep the session of the thread that started them."""
    for thread in reflection.jvm.java.lang.Thread.getAllStackTraces().keySet():
        reflection.set("java.lang.Thread", "inheritableThreadLocals", None, thread)


def _interrupt(reflection: Reflection, name: str) -> None:
    for thread in reflection.jvm.java.lang.Thread.getAllStackTraces().keySet():
        if str(thread.getName()).startswith(name):
            thread.interrupt()
