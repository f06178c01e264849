"""Reach tables of Spark's scheduler that Spark itself uses only while it holds a lock."""

from __future__ import annotations

from typing import Any

_LOCKED_MAP = "java.util.Collections$SynchronizedMap"


def locked_table(context: Any, owner: Any, name: str) -> Any:
    """Return the owner's table ``name`` as a Java map whose methods each hold the owner's lock. Raises LookupError."""
    jvm = context._jvm
    table = jvm.scala.jdk.javaapi.CollectionConverters.asJava(_field(owner, name))
    arguments = context._gateway.new_array(jvm.java.lang.Object, 2)
    arguments[0], arguments[1] = table, owner
    constructors = jvm.java.lang.Class.forName(_LOCKED_MAP).getDeclaredConstructors()
    constructor = next(one for one in constructors if one.getParameterCount() == 2)
    constructor.setAccessible(True)
    return constructor.newInstance(arguments)


def _field(owner: Any, name: str) -> Any:
    """Return the value of a field that the object's class or a superclass declares. Raises LookupError."""
    kind = owner.getClass()
    while kind is not None:
        for field in kind.getDeclaredFields():
            if field.getName().rpartition("$")[2] == name:
                field.setAccessible(True)
                return field.get(owner)
        kind = kind.getSuperclass()
    raise LookupError(f"{owner.getClass().getName()} has no field {name}")
