"""The command imports nothing from the directory that it is called in, nor from folders that others can write."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

pytestmark = pytest.mark.req("SEC-4")

# What Python itself imports before the first line of a program cannot be kept from it.
BEFORE_THE_FIRST_LINE = {"sitecustomize", "usercustomize", "encodings", "runpy", "re"}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that all can write, with a module for every name that the command might import."""
    directory = tmp_path_factory.mktemp("hostile")
    directory.chmod(0o777)
    code = "import sys; print('\\n'.join(sys.modules))"
    loaded = set(run(directory, sys.executable, "-P", "-c", code).stdout.split())
    for name in {*sys.stdlib_module_names, *packages_distributions()} - loaded - BEFORE_THE_FIRST_LINE - {"emberkeep"}:
        (directory / f"{name}.py").write_text(f"raise SystemExit('planted {name}')\n")
    return directory


def run(directory: Path, *command: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environ |= {} if path is None else {"PYTHONPATH": path}
    return subprocess.run(command, cwd=directory, env=environ, capture_output=True, text=True, timeout=60, check=False)


def emberkeep() -> str:
    return str(Path(sys.executable).with_name("emberkeep"))


@pytest.mark.parametrize("path", [None, ":/usr/share"])
def test_a_call_in_a_hostile_directory(hostile: Path, path: str | None) -> None:
    done = run(hostile, emberkeep(), "version", path=path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("emberkeep ")


@pytest.mark.parametrize("entry", [".", "{}"])
def test_a_hostile_folder_in_pythonpath_is_named(hostile: Path, entry: str) -> None:
    done = run(hostile, emberkeep(), "version", path=entry.format(hostile))
    assert done.returncode == 0, done.stderr
    reason = f"other users can write to {hostile}"
    assert done.stderr == f"emberkeep: warning: {hostile} is not used for imports: {reason} (from PYTHONPATH)\n"


def test_a_safe_folder_in_pythonpath_is_used_also_by_what_the_command_starts(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir(mode=0o755)
    code = """if 1:
        import os, sys
        from emberkeep.cli.import_path import restore_safe_path
        restore_safe_path(sys.path)
        print(os.environ["PYTHONPATH"], sys.path[0])
    """
    done = run(tmp_path, sys.executable, "-P", "-c", code, path="src:")
    assert done.stdout.split() == [str(tmp_path / "src")] * 2, done
