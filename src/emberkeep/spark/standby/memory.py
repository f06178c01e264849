"""Give back memory that a JVM used only during its warm-up.

A JVM keeps what its heap once needed, and the C library what native code once needed. Two flags that a running JVM can
change make the next collections shrink the heap to what is in use. At the end the heap grows again, which takes memory
only when it is used: a job that begins in a full heap would collect garbage all the time.
"""

from __future__ import annotations

from typing import Any

from emberkeep.spark.standby.reflection import Reflection

_LEAST_FREE, _MOST_FREE = "MinHeapFreeRatio", "MaxHeapFreeRatio"  # percent of the heap
_SHRINKING = ("5", "10")
_GROWING = ("70", "80")
_COLLECTIONS = 3  # cleaners run after the first one, and what they release goes with the next
_FLAGS = "com.sun.management.HotSpotDiagnosticMXBean"
_STRING = "java.lang.String"
_TRIM = "systemTrimNativeHeap"


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
