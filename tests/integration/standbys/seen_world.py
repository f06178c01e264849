"""Print, as one line of JSON, all that a script can see of its world: in Python, in the driver's JVM, in a task."""

import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BEFORE = sorted(vars(sys.modules["__main__"]))


def of_process() -> dict[str, Any]:
    links = []
    for name in Path("/proc/self/fd").iterdir():
        try:
            links.append(str(name.readlink()))
        except OSError:
            continue
    umask = os.umask(0)
    os.umask(umask)
    return {
        "environment": dict(os.environ),
        "directory": str(Path.cwd()),
        "arguments": sys.argv,
        "original arguments": sys.orig_argv,
        "path": sys.path,
        "flags": str(sys.flags),
        "modules": sorted(sys.modules),
        "umask": umask,
        "limits": {
            name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")
        },
        "signals": {str(number): str(signal.getsignal(number)) for number in signal.valid_signals()},
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "files": sorted(link.partition(":")[0] for link in links),
        "scheduling": (os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0), sorted(os.sched_getaffinity(0))),
        "is leader": (os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()),
        "encodings": (sys.stdout.encoding, sys.getfilesystemencoding()),
    }


DRIVER = of_process() | {"main": BEFORE}

from pyspark.sql import SparkSession  # noqa: E402

ENVIRONMENT = "org.apache.spark.SparkEnv"
FILES = "org.apache.hadoop.fs.FileSystem"
ACTIVE = str(SparkSession.getActiveSession())
spark = SparkSession.builder.getOrCreate()
context: Any = spark.sparkContext
jvm: Any = context._jvm
java = jvm.java.lang


def entries(java_map: Any) -> dict[str, str]:
    return {str(key): str(java_map.get(key)) for key in list(java_map.keySet())}


def field(owner: str, name: str, instance: Any = None) -> Any:
    found = java.Class.forName(owner).getDeclaredField(name)
    found.setAccessible(True)
    return found.get(instance)


def of_jvm() -> dict[str, Any]:
    properties = java.System.getProperties()
    names = [str(name) for name in properties.stringPropertyNames()]
    configuration = context._jsc.hadoopConfiguration().iterator()
    hadoop = {}
    while configuration.hasNext():
        entry = configuration.next()
        hadoop[str(entry.getKey())] = str(entry.getValue())
    log = jvm.org.apache.logging.log4j.LogManager.getContext(False).getConfiguration()
    hooks = field("java.lang.ApplicationShutdownHooks", "hooks")
    files = field(FILES, "CACHE")
    user = jvm.org.apache.hadoop.security.UserGroupInformation
    # By fields: to call a method, Java would resolve all, and one needs a class that PySpark does not ship.
    environment = field(f"{ENVIRONMENT}$", "env", field(f"{ENVIRONMENT}$", "MODULE$"))
    metrics = field(ENVIRONMENT, "metricsSystem", environment)
    registry = field("org.apache.spark.metrics.MetricsSystem", "registry", metrics)
    return {
        "properties": {name: str(properties.getProperty(name)) for name in names},
        "environment": entries(java.System.getenv()),
        "arguments": [str(word) for word in java.management.ManagementFactory.getRuntimeMXBean().getInputArguments()],
        "threads": sorted({str(thread.getName()) for thread in java.Thread.getAllStackTraces().keySet()}),
        "thread": str(java.Thread.currentThread().getName()),
        "hooks": sorted(str(hook.getClass().getName()) for hook in hooks.keySet()),
        "handler": str(java.Thread.getDefaultUncaughtExceptionHandler()),
        "log levels": {str(entry.getKey()): str(entry.getValue().getLevel()) for entry in log.getLoggers().entrySet()},
        "appenders": sorted(str(name) for name in log.getAppenders().keySet()),
        "hadoop": hadoop,
        "file systems": sorted(
            str(key) for key in field("org.apache.hadoop.fs.FileSystem$Cache", "map", files).keySet()
        ),
        "statistics": sorted(
            str(each) for each in jvm.org.apache.hadoop.fs.FileSystem.getGlobalStorageStatistics().iterator()
        ),
        "user": [str(user.getCurrentUser()), str(user.getLoginUser()), bool(user.isSecurityEnabled())],
        "metrics": sorted(str(name) for name in registry.getNames()),
        "relative file": str(jvm.java.io.File("a").getAbsolutePath()),
        "relative path": str(
            jvm.java.nio.file.Path.of("a", context._gateway.new_array(java.String, 0)).toAbsolutePath()
        ),
        "locale": str(jvm.java.util.Locale.getDefault()),
        "zone": str(jvm.java.util.TimeZone.getDefault().getID()),
        "heap": int(java.Runtime.getRuntime().maxMemory()),
        "processors": int(java.Runtime.getRuntime().availableProcessors()),
    }


def of_spark() -> dict[str, Any]:
    return {
        "active before": ACTIVE,
        "configuration": dict(context.getConf().getAll()),
        "session": {row.key: row.value for row in spark.sql("SET").collect()},
        "catalog": [
            [each.name for each in spark.catalog.listDatabases()],
            [each.name for each in spark.catalog.listTables()],
            sorted(each.name for each in spark.catalog.listFunctions()),
        ],
        "streams": [str(query.name) for query in spark.streams.active],
        "application": [context.appName, context.applicationId, str(context.uiWebUrl), context.master],
        "status": [list(context.statusTracker().getActiveJobsIds()), list(context.statusTracker().getJobIdsForGroup())],
        "cached": int(context._jsc.sc().getPersistentRDDs().size()),
    }


def of_task(_: Iterator[int]) -> list[str]:
    return [json.dumps(of_process() | {"main": sorted(vars(sys.modules["__main__"]))})]


world = {"driver": DRIVER, "spark": of_spark(), "jvm": of_jvm()}
world["task"] = json.loads(context.parallelize([0], 1).mapPartitions(of_task).first())
print("WORLD " + json.dumps(world), flush=True)
spark.stop()
