"""Find a Java runtime, and list the JVM options that Spark needs to start."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from emberkeep.base.import_path import import_path
from emberkeep.spark.errors import JavaNotFound, JavaTooOld

MINIMUM_JAVA = 17
_VERSION_TIMEOUT_SECONDS = 30.0
_HOW_TO_GET = (
    f"Spark needs Java {MINIMUM_JAVA} or newer: on Debian or Ubuntu `apt-get install openjdk-17-jre-headless`, "
    "or set JAVA_HOME to the directory of an installed one"
)

# org.apache.spark.launcher.JavaModuleOptions of Spark 4.3; a test compares this list with the jar.
_MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-modules=jdk.incubator.vector",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.invoke=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.net=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.cs=ALL-UNNAMED",
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
    "--add-opens=java.base/sun.util.calendar=ALL-UNNAMED",
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)


@dataclass(frozen=True)
class JavaRuntime:
    """A Java runtime that can run Spark. ``home`` is None if the executable is not inside a Java home."""

    home: Path | None
    executable: Path
    major: int


def jvm_open_options() -> list[str]:
    """Return the options that Spark's own launcher gives to every JVM (``--add-opens`` and the like)."""
    return list(_MODULE_OPTIONS)


def find_java(environ: Mapping[str, str]) -> JavaRuntime:
    """Return the Java in ``JAVA_HOME``, else the first ``java`` on ``PATH``. Raises JavaNotFound, JavaTooOld."""
    executable, origin = _locate(environ)
    major = _major_of(executable)
    if major < MINIMUM_JAVA:
        raise JavaTooOld(f"{executable} (from {origin}) is Java {major}", hint=_HOW_TO_GET)
    home = executable.resolve().parent.parent
    return JavaRuntime(home if (home / "lib" / "modules").exists() else None, executable, major)


def _locate(environ: Mapping[str, str]) -> tuple[Path, str]:
    java_home = environ.get("JAVA_HOME", "")
    if java_home:
        executable = Path(java_home) / "bin" / "java"
        if shutil.which(str(executable)) is None:
            raise JavaNotFound(f"JAVA_HOME is {java_home}, but {executable} is not an executable", hint=_HOW_TO_GET)
        return executable, "JAVA_HOME"
    # A relative or empty entry would run a program that is in the job's working directory.
    path = import_path(environ.get("PATH", ""), None)
    found = shutil.which("java", path=os.pathsep.join(path.folders))
    if found is None:
        unused = "".join(f"; not searched: {folder.folder} ({folder.reason})" for folder in path.refused)
        raise JavaNotFound(f"no Java runtime: JAVA_HOME is not set and PATH has no `java`{unused}", hint=_HOW_TO_GET)
    return Path(found), "PATH"


def _major_of(executable: Path) -> int:
    # Reading the release file saves a JVM start; wrappers of Linux distributions may lack the file.
    release = executable.resolve().parent.parent / "release"
    try:
        text = release.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    match = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    if match is None:
        match = re.search(r'version "([^"]+)"', _version_output(executable))
    if match is None:
        raise JavaNotFound(f"{executable} printed no Java version: check that it is a Java runtime", hint=_HOW_TO_GET)
    return parse_major(match.group(1))


def _version_output(executable: Path) -> str:
    try:
        done = subprocess.run(
            [str(executable), "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_VERSION_TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaNotFound(f"cannot run {executable}: {error}", hint=_HOW_TO_GET) from error
    return done.stderr + done.stdout


def parse_major(version: str) -> int:
    """Return the major version: ``17.0.15`` → 17, ``1.8.0_392`` → 8, ``21-ea`` → 21.

    Raises JavaNotFound if the text does not begin with a number.
    """
    numbers = re.match(r"(\d+)(?:\.(\d+))?", version)
    if numbers is None:
        raise JavaNotFound(f"{version!r} is not a Java version", hint=_HOW_TO_GET)
    first = int(numbers.group(1))
    return int(numbers.group(2)) if first == 1 and numbers.group(2) else first
