"""A standby JVM that becomes an executor.

Its main class is PySpark's gateway server, so that the task manager reaches the JVM over py4j until a job takes it.
Then Spark's executor backend starts in it on a thread named ``main``, as it would in a process of its own, and the
gateway closes. Until then, the JVM ends with its standard input, whose other end the task manager holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emberkeep.base.processes.priority import raise_to_normal
from emberkeep.spark.distribution import class_path
from emberkeep.spark.java import JavaRuntime, jvm_open_options
from emberkeep.spark.jvm.executor_command import (
    BACKEND_CLASS,
    LOG_CONFIGURATION,
    LOG_OPTION,
    ExecutorLaunch,
    archive_options,
    backend_arguments,
    backend_options,
)
from emberkeep.spark.jvm.gateway_connection import Connection
from emberkeep.spark.standby.identity import COMMAND, LATE_OPTIONS, TEMPORARY, Identity
from emberkeep.spark.standby.memory import release_memory, warm_up_options
from emberkeep.spark.standby.native_calls import NATIVE_OPTIONS
from emberkeep.spark.standby.reflection import failures_of_py4j
from emberkeep.spark.standby.reset import forget_objects, reset_login, reset_warehouse

_GATEWAY_CLASS = "org.apache.spark.api.python.PythonGatewayServer"
_LATE_OPTION = "-Dspark."  # Spark reads these properties when the backend starts
_FIXED_OPTIONS = ("-Djava.net.preferIPv6Addresses=false", f"{LOG_OPTION}{LOG_CONFIGURATION}")
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class ExecutorShape:
    """What can no longer change once an executor JVM runs."""

    java: Path
    heap_mb: int
    class_path: str
    options: tuple[str, ...]

    def differences(self, other: ExecutorShape) -> tuple[str, ...]:
        """Return what differs from another shape, in words."""
        words = {
            "another Java": self.java != other.java,
            f"a heap of {other.heap_mb} MiB": self.heap_mb != other.heap_mb,
            "another class path": self.class_path != other.class_path,
            "other Java options": sorted(self.options) != sorted(other.options),
        }
        return tuple(word for word, differs in words.items() if differs)


def shape_of(launch: ExecutorLaunch) -> ExecutorShape:
    """Return the shape of the JVM that an executor needs."""
    first = launch.jars if launch.jars_first else ()
    return ExecutorShape(
        java=launch.java,
        heap_mb=launch.heap_mb,
        class_path=class_path(launch.environ, launch.extra_class_path, first, jars_first=launch.jars_first),
        options=tuple(option for option in backend_options(launch) if not option.startswith(_LATE_OPTION)),
    )


def job_options(launch: ExecutorLaunch) -> tuple[str, ...]:
    """Return the Java options that the job sets and that a running JVM cannot get: the profile's options."""
    return tuple(option for option in shape_of(launch).options if option not in _FIXED_OPTIONS)


def standby_shape(
    java: JavaRuntime, heap_mb: int, java_options: tuple[str, ...], environ: Mapping[str, str]
) -> ExecutorShape:
    """Return the shape of a JVM for jobs that set these options and this heap."""
    return ExecutorShape(java.executable, heap_mb, class_path(environ), (*java_options, *_FIXED_OPTIONS))


def standby_command(shape: ExecutorShape, archive: Path | None, temporary_dir: Path) -> list[str]:
    """Return the command line of a standby JVM. Its standard input must be a pipe."""
    return [
        str(shape.java),
        "-cp",
        shape.class_path,
        f"-Xmx{shape.heap_mb}m",
        *jvm_open_options(),
        *archive_options(archive),
        f"-Djava.io.tmpdir={temporary_dir}",
        "-XX:-UsePerfData",
        *NATIVE_OPTIONS,
        *LATE_OPTIONS,
        *warm_up_options(shape.heap_mb),
        *shape.options,
        _GATEWAY_CLASS,
    ]


class StandbyExecutor:
    """A warmed executor JVM that no job has taken. Methods block, and raise SparkInternalsMissing."""

    def __init__(self, connection: Connection, pid: int) -> None:
        from py4j.clientserver import ClientServer, JavaParameters, PythonParameters

        parameters = JavaParameters(
            address=_LOOPBACK, port=connection.port, auth_token=connection.auth_token, auto_convert=True
        )
        self._gateway: Any = ClientServer(parameters, PythonParameters(port=0, eager_load=False))
        self._pid = pid
        with failures_of_py4j():
            forget_objects(self._gateway)
            self._identity = Identity(self._gateway)
            release_memory(self._identity.reflection)

    def become(self, launch: ExecutorLaunch, environ: Mapping[str, str]) -> None:
        """Start the executor. ``environ``: all variables of its process. The JVM is then no longer a standby."""
        with failures_of_py4j():
            self._become(launch, environ)

    def _become(self, launch: ExecutorLaunch, environ: Mapping[str, str]) -> None:
        raise_to_normal([self._pid], compilers=False)
        identity, jvm = self._identity, self._identity.reflection.jvm
        identity.set_environment(environ)
        identity.set_directory(launch.work_dir)
        late = [option[2:].partition("=") for option in backend_options(launch) if option.startswith(_LATE_OPTION)]
        properties = {name: value for name, _, value in late}
        command = " ".join((BACKEND_CLASS, *backend_arguments(launch)))
        identity.change_properties((), {**properties, TEMPORARY: str(launch.temporary_dir), COMMAND: command})
        if not launch.jars_first:
            identity.append_to_class_path(launch.jars)
        reset_login(identity.reflection)
        reset_warehouse(identity.reflection)
        # A gateway server takes itself for a shell, and logs less.
        identity.reflection.set("org.apache.spark.internal.Logging$", "sparkShellThresholdLevel", None)
        jvm.java.lang.Thread.setDefaultUncaughtExceptionHandler(
            jvm.org.apache.spark.util.SparkUncaughtExceptionHandler(True)
        )
        identity.hold_standard_input()
        self._start_backend(backend_arguments(launch))
        self._gateway.shutdown()

    def _start_backend(self, arguments: list[str]) -> None:
        """Call the backend's ``main`` on a thread of that name, without any class or callback of ours in the JVM."""
        reflection = self._identity.reflection
        java = reflection.jvm.java.lang
        texts = reflection.array(java.String, arguments)
        method = reflection.load(BACKEND_CLASS).getMethod(
            "main", reflection.array(java.Class, [reflection.load("[Ljava.lang.String;")])
        )
        handles = java.invoke.MethodHandles
        handle = handles.publicLookup().unreflect(method).asFixedArity()
        bound = handles.insertArguments(handle, 0, reflection.array(java.Object, [texts]))
        runnable = java.invoke.MethodHandleProxies.asInterfaceInstance(reflection.load("java.lang.Runnable"), bound)
        java.Thread(runnable, "main").start()
