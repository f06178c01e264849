"""The check for chromium: silent with one, installs one where it may, else says what to do."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "tools" / "ensure-chromium.sh"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A PATH that has the tools the script needs, but no chromium, no package manager and no root."""
    for tool in ("bash", "env", "cp"):
        (tmp_path / tool).symlink_to(str(shutil.which(tool)))
    program(tmp_path / "id", "echo 1000")
    return tmp_path


def program(path: Path, body: str) -> None:
    path.write_text(f"#!{shutil.which('bash')}\n{body}\n")
    path.chmod(0o755)


def run(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT], check=False, capture_output=True, text=True, env={"PATH": str(path)}, timeout=30)


def test_nothing_is_said_where_there_is_one(path: Path) -> None:
    program(path / "chromium", "exit 0")
    done = run(path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_who_may_not_install_is_told_what_to_do(path: Path) -> None:
    program(path / "apt-get", f"cp {path}/id {path}/chromium")
    program(path / "sudo", "exit 1")
    done = run(path)
    assert done.returncode == 1
    assert "sudo apt-get install chromium" in done.stderr


@pytest.mark.parametrize(("install", "code"), [("cp {0}/id {0}/chromium", 0), ("exit 100", 1), ("exit 0", 1)])
def test_root_gets_one_or_is_told_what_to_do(path: Path, install: str, code: int) -> None:
    program(path / "id", "echo 0")
    program(path / "apt-get", install.format(path))
    done = run(path)
    assert done.returncode == code, done.stderr
    assert ("apt-get install chromium" in done.stderr) is bool(code)
