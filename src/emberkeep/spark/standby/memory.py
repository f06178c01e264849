"""The memory of a standby JVM: how its warm-up uses it, and how it is given back.

A JVM keeps what its heap once needed, and the C library what native code once needed. Two flags that a running JVM can
change make the next collections shrink the heap to what is in use. At the end the heap grows again, which takes memory
only when it is used: a job that begins in a full heap would collect garbage all the time. G1 returns memory in the
background after a collection has shrunk the heap, and a heap that grows takes back what is not yet returned. So it
grows once the system's list of mappings shows that all is returned.

G1 learns from each marking of the heap how early it must begin the next one. What it learns at idle priority is wrong:
it then marks whenever the job allocates a large array, and a restart takes a second longer. So the warm-up has so much
room that it never marks.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path
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
_HEAP_INFO = "gcHeapInfo"
_G1_HEAP = re.compile(r"garbage-first heap .*\[0x([0-9a-f]+), 0x([0-9a-f]+)\)")
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw")
_RETURN_SECONDS = 30.0  # at idle priority, on a machine with other work
_POLL_SECONDS = 0.02


def warm_up_options(heap_mb: int) -> tuple[str, ...]:
    """Return Java options for a JVM with this heap that is to be warmed. Later options can override them."""
    return f"-XX:InitialHeapSize={min(heap_mb, _FIRST_HEAP_MB)}m", f"-XX:MetaspaceSize={_FIRST_METASPACE_MB}m"


def release_memory(reflection: Reflection) -> None:
    """Collect all garbage of the JVM and return free memory to the system. Raises SparkInternalsMissing."""
    heap = _G1_HEAP.search(_diagnose(reflection, _HEAP_INFO) or "")  # other collectors return memory at once
    maps = Path("/proc", str(reflection.jvm.java.lang.ProcessHandle.current().pid()), "maps")
    usual = _flag(reflection, _LEAST_FREE), _flag(reflection, _MOST_FREE)
    _set_free(reflection, *_SHRINKING)
    try:
        for _ in range(_COLLECTIONS):
            reflection.jvm.java.lang.System.gc()
            reflection.jvm.java.lang.System.runFinalization()
        if heap is not None:
            # Nothing is asked of the JVM meanwhile: in a heap this small, a few objects make G1 begin a marking.
            size = int(reflection.jvm.java.lang.Runtime.getRuntime().totalMemory())
            _wait_until(maps, int(heap[1], 16), int(heap[2], 16), size)
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


def _wait_until(maps: Path, first: int, end: int, size: int) -> None:
    """Wait until a process can use at most ``size`` bytes from ``first`` to ``end``, or until the time is over."""
    deadline = time.monotonic() + _RETURN_SECONDS
    with suppress(OSError):  # a system that does not show its mappings only costs memory
        while _mapped(maps.read_text(), first, end) > size and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)


def _mapped(maps: str, first: int, end: int) -> int:
    """Return how many bytes from ``first`` to ``end`` the process can use. ``maps``: the text of /proc/PID/maps."""
    mappings = ((int(low, 16), int(high, 16)) for low, high in _MAPPING.findall(maps))
    return sum(max(0, min(high, end) - max(low, first)) for low, high in mappings)


def _trim_native_heap(reflection: Reflection) -> None:
    """Let the C library return free memory; do nothing if this Java cannot request that."""
    _diagnose(reflection, _TRIM)


def _diagnose(reflection: Reflection, command: str) -> str | None:
    """Return the output of one of the JVM's diagnostic commands; None if this Java does not have it."""
    jvm = reflection.jvm
    server = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
    commands = jvm.javax.management.ObjectName("com.sun.management:type=DiagnosticCommand")
    kind, name = "javax.management.MBeanServer", "javax.management.ObjectName"
    about = reflection.call(kind, "getMBeanInfo", (name,), commands, instance=server)
    signatures = {str(operation.getName()): len(operation.getSignature()) for operation in about.getOperations()}
    if command not in signatures:
        return None
    # A command with options takes one array of words.
    words = [reflection.array(jvm.java.lang.String, ())] * signatures[command]
    values = reflection.array(jvm.java.lang.Object, words)
    types = reflection.array(jvm.java.lang.String, [f"[L{_STRING};"] * len(words))
    parameters = (name, _STRING, "[Ljava.lang.Object;", f"[L{_STRING};")
    return str(reflection.call(kind, "invoke", parameters, commands, command, values, types, instance=server))
