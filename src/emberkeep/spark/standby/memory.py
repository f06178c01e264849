"""The memory of a standby JVM: how its warm-up uses it, and how it is given back.

A JVM keeps what its heap once needed, and the C library what native code once needed. Two flags that a running JVM can
change make the next collections shrink the heap to what is in use. At the end the heap grows again, which takes memory
only when it is used: a job that begins in a full heap would collect garbage all the time.

G1 learns from each marking of the heap how early it must begin the next one. What it learns at idle priority is wrong:
it then marks whenever the job allocates a large array, and a restart takes a second longer. So the warm-up has so much
room that it never marks.
"""

from __future__ import annotations

from typing import Any

from emberkeep.spark.standby.reflection import Reflection

_LEAST_FREE, _MOST_FREE = "MinHeapFreeRatio", "MaxHeapFreeRatio"  # percent of the heap
_SHRINKING = ("5", "10")
_GROWING = ("90", "95")
_FIRST_HEAP_MB = 1024  # of which a warm-up needs less than half
_FIRST_METASPACE_MB = 256  # Spark's classes take 190
_COLLECTIONS = 3  # cleaners run after the first one, and what they release goes with the next
_FLAGS = "com.sun.management.HotSpotDiagnosticMXBean"
_STRING = "java.lang.String"
_TRIM = "systemTrimNativeHeap"


def warm_up_options(heap_mb: int) -> tuple[str, ...]:
    """Return Java options for a JVM with this heap that is to be warmed. Later options can override them."""
    return f"-XX:InitialHeapSize={min(heap_mb, _FIRST_HEAP_MB)}m", f"-XX:MetaspaceSize={_FIRST_METASPACE_MB}m"


def release_memory(reflection: Reflection) -> None:
    """Collect all garbage of the JVM and return free memory to the system. Raises SparkInternalsMissing."""
    usual = _flag(reflection, _LEAST_FREE), _flag(reflection, _MOST_FREE)
    _set_free(reflection, *_SHRINKING)
    try:
        for _ in range(_COLLECTIONS):
            reflection.jvm.java.lang.System.gc()
            reflection.jvm.java.lang.System.runFinalization()
        _set_free(reflection, *_GROWING)
        reflection.jvm.java.lang.System.gc()
    finally:
        _set_free(reflection, *usual)
    _trim_native_heap(reflection)


def _flag(reflection: Reflection, name: str) -> str:
    option = reflection.call(_FLAGS, "getVMOption", (_STRING,), name, instance=_flags(reflection))
    return str(option.getValue())


def _set_free(reflection: Reflection, least: str, most: str) -> None:
    """Set how much of the heap stays free after a collection. The JVM refuses a least share above the most."""
    for name, value in ((_LEAST_FREE, "0"), (_MOST_FREE, most), (_LEAST_FREE, least)):
        reflection.call(_FLAGS, "setVMOption", (_STRING, _STRING), name, value, instance=_flags(reflection))


def _flags(reflection: Reflection) -> Any:
    return reflection.jvm.java.lang.management.ManagementFactory.getPlatformMXBean(reflection.load(_FLAGS))


def _trim_native_heap(reflection: Reflection) -> None:
    """Let the C library return free memory; do nothing if this Java cannot request that."""
    jvm = reflection.jvm
    server = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
    commands = jvm.javax.management.ObjectName("com.sun.management:type=DiagnosticCommand")
    kind, name = "javax.management.MBeanServer", "javax.management.ObjectName"
    about = reflection.call(kind, "getMBeanInfo", (name,), commands, instance=server)
    if _TRIM in {str(operation.getName()) for operation in about.getOperations()}:
        nothing = (reflection.array(jvm.java.lang.Object, ()), reflection.array(jvm.java.lang.String, ()))
        parameters = (name, _STRING, "[Ljava.lang.Object;", f"[L{_STRING};")
        reflection.call(kind, "invoke", parameters, commands, _TRIM, *nothing, instance=server)
