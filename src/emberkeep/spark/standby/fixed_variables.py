"""Environment variables that a process reads when it starts. A standby process cannot be given other values later."""

from __future__ import annotations

from collections.abc import Mapping

from emberkeep.base.processes.variable_names import matches

_OF_JVMS = ("LD_*", "MALLOC_*", "JAVA_TOOL_OPTIONS", "JDK_*", "LANG", "LC_*", "TZ", "HOME")
_OF_PYTHON = ("PYTHON*", "OMP_*", "MKL_*", "OPENBLAS_*", "NUMEXPR_*", "ARROW_*", "CUDA_*")
_OF_COMMANDS = ("JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")
FIXED_FOR_EXECUTORS = (*_OF_JVMS, *_OF_COMMANDS)
FIXED_FOR_DRIVERS = (*_OF_JVMS, *_OF_COMMANDS, *_OF_PYTHON)


def differing_variables(before: Mapping[str, str], after: Mapping[str, str], fixed: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of fixed variables that have another value, or none, in one of the two environments."""
    names = {name for name in before.keys() | after.keys() if matches(name, fixed)}
    return tuple(sorted(name for name in names if before.get(name) != after.get(name)))
