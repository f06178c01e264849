"""Makes the environment with public PySpark scripts and libraries: ``python -m tools.public_scripts_environment``.

``requirements-public-scripts.lock`` locks it. PySpark, and whatever else ``requirements-dev.lock`` has, are those of
the project's own environment, as they are large: its packages come after those of this one. Emberkeep is installed from
this tree, because its jobs run with the interpreter of its task managers.
"""

from __future__ import annotations

import re
import sysconfig
import tempfile
from pathlib import Path

from tools.locked_environment import ROOT, LockedEnvironment, install

_LOCK, _PROJECTS = ROOT / "requirements-public-scripts.lock", ROOT / "requirements-dev.lock"
_ENTRY = re.compile(r"^([^\s#]\S*).*\n(?:[ \t].*\n)*", re.MULTILINE)


def packages(environment: Path) -> Path:
    """Where the packages of an environment are that was made with this interpreter."""
    return Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))


def _fill(python: Path) -> None:
    has = {entry[1] for entry in _ENTRY.finditer(_PROJECTS.read_text(encoding="utf-8"))}
    lacks = [entry[0] for entry in _ENTRY.finditer(_LOCK.read_text(encoding="utf-8")) if entry[1] not in has]
    with tempfile.NamedTemporaryFile("w", suffix=".lock") as lock:
        lock.writelines(lacks)
        lock.flush()
        install(python, "--require-hashes", "--no-deps", "-r", lock.name)
    (packages(python.parent.parent) / "project.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    install(python, "--no-build-isolation", "--no-deps", "-e", str(ROOT))


PUBLIC_SCRIPTS = LockedEnvironment(
    "public-scripts",
    (_LOCK, _PROJECTS, ROOT / "src" / "emberkeep" / "__init__.py"),  # the last has the version
    _fill,
)

if __name__ == "__main__":
    print(PUBLIC_SCRIPTS.make())
