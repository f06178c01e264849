"""Environment variables that a process reads when it starts. A standby process cannot be given other values later."""

from __future__ import annotations

_OF_JVMS = ("LD_*", "MALLOC_*", "JAVA_TOOL_OPTIONS", "JDK_*", "LANG", "LC_*", "TZ", "HOME")
_OF_PYTHON = ("PYTHON*", "OMP_*", "MKL_*", "OPENBLAS_*", "NUMEXPR_*", "ARROW_*", "CUDA_*")
_OF_COMMANDS = ("JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")
FIXED_FOR_EXECUTORS = (*_OF_JVMS, *_OF_COMMANDS)
FIXED_FOR_DRIVERS = (*_OF_JVMS, *_OF_COMMANDS, *_OF_PYTHON)
