"""Access to a JVM's private parts over py4j: Spark and Java have no public way to undo or repeat their start."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from emberkeep.spark.errors import SparkInternalsMissing


class Reflection:
    """Reads, writes and calls what a JVM keeps private.

    Every method raises SparkInternalsMissing if this Java or this Spark lacks the class, the field or the method, or if
    the call fails. ``gateway``: a py4j gateway to the JVM.

    Finding a class, a field or a method takes many round trips to the JVM, so each is found once.
    """

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway
        self.jvm = gateway.jvm
        self._classes: dict[str, Any] = {}
        self._fields: dict[tuple[str, str], Any] = {}
        self._methods: dict[tuple[str, str, tuple[str, ...]], Any] = {}

    def load(self, name: str) -> Any:
        """Return the java.lang.Class with this name, such as ``int`` or ``java.lang.String``."""
        if name not in self._classes:
            java = self.jvm.java.lang
            find = (lambda: java.Integer.TYPE) if name == "int" else (lambda: java.Class.forName(name))
            self._classes[name] = _attempt(f"class {name}", find)
        return self._classes[name]

    def array(self, kind: Any, items: Sequence[Any]) -> Any:
        """Return a Java array. ``kind``: py4j's name of the elements' class, such as ``jvm.java.lang.Object``."""
        array = self._gateway.new_array(kind, len(items))
        for index, item in enumerate(items):
            array[index] = item
        return array

    def field(self, owner: str, name: str) -> Any:
        """Return a field of a class, made accessible."""

        def find() -> Any:
            found = self.load(owner).getDeclaredField(name)
            found.setAccessible(True)
            return found

        if (owner, name) not in self._fields:
            self._fields[owner, name] = _attempt(f"{owner}.{name}", find)
        return self._fields[owner, name]

    def method(self, owner: str, name: str, parameters: Sequence[str]) -> Any:
        """Return a method of a class, made accessible. ``parameters``: names of the classes in its signature."""

        def find() -> Any:
            types = self.array(self.jvm.java.lang.Class, [self.load(parameter) for parameter in parameters])
            found = self.load(owner).getDeclaredMethod(name, types)
            found.setAccessible(True)
            return found

        key = owner, name, tuple(parameters)
        if key not in self._methods:
            self._methods[key] = _attempt(f"{owner}.{name}", find)
        return self._methods[key]

    def get(self, owner: str, name: str, instance: Any = None) -> Any:
        """Return the value of a field; ``instance`` is None for a static field."""
        field = self.field(owner, name)
        return _attempt(f"{owner}.{name}", lambda: field.get(instance))

    def set(self, owner: str, name: str, value: Any, instance: Any = None) -> None:
        """Set a field; ``instance`` is None for a static field."""
        field = self.field(owner, name)
        _attempt(f"{owner}.{name}", lambda: field.set(instance, value))

    def singleton(self, name: str) -> Any:
        """Return the instance of a Scala object; ``name`` ends in ``$``."""
        return self.get(name, "MODULE$")

    def call(self, owner: str, name: str, parameters: Sequence[str], *arguments: Any, instance: Any = None) -> Any:
        """Call a method of a class. ``parameters``: names of the classes in its signature."""
        method = self.method(owner, name, parameters)
        return _attempt(
            f"{owner}.{name}", lambda: method.invoke(instance, self.array(self.jvm.java.lang.Object, arguments))
        )

    def invoke(self, handle: Any, *arguments: Any) -> Any:
        """Invoke a java.lang.invoke.MethodHandle."""
        values = self.array(self.jvm.java.lang.Object, arguments)
        return self.call(
            "java.lang.invoke.MethodHandle", "invokeWithArguments", ("[Ljava.lang.Object;",), values, instance=handle
        )


def _attempt(what: str, action: Any) -> Any:
    from py4j.protocol import Py4JError

    try:
        return action()
    except (Py4JError, TypeError, OSError) as error:
        raise SparkInternalsMissing(
            f"cannot use {what} of a standby JVM: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
            hint="Emberkeep works with PySpark 4.3; jobs start without standby processes on other versions",
        ) from error


@contextlib.contextmanager
def failures_of_py4j() -> Iterator[None]:
    """Raise SparkInternalsMissing where py4j fails, as it does when the JVM ends, or cannot encode a text."""
    from py4j.protocol import Py4JError

    try:
        yield
    except (Py4JError, UnicodeEncodeError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise SparkInternalsMissing(f"a standby JVM cannot be used: {reason}") from error
