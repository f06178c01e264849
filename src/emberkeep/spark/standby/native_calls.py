"""Calls of the C library from a JVM: Java itself cannot change the directory or the environment of its process.

Java 17 has such calls in an incubator module. Later versions changed the interface, so their JVMs have no standbys.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from emberkeep.spark.errors import SparkInternalsMissing
from emberkeep.spark.java import JavaRuntime
from emberkeep.spark.standby.reflection import Reflection

JAVA_OF_STANDBYS = 17
_FOREIGN = "jdk.incubator.foreign"
NATIVE_OPTIONS = (f"--add-modules={_FOREIGN}",)
"""JVM options that native calls need."""
_SEPARATOR = "\0"  # no path and no variable contains it


def require_native_calls(java: JavaRuntime) -> None:
    """Raise SparkInternalsMissing if JVMs of this Java cannot make native calls."""
    if java.major != JAVA_OF_STANDBYS:
        raise SparkInternalsMissing(
            f"standby processes need Java {JAVA_OF_STANDBYS}, and {java.executable} is Java {java.major}",
            hint=f"set JAVA_HOME to a Java {JAVA_OF_STANDBYS}; jobs start without standby processes otherwise",
        )


class NativeCalls:
    """Calls functions of the C library in a JVM that was started with NATIVE_OPTIONS. Raises SparkInternalsMissing.

    The constructor makes a Java object of each function, so that a call takes a few round trips to the JVM, also for
    many texts at once.
    """

    def __init__(self, reflection: Reflection) -> None:
        self._reflection = reflection
        self._linker = self._call("CLinker", "getInstance", ())
        self._to_address = self._make_to_address()
        self._separator = reflection.jvm.java.util.regex.Pattern.compile(_SEPARATOR)
        self._functions = {
            "chdir": self._function("chdir"),
            "putenv": self._function("putenv"),
            "unsetenv": self._function("unsetenv"),
            "open": self._function("open", os.O_WRONLY | os.O_CLOEXEC),
        }

    def change_directory(self, path: str) -> None:
        """Make ``path`` the working directory of the JVM's process."""
        self._succeed("chdir", [path], "check the job's working directory")

    def set_variables(self, values: Mapping[str, str]) -> None:
        """Set environment variables of the JVM's process, as native code and child processes see them."""
        self._succeed("putenv", [f"{name}={value}" for name, value in values.items()], "check the job's variables")

    def unset_variables(self, names: Iterable[str]) -> None:
        """Unset environment variables of the JVM's process, as native code and child processes see them."""
        self._succeed("unsetenv", list(names), "check the job's variables")

    def open_for_writing(self, path: str) -> None:
        """Open a file, and keep it open until the process ends."""
        if "-1" in self._results("open", [path]):
            raise SparkInternalsMissing(f"a standby JVM cannot open {path}", hint="check its limit of open files")

    def _succeed(self, function: str, texts: Sequence[str], hint: str) -> None:
        """Call a function that returns 0 if it has succeeded, with each text."""
        if texts and self._results(function, texts) != "[0]":
            raise SparkInternalsMissing(f"a standby JVM cannot carry out {function}", hint=hint)

    def _results(self, function: str, texts: Sequence[str]) -> str:
        """Call a function with each text. Return the different results as Java prints a list."""
        stream = self._separator.splitAsStream(_SEPARATOR.join(texts))
        return str(stream.map(self._functions[function]).distinct().toList().toString())

    def _function(self, name: str, *numbers: int) -> Any:
        """Return a java.util.function.Function that calls a C function with a text, and then these numbers."""
        handles = self._reflection.jvm.java.lang.invoke.MethodHandles
        proxies = self._reflection.jvm.java.lang.invoke.MethodHandleProxies
        java = self._reflection.jvm.java.lang
        handle = self._handle(name, [str, *(int for _ in numbers)])
        bound = handles.insertArguments(handle, 1, self._reflection.array(java.Object, numbers)) if numbers else handle
        takes_text = handles.filterArguments(
            bound, 0, self._reflection.array(java.invoke.MethodHandle, [self._to_address])
        )
        return proxies.asInterfaceInstance(self._reflection.load("java.util.function.Function"), takes_text)

    def _make_to_address(self) -> Any:
        """Return a handle that copies a text into memory of the C library, for ever, and returns the address."""
        reflection, handles = self._reflection, self._reflection.jvm.java.lang.invoke.MethodHandles
        lookup, java = handles.publicLookup(), reflection.jvm.java.lang
        to_c = reflection.method(f"{_FOREIGN}.CLinker", "toCString", ("java.lang.String", f"{_FOREIGN}.ResourceScope"))
        scope = self._call("ResourceScope", "globalScope", ())
        copy = handles.insertArguments(lookup.unreflect(to_c), 1, reflection.array(java.Object, [scope]))
        address_of = lookup.unreflect(reflection.method(f"{_FOREIGN}.MemorySegment", "address", ()))
        return handles.filterReturnValue(copy, address_of)

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
