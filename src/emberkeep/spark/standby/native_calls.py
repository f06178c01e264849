"""Calls of the C library from a JVM: Java itself cannot change the directory or the environment of its process.

Java 17 has such calls in an incubator module. Later versions changed the interface, so their JVMs have no standbys.
"""

from __future__ import annotations

import os
from typing import Any

from emberkeep.spark.errors import SparkInternalsMissing
from emberkeep.spark.java import JavaRuntime
from emberkeep.spark.standby.reflection import Reflection

_JAVA = 17
_FOREIGN = "jdk.incubator.foreign"
NATIVE_OPTIONS = (f"--add-modules={_FOREIGN}",)
"""JVM options that native calls need."""


def require_native_calls(java: JavaRuntime) -> None:
    """Raise SparkInternalsMissing if JVMs of this Java cannot make native calls."""
    if java.major != _JAVA:
        raise SparkInternalsMissing(
            f"standby processes need Java {_JAVA}, and {java.executable} is Java {java.major}",
            hint=f"set JAVA_HOME to a Java {_JAVA}; jobs start without standby processes otherwise",
        )


class NativeCalls:
    """Calls functions of the C library in a JVM that was started with NATIVE_OPTIONS. Raises SparkInternalsMissing."""

    def __init__(self, reflection: Reflection) -> None:
        self._reflection = reflection
        self._linker = self._call("CLinker", "getInstance", ())
        self._scope = self._call("ResourceScope", "globalScope", ())
        self._functions: dict[str, Any] = {}

    def change_directory(self, path: str) -> None:
        """Make ``path`` the working directory of the JVM's process."""
        self._invoke("chdir", path)

    def set_variable(self, name: str, value: str) -> None:
        """Set an environment variable of the JVM's process, as native code and child processes see it."""
        self._invoke("setenv", name, value, 1)

    def unset_variable(self, name: str) -> None:
        """Unset an environment variable of the JVM's process, as native code and child processes see it."""
        self._invoke("unsetenv", name)

    def open_for_writing(self, path: str) -> None:
        """Open a file, and keep it open until the process ends."""
        if self._call_function("open", path, os.O_WRONLY | os.O_CLOEXEC) < 0:
            raise SparkInternalsMissing(f"a standby JVM cannot open {path}", hint="check its limit of open files")

    def _invoke(self, function: str, *arguments: str | int) -> None:
        """Call a function that returns 0 if it has succeeded."""
        if self._call_function(function, *arguments) != 0:
            raise SparkInternalsMissing(
                f"a standby JVM cannot carry out {function} {arguments[0]}", hint="check the job's working directory"
            )

    def _call_function(self, function: str, *arguments: str | int) -> int:
        handle = self._functions.get(function)
        if handle is None:
            handle = self._functions[function] = self._handle(function, [type(value) for value in arguments])
        values = [self._address(value) if isinstance(value, str) else value for value in arguments]
        return int(self._reflection.invoke(handle, *values))

    def _address(self, text: str) -> Any:
        parameters = ("java.lang.String", f"{_FOREIGN}.ResourceScope")
        segment = self._call("CLinker", "toCString", parameters, text, self._scope)
        return self._call("Addressable", "address", (), instance=segment)

    def _handle(self, function: str, kinds: list[type]) -> Any:
        lookup = self._call("CLinker", "systemLookup", ())
        symbol = self._call("SymbolLookup", "lookup", ("java.lang.String",), function, instance=lookup).get()
        reflection = self._reflection
        integer, address = reflection.load("int"), reflection.load(f"{_FOREIGN}.MemoryAddress")
        classes = [address if kind is str else integer for kind in kinds]
        java = reflection.jvm.java.lang
        signature = java.invoke.MethodType.methodType(integer, reflection.array(java.Class, classes))
        number, pointer = (reflection.get(f"{_FOREIGN}.CLinker", name) for name in ("C_INT", "C_POINTER"))
        layouts = reflection.array(
            reflection.jvm.jdk.incubator.foreign.MemoryLayout, [pointer if kind is str else number for kind in kinds]
        )
        descriptor = self._call(
            "FunctionDescriptor",
            "of",
            (f"{_FOREIGN}.MemoryLayout", f"[L{_FOREIGN}.MemoryLayout;"),
            number,
            layouts,
        )
        parameters = (f"{_FOREIGN}.Addressable", "java.lang.invoke.MethodType", f"{_FOREIGN}.FunctionDescriptor")
        return self._call("CLinker", "downcallHandle", parameters, symbol, signature, descriptor, instance=self._linker)

    def _call(self, owner: str, name: str, parameters: tuple[str, ...], *arguments: Any, instance: Any = None) -> Any:
        return self._reflection.call(f"{_FOREIGN}.{owner}", name, parameters, *arguments, instance=instance)
