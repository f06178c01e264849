"""What other JVMs get when they start and a standby JVM gets later: environment, properties, directory, class path."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from emberkeep.spark.standby.native_calls import NativeCalls
from emberkeep.spark.standby.reflection import Reflection

LATE_OPTIONS = ("--add-opens=java.base/jdk.internal.loader=ALL-UNNAMED", "--add-opens=java.base/sun.nio.fs=ALL-UNNAMED")
"""JVM options with which these changes are possible, beyond Spark's own."""

TEMPORARY = "java.io.tmpdir"
"""The property with the temporary directory. Java itself reads it once, and Spark each time."""
COMMAND = "sun.java.command"
"""The property with the main class and its arguments."""


class Identity:
    """Changes a JVM's identity. All methods raise SparkInternalsMissing.

    The constructor looks everything up that the changes need, so that they take little time when a job waits.
    """

    def __init__(self, gateway: Any) -> None:
        self.reflection = reflection = Reflection(gateway)
        self._native = NativeCalls(reflection)
        self._system = reflection.jvm.java.lang.System
        view = reflection.get("java.lang.ProcessEnvironment", "theUnmodifiableEnvironment")
        # One map is behind System.getenv() and what processes inherit that Java starts.
        self._variables = reflection.get("java.util.Collections$UnmodifiableMap", "m", view)
        self._present = {str(name): str(self._variables.get(name)) for name in list(self._variables.keySet())}
        self._native.set_variables({"EMBERKEEP_STANDBY": "1"})
        self._native.unset_variables(["EMBERKEEP_STANDBY"])
        self._native.change_directory(str(self._system.getProperty("user.dir")))

    def hold_standard_input(self) -> None:
        """Make the process itself hold the writing end of the pipe that is its standard input."""
        self._native.open_for_writing("/proc/self/fd/0")

    def set_environment(self, wanted: Mapping[str, str]) -> None:
        """Make ``wanted`` the environment: for Java, for native code, and for processes that the JVM starts."""
        unwanted = self._present.keys() - wanted.keys()
        changed = {name: value for name, value in wanted.items() if self._present.get(name) != value}
        for name in unwanted:
            self._variables.remove(name)
        for name, value in changed.items():
            self._variables.put(name, value)
        self._native.unset_variables(unwanted)
        self._native.set_variables(changed)

    def set_directory(self, directory: Path) -> None:
        """Make ``directory`` the working directory: of the process, and where Java resolves relative paths."""
        path, reflection = str(directory), self.reflection
        self._native.change_directory(path)
        self._system.setProperty("user.dir", path)
        reflection.set("java.io.UnixFileSystem", "userDir", path, reflection.get("java.io.File", "fs"))
        # Paths of java.nio take the directory from the file system's object, which has it as bytes.
        paths = reflection.jvm.java.nio.file.FileSystems.getDefault()
        reflection.set("sun.nio.fs.UnixFileSystem", "defaultDirectory", path.encode(), paths)

    def change_properties(self, cleared: Collection[str], values: Mapping[str, str]) -> None:
        """Clear some system properties and set others."""
        for name in cleared:
            self._system.clearProperty(name)
        for name, value in values.items():
            self._system.setProperty(name, value)

    def append_to_class_path(self, jars: Iterable[Path]) -> None:
        """Add jars at the end of the class path."""
        loader = self.reflection.jvm.java.lang.ClassLoader.getSystemClassLoader()
        owner = "jdk.internal.loader.ClassLoaders$AppClassLoader"
        name = "appendToClassPathForInstrumentation"
        for jar in jars:
            self.reflection.call(owner, name, ("java.lang.String",), str(jar), instance=loader)
